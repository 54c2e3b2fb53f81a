"""verify --deep finds the faults of records, and reports equal for everything that a pipeline publishes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from faults.existing_rows import finish
from faults.feed import Feed
from faults.test_verify import account, connections_of, copy_topic, event_position
from integration.topic_rows import records_of
from kafka.admin import NewPartitions
from run_verify import run_verify

from changefeed.spark.connect import connect_session
from changefeed.spark.target import SparkTarget
from changefeed.verify.report import VerifyReport, summary
from devstack.spark_connect import SparkConnectServer

Change = Callable[[list[Any]], list[Any]]


@pytest.fixture(scope="module")
def spark(spark_connect: SparkConnectServer) -> Iterator[SparkTarget]:
    with connect_session(spark_connect.url) as session:
        yield session


@pytest.fixture(params=["feed", "mariadb_feed"])
def any_feed(request: pytest.FixtureRequest) -> Feed:
    feed: Feed = request.getfixturevalue(request.param)
    return feed


def deep(feed: Feed, change: Change | None = None, table: str = "accounts", **asked: Any) -> VerifyReport:
    connections = connections_of(feed) if change is None else copy_topic(feed, table, change)
    return run_verify(connections, deep=True, **asked)


def with_fields(record: Any, **fields: Any) -> Any:
    value = json.loads(record.value)
    value.update(fields)
    return record._replace(value=json.dumps(value).encode())


def number_of(records: list[Any], op: str, *, last: bool = False) -> int:
    """The first or last record with the op whose key has earlier and later records."""
    keys = [record.key for record in records]
    found = [
        number
        for number, record in enumerate(records)
        if record.value is not None
        and json.loads(record.value)["op"] == op
        and record.key in keys[:number]
        and record.key in keys[number + 1 :]
    ]
    return found[-1 if last else 0]


def replace_record(number: int, record: Any, records: list[Any]) -> list[Any]:
    return [*records[:number], record, *records[number + 1 :]]


def forge_before(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    before = json.loads(records[number].value)["before"] | {"text": "forged"}
    return replace_record(number, with_fields(records[number], before=before), records)


def forge_op(records: list[Any]) -> list[Any]:
    """Replace an update by a create with matching images."""
    number = number_of(records, "u")
    return replace_record(number, with_fields(records[number], op="c", before=None), records)


def forge_read(records: list[Any]) -> list[Any]:
    """Replace an update by a row of a snapshot with matching images."""
    number = number_of(records, "u")
    return replace_record(number, with_fields(records[number], op="r", before=None), records)


def remove_tombstone(records: list[Any]) -> list[Any]:
    number = next(number for number, record in enumerate(records) if record.value is None)
    return [*records[:number], *records[number + 1 :]]


def lose_change(records: list[Any]) -> list[Any]:
    """Remove an update that a later one overwrites."""
    number = number_of(records, "u")
    return [*records[:number], *records[number + 1 :]]


def forge_source(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    source = json.loads(records[number].value)["source"]
    return replace_record(number, with_fields(records[number], source=source | {"pos": source["pos"] + 1}), records)


def remove_image(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    return replace_record(number, with_fields(records[number], before=None), records)


def move_to_other_partition(records: list[Any]) -> list[Any]:
    """Move all records of a key to the other partition."""
    key = records[number_of(records, "u")].key
    in_order = sorted(records, key=event_position)
    return [record._replace(partition=1 - record.partition) if record.key == key else record for record in in_order]


def repeat_under_new_id(records: list[Any]) -> list[Any]:
    """Repeat a change as a later one of its partition."""
    number = number_of(records, "u")
    record = records[number]
    other = next(each for each in records[number + 1 :] if each.partition == record.partition)
    (name, text), *more = record.headers
    position = int(dict(other.headers)["changefeed.id"].split(b":")[1].split(b"/")[0]) - 1
    assert name == "changefeed.id"
    file = text.split(b":")[0]
    copy = record._replace(headers=[(name, b"%s:%d/0" % (file, position)), *more])
    source = json.loads(copy.value)["source"] | {"pos": position}
    at = records.index(other)
    return [*records[:at], with_fields(copy, source=source), *records[at:]]


def copy_to_other_partition(records: list[Any]) -> list[Any]:
    record = max(records, key=lambda each: (event_position(each), each.offset))
    return [*records, record._replace(partition=1 - record.partition)]


DAMAGES = {
    forge_before: {"unchained": 1},
    forge_op: {"unchained": 1},
    forge_read: {"malformed": 1},
    remove_tombstone: {"unchained": 1},
    lose_change: {"unchained": 1},
    forge_source: {"malformed": 1},
    remove_image: {"malformed": 1},
    move_to_other_partition: {"misplaced": 0},
    repeat_under_new_id: {"unchained": 1},
}
"""Damages of records, and the faults that are reported for them; 0 for any number."""


def test_faults_of_records_with_correct_rows_are_named(any_feed: Feed, spark: SparkTarget) -> None:
    feed = any_feed
    feed.write(60)
    feed.run()
    report = deep(feed)
    assert report.outcome == "equal", summary(report)
    for number, (damage, expected) in enumerate(DAMAGES.items()):
        shallow = run_verify(copy_topic(feed, "accounts", damage))
        assert shallow.outcome == "equal", (damage, summary(shallow))
        report = run_verify(connections_of(feed), deep=True, **({} if number else {"spark": spark}))
        found = account(report, "accounts")
        faults = {kind: count if expected.get(kind) else 0 for kind, count in found.faults.items() if count}
        assert (report.outcome, faults) == ("differs", expected), (damage, summary(report))
        reasons = [reason for reason in found.reasons if "partition " in reason and "offset " in reason]
        assert reasons
        assert "forged" not in str(report.to_json())
    report = deep(feed, copy_to_other_partition)
    assert account(report, "accounts").faults["repeated"] == 1, summary(report)


@pytest.mark.extended
def test_all_that_a_pipeline_publishes_is_a_chain(any_feed: Feed) -> None:
    """Changed keys, DDL, truncates, partial images, masks, snapshots and a topic that got more partitions."""
    feed = any_feed
    feed.settings |= {
        "columns": {"mask": {f"{feed.name}.*.text": {"text": "***"}}},
        "topics": {"partitions": 2, "routes": [{"match": f"{feed.name}.flat", "format": "flat"}]},
    }
    feed.configure()
    feed.mysql.execute(
        "CREATE TABLE flat (id INT PRIMARY KEY, text VARCHAR(20))",
        "CREATE TABLE odd (id INT PRIMARY KEY, a DOUBLE, b JSON, c DECIMAL(9, 2), t TIMESTAMP(3) NULL, "
        "g VARCHAR(40) AS (CONCAT(a, '')) VIRTUAL)",
        "CREATE TABLE heap (a INT)",
        "INSERT INTO flat VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO odd (id, a, b, c, t) VALUES (1, -0e0, '{\"x\": [1.0, null]}', 1.5, '2026-01-02 03:04:05'), "
        "(2, 1e300, NULL, NULL, NULL), (3, 0.1, '1', 0, NULL)",
        "INSERT INTO heap VALUES (1), (1)",
        "UPDATE flat SET id = 3 WHERE id = 1",
        "UPDATE odd SET id = 4, b = '[]' WHERE id = 1",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE odd SET a = 2 WHERE id = 2",
        "UPDATE odd SET c = 3 WHERE id = 2",
        "SET SESSION binlog_row_image = 'NOBLOB'",
        "UPDATE odd SET c = 4 WHERE id = 4",
        "SET SESSION binlog_row_image = 'FULL'",
        "UPDATE odd SET a = 3 WHERE id = 4",
        "ALTER TABLE odd MODIFY c VARCHAR(20), ADD COLUMN more INT NOT NULL DEFAULT 5",
        "UPDATE odd SET a = 4",
        "DELETE FROM odd WHERE id = 3",
        "INSERT INTO odd (id) VALUES (3)",
        "TRUNCATE accounts",
        "INSERT INTO accounts VALUES (1, 1, 'x')",
        "TRUNCATE accounts",
        "INSERT INTO accounts VALUES (1, 1, 'y')",
        "DELETE FROM heap LIMIT 1",
        database=feed.name,
    )
    feed.write(20)
    feed.run()
    finish(feed, "--tables", f"{feed.name}.odd")
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    admin.create_partitions({f"{feed.name}.journal": NewPartitions(4)})
    feed.write(30)
    feed.mysql.execute("UPDATE odd SET a = 5", "UPDATE journal SET text = 'z'", database=feed.name)
    feed.run()
    report = deep(feed)
    faults = {table.name: table.faults for table in report.tables if table.faults.total()}
    assert faults == {}, summary(report)


@pytest.mark.extended
def test_chains_that_begin_later_are_named_and_no_difference(feed: Feed) -> None:
    feed.write(60)
    feed.run()
    connections = copy_topic(feed, "accounts", lambda records: records)
    topic = feed.settings["topics"]["template"].format(database=feed.name, table="accounts")
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    count = sum(record.partition == 0 for record in records_of(feed.kafka.bootstrap, topic))
    admin.delete_records({kafka.TopicPartition(topic, 0): count // 2})
    report = run_verify(connections, deep=True)
    assert report.outcome == "incomplete", summary(report)
    assert "begin later or have gaps" in " ".join(account(report, "accounts").notes)


@pytest.mark.extended
def test_the_command_looks_deep_and_names_key_and_offsets(feed: Feed) -> None:
    feed.write(60)
    feed.run()
    copy_topic(feed, "accounts", forge_before)
    if feed.runner.connect:
        feed.use_connect(feed.runner.connect)
    done = feed.command("verify", feed.name, "--deep")
    assert done.returncode == 4, done.stderr + done.stdout
    assert "its row before the change is not the one that the record at offset" in " ".join(done.stdout.split())


FORMATS: dict[str, Any] = {
    "event": "event",
    "flat": "flat",
    "flat_rewrite": {"name": "flat", "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
    "flat_op": {"name": "flat", "delete.tombstone.handling.mode": "rewrite", "add.fields": ["op"]},
    "maxwell": "maxwell",
    "cloudevents": "cloudevents",
    "fluvio": "fluvio",
    "schemas": {"name": "debezium", "schemas": True},
}


@pytest.mark.extended
def test_deep_verify_of_each_format_is_equal_and_finds_a_lost_delete(feed: Feed) -> None:
    feed.settings["topics"] = {
        "partitions": 2,
        "routes": [{"match": f"{feed.name}.in_{name}", "format": format} for name, format in FORMATS.items()],
    }
    feed.configure()
    for name in FORMATS:
        feed.mysql.execute(
            f"CREATE TABLE in_{name} (id INT PRIMARY KEY, text VARCHAR(20), number DECIMAL(5, 2))",
            f"INSERT INTO in_{name} VALUES (1, 'a', 9.5), (2, 'b', 10), (3, NULL, NULL)",
            f"UPDATE in_{name} SET number = 7.25",
            f"UPDATE in_{name} SET id = 20 WHERE id = 2",
            f"DELETE FROM in_{name} WHERE id = 3",
            f"INSERT INTO in_{name} VALUES (3, 'c', 1)",
            f"UPDATE in_{name} SET text = 'd'",
            database=feed.name,
        )
    feed.run()
    finish(feed)
    feed.mysql.execute(*(f"UPDATE in_{name} SET text = 'e'" for name in FORMATS), database=feed.name)
    feed.run()
    report = deep(feed)
    assert {table.name: dict(table.faults) for table in report.tables if table.faults.total()} == {}, summary(report)

    def lose_delete(records: list[Any]) -> list[Any]:
        return [each for each in records if json.loads(each.value)["__op"] != "d" or b'"id":3' not in each.key]

    routes = feed.settings["topics"]["routes"]
    copy_topic(feed, "in_flat_op", lose_delete)
    feed.settings["topics"]["routes"] = routes
    feed.configure()
    report = deep(feed)
    assert account(report, "in_flat_op").faults["unchained"] == 1, summary(report)
