"""`on_table_error: park`: one bad table does not stop the rest, and comes back without a gap or a repeat."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults.existing_rows import row_from_records
from faults.feed import NOTHING_NEW, Feed, Runner, in_order
from integration.topic_rows import event_ids, records_of, select_rows, topic_rows
from long_form import long

from changefeed.errors import BadRecordError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.records import ParkedRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.topic_name import commit_log_topic, heartbeat_topic
from changefeed.operations import unpark as operations
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.parking import park_tables
from changefeed.pipeline.windows import windows
from changefeed.settings.file import read_pipeline
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.schema_registry import SchemaRegistry

pytestmark = pytest.mark.timeout(1200)

FUNCTION = """\
from pathlib import Path

from changefeed.transforms.change import Change


def transform(change: Change, marker: str) -> Change:
    if Path(marker).exists():
        raise ValueError("the marker exists")
    return change
"""


@pytest.fixture
def marker(feed: Feed) -> Path:
    """See `add_bad_table`."""
    return add_bad_table(feed)


def add_bad_table(feed: Feed) -> Path:
    """A table `bad` beside two others, whose rows a function fails on while the marker exists; returns the marker."""
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.bad (id INT PRIMARY KEY, version INT NOT NULL, text LONGTEXT)")
    marker = feed.folder / "marker"
    marker.touch()
    (feed.folder / "transforms").mkdir()
    (feed.folder / "transforms" / "fragile.py").write_text(FUNCTION)
    feed.settings |= {
        "on_table_error": "park",
        "transforms": [{"tables": f"{feed.name}.bad", "function": "fragile", "arguments": {"marker": str(marker)}}],
    }
    feed.configure(transaction_rows=10)
    return marker


def write(feed: Feed, table: str = "bad", rows: int = 30) -> None:
    """Rows of all tables, those of ``table`` also changed."""
    feed.write(10)
    for version in (1, 2):
        values = ", ".join(f"({key}, {version}, 'x')" for key in range(1, rows + 1))
        feed.mysql.execute(
            f"INSERT INTO `{feed.name}`.`{table}` VALUES {values} ON DUPLICATE KEY UPDATE version = version + 1"
        )
    feed.mysql.execute(f"DELETE FROM `{feed.name}`.`{table}` WHERE id % 7 = 0")
    feed.write(5)


def check_once(feed: Feed, table: str = "bad") -> None:
    """The topic of ``table`` has each of its changes once, in the order of the binlog."""
    records = feed.records(table)
    assert [event for event, count in Counter(event_ids(records)).items() if count > 1] == []
    assert topic_rows(records) == select_rows(feed.mysql, feed.name, table)
    assert in_order(records)


def parked(feed: Feed) -> list[ParkedRecord]:
    log = CommitLog(KafkaConnection(feed.kafka.bootstrap), commit_log_topic(feed.name), feed.name)
    return log.read().of(ParkedRecord)


def connections_of(feed: Feed) -> PipelineConnections:
    environment = feed.env()
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    return PipelineConnections(pipeline, lambda name: environment[f"AIRFLOW_CONN_{name.upper()}"])


def heartbeat(feed: Feed) -> dict[str, Any]:
    """The last heartbeat."""
    value: dict[str, Any] = json.loads(records_of(feed.kafka.bootstrap, heartbeat_topic(feed.name))[-1].value)
    return value


def output(feed: Feed, *command: str) -> str:
    """All that the command prints."""
    ended = feed.fork_command("", *command)
    ended.result()
    return ended.text()


def unpark(feed: Feed, *options: str, fault: str = "") -> Any:
    return feed.fork_command(fault, "unpark", feed.name, *options)


def test_a_table_with_an_error_is_parked_and_comes_back_complete(feed: Feed, marker: Path) -> None:
    write(feed)
    assert f"{feed.name}.bad is parked" in feed.run()
    feed.check()
    assert feed.records("bad") == []
    (record,) = parked(feed)
    assert record.table == f"{feed.name}.bad"
    assert record.at == feed.settings["start"], "where the window began"

    feed.mysql.execute("FLUSH BINARY LOGS")
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.bad MODIFY version BIGINT NOT NULL")
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.bad VALUES (100, 5000000000, 'y'), (101, 1, NULL)")
    feed.write(5)
    feed.settings["heartbeat"] = True
    feed.configure(transaction_rows=10)
    assert feed.fork_command("", "run", feed.name).result() == 0
    assert heartbeat(feed)["parked"] == [f"{feed.name}.bad"]
    feed.check()
    assert feed.records("bad") == []

    failed = unpark(feed)
    assert failed.result() == 1, failed.text()
    assert "the marker exists" in failed.text()
    assert parked(feed) == [record]

    marker.unlink()
    feed.mysql.execute(f"UPDATE `{feed.name}`.bad SET version = version + 1")  # the next window publishes it
    returned = unpark(feed, "--tables", f"{feed.name}.b*")
    assert returned.result() == 0, returned.text()
    assert f"{feed.name}.bad is not parked any more" in returned.text()
    assert parked(feed) == []
    again = unpark(feed)
    assert again.result() == 1
    assert "parked are none" in again.text()
    assert feed.fork_command("", "run", feed.name).result() == 0
    assert heartbeat(feed)["parked"] == []
    feed.check()
    check_once(feed)
    changes = records_of(feed.kafka.bootstrap, f"{feed.name}.schema-changes")
    assert len(changes) == len(set(event_ids(changes)))
    assert feed.begin().result() == NOTHING_NEW


@pytest.mark.parametrize("stage", [pytest.param("before_park", marks=pytest.mark.extended), "after_park"])
def test_a_run_killed_while_it_parks_a_table_leaves_no_gap(feed: Feed, marker: Path, stage: str) -> None:
    write(feed)
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()
    assert len(parked(feed)) == (stage == "after_park")
    feed.run()
    feed.check()
    assert feed.records("bad") == []
    marker.unlink()
    assert unpark(feed).result() == 0
    feed.run_until_current()
    feed.check()
    check_once(feed)


@pytest.mark.parametrize(
    "stage",
    [
        "after_transaction_commit:2",
        pytest.param("before_seal", marks=pytest.mark.extended),
        "after_unpark_window",
        *long("in_decode", "after_seal", "after_unpark"),
    ],
)
def test_an_unpark_killed_at_a_stage_continues_after_windows_without_the_table(
    feed: Feed, marker: Path, stage: str
) -> None:
    write(feed)
    feed.run()
    marker.unlink()
    killed = unpark(feed, fault=stage)
    assert killed.wait_until_held(), killed.text()
    write(feed)
    beside = feed.begin()
    assert beside.result() == (0 if stage == "after_unpark" else 1), beside.text()
    assert stage == "after_unpark" or "PipelineBusyError" in beside.text()
    if stage == "after_unpark_window":
        second = unpark(feed)
        assert second.result() == 1
        assert "PipelineBusyError" in second.text()
    killed.kill()
    feed.run()  # without the table, unless the unpark had ended
    feed.check()
    if stage != "after_unpark":
        moved = unpark(feed, fault="after_unpark_move")
        assert moved.wait_until_held(), moved.text()
        moved.kill()
        assert unpark(feed).result() == 0
    assert parked(feed) == []
    write(feed)
    feed.run()
    feed.check()
    check_once(feed)


def test_a_schema_that_the_registry_refuses_parks_its_table(feed: Feed, schema_registry: SchemaRegistry) -> None:
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.refused (id INT PRIMARY KEY, version INT NOT NULL, text TEXT)")
    feed.connections["REGISTRY"] = schema_registry.url
    feed.settings |= {"on_table_error": "park", "format": {"name": "avro", "registry": "registry"}}
    feed.configure()
    write(feed, "refused")
    feed.run()
    assert feed.records("refused") == []
    there = feed.ids()
    assert len(there) == len(set(there)) > 0
    (record,) = parked(feed)
    assert "refused" in record.reason
    assert unpark(feed).result() == 1
    feed.settings["topics"] = {
        "partitions": 2,
        "routes": [{"match": f"{feed.name}.refused", "format": {"name": "debezium"}}],
    }
    feed.configure()
    assert unpark(feed).result() == 0
    write(feed, "refused")
    feed.run()
    check_once(feed, "refused")


def test_a_record_that_is_too_large_parks_its_table_unless_a_part_is_published(feed: Feed) -> None:
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.bad (id INT PRIMARY KEY, version INT NOT NULL, text LONGTEXT)")
    feed.settings |= {
        "on_table_error": "park",
        "topics": {"partitions": 2, "configs": {"max.message.bytes": "20000"}},
    }
    feed.configure(transaction_rows=100_000)
    write(feed)
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.bad VALUES (900, 1, REPEAT('x', 30000))")
    feed.run()
    feed.check()
    assert feed.records("bad") == []
    assert "does not fit" in parked(feed)[0].reason

    given_up = unpark(feed, "--skip-changes")
    assert given_up.result() == 0, given_up.text()
    assert "Take a snapshot of the table" in given_up.text()
    assert parked(feed) == []
    feed.configure(transaction_rows=5)  # `accounts` is published before `bad`, in transactions of its own
    feed.write(40)
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.bad VALUES (901, 1, REPEAT('x', 30000))")
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "a part of its window is in Kafka already" in run.text()
    assert parked(feed) == []


def test_errors_of_no_table_and_of_the_last_table_stop_the_run(feed: Feed, marker: Path) -> None:
    write(feed)
    feed.settings["tables"] = {"include": [f"{feed.name}.bad"]}
    feed.configure()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "the pipeline has no other table" in run.text()
    del feed.settings["tables"]
    marker.unlink()
    feed.configure()
    by_statement = f"INSERT INTO `{feed.name}`.journal (text) VALUES ('s')"
    feed.mysql.execute("SET SESSION binlog_format = 'STATEMENT'", by_statement)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "a change in statement format" in run.text()
    assert parked(feed) == []


@pytest.mark.usefixtures("marker")
def test_parked_tables_are_shown_and_refuse_seeks_snapshots_and_stop(feed: Feed) -> None:
    write(feed)
    feed.run()
    status = feed.command("status", feed.name, "--json")
    (shown,) = json.loads(status.stdout)
    assert [each["table"] for each in shown["parked"]] == [f"{feed.name}.bad"]
    window = shown["window"]
    bad, file = f"{feed.name}.bad", feed.mysql.head().partition(":")[0]
    assert f"on: function 'fragile' failed in window {window}: " in output(feed, "status", feed.name)
    assert bad in output(feed, "check", feed.name)
    for refused in (
        ("seek", feed.name, "latest", "--why", "test"),
        ("snapshot", feed.name),
        ("backfill", feed.name, "--from-file", file, "--suffix", ""),
    ):
        assert f"{bad} is parked, so that changes are missing" in output(feed, *refused)
    feed.settings["tables"] = {"exclude": [bad]}
    feed.configure()
    assert "does not capture it any more" in output(feed, "unpark", feed.name)
    assert len(parked(feed)) == 1
    del feed.settings["tables"]
    feed.settings["on_table_error"] = "stop"
    feed.configure()
    feed.write(5)
    run = feed.begin()
    assert run.result() == 2
    assert "has `on_table_error: stop`" in run.text()


@pytest.mark.extended
def test_a_function_that_fails_on_two_tables_parks_none_and_two_functions_park_two(
    feed: Feed, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(feed.folder / "transforms"))
    bad, accounts = f"{feed.name}.bad", f"{feed.name}.accounts"
    of_accounts = {"tables": accounts, "function": "fragile", "arguments": {"marker": str(marker)}}
    feed.settings["transforms"].append(of_accounts)
    feed.configure()
    write(feed)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "is parked: changes from" in run.text(), "the first one, until the second one fails"
    assert "in the same window too, so the function is the cause" in run.text()
    assert parked(feed) == []

    other = marker.with_name("other-marker")
    other.touch()
    (feed.folder / "transforms" / "other.py").write_text(FUNCTION)
    of_accounts |= {"function": "other", "arguments": {"marker": str(other)}}
    feed.configure()
    feed.run()
    records = parked(feed)
    assert {record.table: record.function for record in records} == {bad: "fragile", accounts: "other"}
    marker.unlink()
    write(feed)
    failed = unpark(feed)  # accounts is the first
    assert failed.result() == 1, failed.text()
    assert f"{bad} is not parked any more" in failed.text()
    assert f"{accounts} stays parked" in failed.text()
    other.unlink()
    write(feed)
    feed.run()
    connections = connections_of(feed)
    returned = [record for record in records if record.table == bad]  # as a retry of Airflow's task asks for it
    (line,) = operations.unpark(None, connections, returned, skip=False)
    assert "returned already" in line
    assert unpark(feed).result() == 0
    ranges = operations.published_ranges(connections, records)
    assert {table for manifest in ranges for table in manifest.rows} == {bad, accounts}
    feed.run_until_current()
    feed.check()
    check_once(feed)


def test_a_window_that_another_run_published_meanwhile_parks_no_table(feed: Feed) -> None:
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.bad (id INT PRIMARY KEY, version INT NOT NULL, text LONGTEXT)")
    feed.settings["on_table_error"] = "park"
    feed.configure()
    for _ in range(2):  # no progress is left of the first window
        write(feed)
        feed.run()
    connections = connections_of(feed)
    latest, first = (manifest.window for manifest in windows(connections))
    error = BadRecordError("it failed. Before.").of_tables(f"{feed.name}.bad")
    for published in (first, latest):
        with pytest.raises(StaleCheckpointError, match="is sealed already"):
            park_tables(connections, published, error)
    after = replace(latest, number=latest.number + 1, start=latest.head)
    with pytest.raises(BadRecordError, match="does not capture"):
        park_tables(connections, after, BadRecordError("it failed").of_tables("other.table"))
    with pytest.raises(BadRecordError, match="has a dot"):  # it may be table `a.b` or table `b` of database `….a`
        park_tables(connections, after, BadRecordError("it failed").of_tables(f"{feed.name}.a.b"))
    assert parked(feed) == []


@pytest.mark.long
@pytest.mark.extended
def test_the_changes_of_a_parked_table_are_not_taken_from_another_binlog(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    with run_server(MysqlServer(tmp_path / "own", owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        marker = add_bad_table(feed)
        write(feed)
        feed.run()
        marker.unlink()
        server.execute("FLUSH BINARY LOGS")
        write(feed)
        feed.run()
        server.execute(f"PURGE BINARY LOGS TO '{server.head().partition(':')[0]}'")
        purged = unpark(feed)
        assert purged.result() == 1, purged.text()
        assert "is no longer on the server (oldest: " in purged.text()
        assert "--skip-changes" in purged.text()
        server.execute("RESET BINARY LOGS AND GTIDS", "FLUSH BINARY LOGS")
        for _ in range(3):
            write(feed)
        refused = unpark(feed)
        assert refused.result() == 1, refused.text()
        assert "--skip-changes" in refused.text()
        assert "reset" in refused.text().casefold()
        assert feed.records("bad") == []
        assert len(parked(feed)) == 1
        assert unpark(feed, "--skip-changes").result() == 0


@pytest.mark.extended
def test_ddl_of_a_parked_table_is_applied_when_it_returns(feed: Feed, marker: Path) -> None:
    feed.settings["format"] = {"name": "debezium", "skipped.operations": "none"}
    feed.configure(transaction_rows=10)
    write(feed)
    feed.run()
    bad = f"`{feed.name}`.bad"
    for statements in (
        (f"ALTER TABLE {bad} ADD COLUMN more INT DEFAULT 7 AFTER id", f"INSERT INTO {bad} VALUES (200, 8, 1, 'z')"),
        (f"ALTER TABLE {bad} DROP COLUMN text", f"TRUNCATE TABLE {bad}", f"INSERT INTO {bad} VALUES (201, 9, 1)"),
        (f"RENAME TABLE {bad} TO `{feed.name}`.moved", f"INSERT INTO `{feed.name}`.moved VALUES (202, 10, 1)"),
        (f"CREATE TABLE {bad} (id INT PRIMARY KEY, version INT NOT NULL)", f"INSERT INTO {bad} VALUES (1, 1), (2, 2)"),
        (f"ALTER TABLE `{feed.name}`.journal ADD COLUMN more INT", f"DELETE FROM {bad} WHERE id = 1"),
    ):
        feed.mysql.execute(*statements)
        feed.run()
    assert feed.records("bad") == []
    assert [json.loads(record.value)["after"]["id"] for record in feed.records("moved")] == [202]
    marker.unlink()
    killed = unpark(feed, fault="after_transaction_commit:2")
    assert killed.wait_until_held(), killed.text()
    killed.kill()
    assert unpark(feed).result() == 0
    feed.mysql.execute(f"INSERT INTO {bad} VALUES (3, 3)")
    feed.run()
    records = feed.records("bad")
    ids = event_ids([record for record in records if record.value is not None])
    assert len(ids) == len(set(ids))
    assert in_order([record for record in records if b'"op":"t"' not in (record.value or b"")])
    truncates = [record for record in records if b'"op":"t"' in (record.value or b"")]
    assert len(truncates) == 2, "one in each partition"
    afters = [json.loads(record.value)["after"] for record in records if record.value is not None]
    for row in ({"id": 200, "more": 8, "version": 1, "text": "z"}, {"id": 201, "more": 9, "version": 1},
                {"id": 3, "version": 3}):  # fmt: skip
        assert row in afters


@pytest.mark.extended
def test_unpark_on_spark_killed_twice_leaves_mariadbs_tables_equal(mariadb_feed: Feed) -> None:
    """The first kill is of a driver with its JVM and its Python workers."""
    feed = mariadb_feed
    marker = add_bad_table(feed)
    write(feed)
    feed.run()
    marker.unlink()
    for stage, begin in (("in_open_transaction:2", feed.begin_command), ("after_unpark_window", feed.fork_command)):
        killed = begin(stage, "unpark", feed.name)
        assert killed.wait_until_held(), killed.text()
        killed.kill()
        write(feed)
        feed.run()
        feed.check()
    last = feed.begin_command("", "unpark", feed.name)
    assert last.result() == 0, last.text()
    assert parked(feed) == []
    write(feed)
    feed.run()
    feed.check()
    check_once(feed)


@pytest.mark.long
@pytest.mark.extended
def test_a_snapshots_round_is_read_again_after_changes_were_skipped(feed: Feed, marker: Path) -> None:
    marker.unlink()
    feed.settings |= {"start": "latest"}
    feed.configure()
    write(feed)
    feed.run_until_current()
    snapshot = feed.fork_command(
        "after_decode", "snapshot", feed.name, "--run-id", "first", "--tables", f"{feed.name}.bad"
    )
    assert snapshot.wait_until_held(), snapshot.text()
    marker.touch()
    write(feed)
    feed.run()
    assert len(parked(feed)) == 1
    assert unpark(feed, "--skip-changes").result() == 0
    marker.unlink()
    snapshot.go_on()
    assert snapshot.result() == 0, snapshot.text()[-3000:]
    assert "the round is read again" in snapshot.text()
    write(feed)
    feed.run()
    records = feed.records("bad")
    rows = row_from_records(records)
    assert sorted(map(str, rows.values())) == sorted(map(str, select_rows(feed.mysql, feed.name, "bad").values()))
