"""Changes between two attempts to publish a window: partitions, tables, topics, settings, the window itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from both_settings import on_both_settings
from faults.feed import NOTHING_NEW, TABLES, Feed, Run
from integration.topic_rows import event_ids
from kafka import KafkaAdminClient
from kafka.admin import NewPartitions

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)

HALF_PUBLISHED = "after_transaction_commit:2"


def stop_half_way(feed: Feed, *, spark: bool = False) -> Run:
    """Start a run and kill it after it has published a part of its window; return the run."""
    run = feed.begin(HALF_PUBLISHED, spark=spark)
    assert run.wait_until_held(400), run.text()
    run.kill()
    return run


def partly_published_table(feed: Feed) -> str:
    """A table with messages of the window in its topic."""
    return next(table for table in TABLES if event_ids(feed.records(table)))


def add_partitions(feed: Feed, table: str, count: int) -> None:
    with KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap) as admin:
        admin.create_partitions({f"{feed.name}.{table}": NewPartitions(count)})


def remove_topic(feed: Feed, table: str) -> None:
    with KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap) as admin:
        admin.delete_topics([f"{feed.name}.{table}"])


def remove_schema_changes(feed: Feed) -> None:
    with KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap) as admin:
        admin.delete_topics([f"changefeed.{feed.name}.schema-changes"])


def check_ids(feed: Feed, table: str, rows: int) -> None:
    """Check that the topic has each row of a table without updates once."""
    ids = event_ids(feed.records(table))
    assert [each for each, count in Counter(ids).items() if count > 1] == []
    assert len(ids) == rows


@pytest.mark.extended
def test_partitions_added_to_a_topic_wait_for_the_next_window(feed: Feed) -> None:
    feed.write(60)
    stop_half_way(feed)
    table = partly_published_table(feed)
    add_partitions(feed, table, 3)
    feed.run()
    feed.check()
    assert {record.partition for record in feed.records(table)} == {0, 1}
    feed.write(60)
    feed.run()
    assert {record.partition for record in feed.records(table)} == {0, 1, 2}


@pytest.mark.extended
@on_both_settings
def test_partitions_added_in_a_window_of_many_slices_wait_for_the_next_window(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    for _ in range(3):
        feed.write(30)
        feed.mysql.execute("FLUSH BINARY LOGS")
    feed.configure(transaction_rows=10)
    stop_half_way(feed, spark=True)
    table = partly_published_table(feed)
    add_partitions(feed, table, 5)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    feed.check()
    assert {record.partition for record in feed.records(table)} == {0, 1}


@pytest.mark.extended
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_table_dropped_between_two_attempts_keeps_the_partitions_of_its_topic(feed: Feed, partitions: int) -> None:
    """The topic has another number of partitions than the setting."""
    feed.settings["topics"] = {"partitions": partitions}
    feed.configure()
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.gone (id INT PRIMARY KEY)")
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.gone VALUES (0)")
    feed.run()
    feed.settings["topics"] = {"partitions": 2}
    feed.configure()
    feed.mysql.execute(*(f"INSERT INTO `{feed.name}`.gone VALUES ({key})" for key in range(1, 200)))
    stop_half_way(feed)
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.gone")
    feed.write(5)
    feed.run()
    check_ids(feed, "gone", 200)
    assert {record.partition for record in feed.records("gone")} == set(range(partitions))


@pytest.mark.long
@pytest.mark.extended
def test_a_table_that_only_the_binlog_has_goes_to_the_partitions_that_its_topic_has(feed: Feed) -> None:
    feed.settings["topics"] = {"partitions": 5}
    feed.configure()
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.gone (id INT PRIMARY KEY)")
    feed.run()
    feed.settings["topics"] = {"partitions": 2}
    feed.configure()
    feed.mysql.execute(*(f"INSERT INTO `{feed.name}`.gone VALUES ({key})" for key in range(60)))
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.gone")
    feed.run()
    check_ids(feed, "gone", 60)
    assert {record.partition for record in feed.records("gone")} == set(range(5))


CHANGES: dict[str, dict[str, Any]] = {
    "values": {"values": {"bigint_unsigned": "string"}},
    "tables": {"tables": {"include": ["*.journal"]}},
    "columns": {"columns": {"exclude": ["*.accounts.text"]}},
    "tombstones": {"tombstones": False},
    "topics": {"topics": {"partitions": 2, "template": "{database}.{table}.v2"}},
}


@pytest.mark.parametrize(
    "changed", ["tables", *(pytest.param(each, marks=pytest.mark.extended) for each in CHANGES if each != "tables")]
)
def test_a_window_is_finished_by_the_settings_that_it_was_begun_with_or_not_at_all(feed: Feed, changed: str) -> None:
    feed.write(60)
    stop_half_way(feed)
    before = dict(feed.settings)
    change = CHANGES[changed]
    feed.settings.update(change)
    feed.configure()
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert f"`{changed}` of the pipeline's settings changed" in run.text()
    assert feed.ids() == ids
    feed.settings.clear()
    feed.settings.update(before)
    feed.configure()
    feed.run()
    feed.check()
    feed.settings.update(change)
    feed.configure()
    feed.write(5)
    feed.run()


@pytest.mark.extended
def test_settings_may_change_when_nothing_of_a_window_was_published(feed: Feed) -> None:
    feed.write(10)
    run = feed.begin("after_decode")
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.settings["tombstones"] = False
    feed.configure()
    feed.run()
    feed.check()


@pytest.mark.extended
def test_a_topic_that_was_removed_in_mid_window_stops_the_run_until_it_is_forgotten(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write(60)
    stop_half_way(feed)
    table = partly_published_table(feed)
    remove_topic(feed, table)
    feed.use_connect(spark_connect.url)
    for spark, code in ((False, 2), (True, 1)):
        run = feed.begin(spark=spark)
        assert run.result() == code, run.text()
        assert f"topic '{feed.name}.{table}' was removed: Kafka's id for it was" in run.text()
        assert "backfill" in run.text()
    done = feed.command("prune", feed.name, "--topic", f"*.{table}")
    assert done.returncode == 0, done.stderr
    feed.run()
    feed.check()


@pytest.mark.extended
def test_topic_removed_between_windows_stops_the_run_and_names_lost_messages(feed: Feed) -> None:
    feed.write(10)
    feed.run()
    remove_topic(feed, "journal")
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.accounts VALUES (1000, 1, 'x')")
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "up to window 1" in run.text()
    assert "up to offset" in run.text()


@pytest.mark.long
@pytest.mark.extended
def test_no_backfill_is_offered_for_schema_changes_whose_topic_was_removed(feed: Feed) -> None:
    feed.write(10)
    feed.run()
    remove_schema_changes(feed)
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert f"topic 'changefeed.{feed.name}.schema-changes' was removed: " in run.text()
    assert "No backfill brings schema changes back" in run.text()
    assert "`changefeed backfill`" not in run.text()
    done = feed.command("prune", feed.name, "--topic", "*.schema-changes")
    assert done.returncode == 0, done.stderr
    feed.run()
    feed.check()


@pytest.mark.extended
def test_unfinished_window_is_finished_as_frozen_before_a_new_one(feed: Feed) -> None:
    feed.write(40)
    stop_half_way(feed)
    feed.write(10)
    text = feed.run()
    assert "an earlier run did not finish window 1 (" in text
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("committed")] == [
        "committed window 1",
        "committed window 2",
    ]
    feed.check()
    assert feed.begin().result() == NOTHING_NEW
