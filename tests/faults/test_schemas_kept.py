"""A stock server's rows are read with the stored schemas, which are written only when a definition changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import partition_reader
from changefeed.model.topic_name import schema_history_topic
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer


@pytest.fixture
def new_feed(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed of a server with binlog_row_metadata=MINIMAL that begins with the rows written next."""
    started = Feed(unique_name, mysql_server, kafka_broker, tmp_path, runner)
    started.mysql.execute(f"CREATE TABLE `{unique_name}`.extra (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    head = mysql_server.execute("SHOW BINARY LOG STATUS")[0]
    started.settings["start"] = f"{head[0]}:{head[1]}"
    started.configure()
    yield started
    mysql_server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


@pytest.fixture
def stock_feed(new_feed: Feed) -> Feed:
    """A checkpoint that is a window old."""
    new_feed.write()
    new_feed.run()
    return new_feed


def stored(feed: Feed) -> int:
    """How many histories were written."""
    connection = KafkaConnection(feed.kafka.bootstrap)
    topic = schema_history_topic(feed.name)
    with partition_reader(connection, [(topic, 0)], "to count the histories") as reader:
        return sum(1 for _ in reader.to_end(timeout_seconds=10))


def inserted(feed: Feed) -> list[dict[str, int]]:
    """The rows of `extra` by their ids, as they were inserted."""
    rows = [json.loads(record.value)["after"] for record in feed.records("extra")]
    return sorted(rows, key=lambda row: int(row["id"]))


def alter_in_one_window(feed: Feed, number: int) -> None:
    """Rows before and after a definition: those before it are not read by whoever learns the schemas only now."""
    table = f"`{feed.name}`.extra"
    feed.mysql.execute(
        f"INSERT INTO {table} (id) VALUES ({10 * number})",
        f"ALTER TABLE {table} ADD COLUMN more{number} INT DEFAULT {number} FIRST",
        f"INSERT INTO {table} (id) VALUES ({10 * number + 1})",
    )
    feed.run(spark="connect" in feed.settings.get("spark", {}))
    before, after = ({f"more{each}": each for each in range(1, end)} for end in (number, number + 1))
    assert inserted(feed)[-2:] == [{"id": 10 * number, **before}, {"id": 10 * number + 1, **after}]


@pytest.mark.extended
def test_window_without_ddl_stores_no_schemas_and_next_ddl_is_followed(
    stock_feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed = stock_feed
    assert stored(feed) == 1
    for _ in range(2):
        feed.write(5)
        feed.mysql.execute(f"CREATE TABLE IF NOT EXISTS `{feed.name}`.journal (id INT)")
        feed.run()
    assert stored(feed) == 1
    alter_in_one_window(feed, 1)
    assert stored(feed) == 2
    feed.write(5)
    feed.run()
    feed.use_connect(spark_connect.url)
    alter_in_one_window(feed, 2)
    assert stored(feed) == 3
    feed.check()


def test_a_kill_between_schemas_and_seal_loses_neither(stock_feed: Feed) -> None:
    feed = stock_feed
    feed.write(5)
    feed.run()
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.more (id INT)", f"INSERT INTO `{feed.name}`.more VALUES (1)")
    held = feed.begin("before_seal")
    assert held.wait_until_held()
    held.kill()
    feed.run()
    alter_in_one_window(feed, 1)
    assert len(feed.records("more")) == 1
    assert stored(feed) == 3


@pytest.mark.extended
def test_schemas_whose_topic_is_lost_come_back_and_reach_as_far_as_before(stock_feed: Feed) -> None:
    feed = stock_feed
    feed.write(5)
    feed.run()
    with KafkaConnection(feed.kafka.bootstrap).admin() as admin:
        admin.delete_topics([schema_history_topic(feed.name)])
    alter_in_one_window(feed, 1)
    feed.check()


@pytest.mark.extended
def test_after_a_seek_back_rows_are_read_with_the_schemas_of_their_time(stock_feed: Feed) -> None:
    feed = stock_feed
    feed.write(5)
    feed.run()
    head = feed.mysql.execute("SHOW BINARY LOG STATUS")[0]
    back = f"{head[0]}:{head[1]}"
    alter_in_one_window(feed, 1)
    feed.write(5)
    feed.run()
    seek = feed.command("seek", feed.name, back, "--why", "a test", "--yes")
    assert seek.returncode == 0, seek.stdout + seek.stderr
    feed.run_until_current()
    assert inserted(feed) == [{"id": 10}] * 2 + [{"id": 11, "more1": 1}] * 2
    assert stored(feed) == 2, "what was read again defined nothing new"
    alter_in_one_window(feed, 2)


@pytest.mark.extended
def test_a_definition_between_two_attempts_at_the_first_window_changes_nothing_in_it(new_feed: Feed) -> None:
    """What the first attempt learned is stored before it publishes: the second could not learn it any more."""
    new_feed.write(60)
    run = new_feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    table = f"`{new_feed.name}`.accounts"
    new_feed.mysql.execute(f"ALTER TABLE {table} ADD COLUMN more INT")
    new_feed.run()
    new_feed.mysql.execute(f"ALTER TABLE {table} DROP COLUMN more")
    new_feed.write(10)
    new_feed.run()
    new_feed.check()


@pytest.mark.extended
@pytest.mark.parametrize("start", ["latest", "where the rows begin"])
def test_plan_that_dies_before_the_first_checkpoint_is_done_again_after_ddl(new_feed: Feed, start: str) -> None:
    table = f"`{new_feed.name}`.accounts"
    if start == "latest":
        new_feed.settings["start"] = start
        new_feed.configure()
    else:
        new_feed.write(5)
    run = new_feed.begin("before_first_checkpoint")
    assert run.wait_until_held(), run.text()
    run.kill()
    new_feed.mysql.execute(f"ALTER TABLE {table} ADD COLUMN more INT FIRST", f"ALTER TABLE {table} DROP COLUMN more")
    new_feed.run()
    new_feed.mysql.execute(f"ALTER TABLE {table} MODIFY text VARCHAR(300)")
    new_feed.write(10)
    new_feed.run()
    new_feed.check()
