"""verify --deep finds what of the records themselves is wrong, and says equal of all that a pipeline publishes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import kafka
import pytest
from faults.existing_rows import finish
from faults.feed import Feed
from faults.test_verify import account, connections_of, copied, event_position
from integration.rebuilt import records_of
from kafka.admin import NewPartitions
from verified import verified

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
    connections = connections_of(feed) if change is None else copied(feed, table, change)
    return verified(connections, deep=True, **asked)


def with_fields(record: Any, **fields: Any) -> Any:
    value = json.loads(record.value)
    value.update(fields)
    return record._replace(value=json.dumps(value).encode())


def number_of(records: list[Any], op: str, *, last: bool = False) -> int:
    """The first, or last, record of an op whose key has earlier and later ones."""
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


def replaced(number: int, record: Any, records: list[Any]) -> list[Any]:
    return [*records[:number], record, *records[number + 1 :]]


def before_forged(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    before = json.loads(records[number].value)["before"] | {"text": "forged"}
    return replaced(number, with_fields(records[number], before=before), records)


def op_forged(records: list[Any]) -> list[Any]:
    """An update as a create, with images to fit."""
    number = number_of(records, "u")
    return replaced(number, with_fields(records[number], op="c", before=None), records)


def without_tombstone(records: list[Any]) -> list[Any]:
    number = next(number for number, record in enumerate(records) if record.value is None)
    return [*records[:number], *records[number + 1 :]]


def change_lost(records: list[Any]) -> list[Any]:
    """An update that a later one makes good."""
    number = number_of(records, "u")
    return [*records[:number], *records[number + 1 :]]


def source_forged(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    source = json.loads(records[number].value)["source"]
    return replaced(number, with_fields(records[number], source=source | {"pos": source["pos"] + 1}), records)


def image_missing(records: list[Any]) -> list[Any]:
    number = number_of(records, "u")
    return replaced(number, with_fields(records[number], before=None), records)


def elsewhere(records: list[Any]) -> list[Any]:
    """One key in the other partition, from the first record to the last."""
    key = records[number_of(records, "u")].key
    in_order = sorted(records, key=event_position)
    return [record._replace(partition=1 - record.partition) if record.key == key else record for record in in_order]


def under_a_new_id(records: list[Any]) -> list[Any]:
    """A change that is there once more, as a later one of its partition."""
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


def in_both_partitions(records: list[Any]) -> list[Any]:
    record = max(records, key=lambda each: (event_position(each), each.offset))
    return [*records, record._replace(partition=1 - record.partition)]


DAMAGES = {
    before_forged: {"unchained": 1},
    op_forged: {"unchained": 1},
    without_tombstone: {"unchained": 1},
    change_lost: {"unchained": 1},
    source_forged: {"malformed": 1},
    image_missing: {"malformed": 1},
    elsewhere: {"misplaced": 0},
    under_a_new_id: {"unchained": 1},
}
"""What is wrong with records, and what of it is named; 0 for any number."""


def test_what_is_wrong_with_records_whose_rows_are_right_is_named(any_feed: Feed, spark: SparkTarget) -> None:
    feed = any_feed
    feed.write(60)
    feed.run()
    report = deep(feed)
    assert report.outcome == "equal", summary(report)
    for number, (damage, wanted) in enumerate(DAMAGES.items()):
        shallow = verified(copied(feed, "accounts", damage))
        assert shallow.outcome == "equal", (damage, summary(shallow))
        report = verified(connections_of(feed), deep=True, **({} if number else {"spark": spark}))
        found = account(report, "accounts")
        faults = {kind: count if wanted.get(kind) else 0 for kind, count in found.faults.items() if count}
        assert (report.outcome, faults) == ("differs", wanted), (damage, summary(report))
        reasons = [reason for reason in found.reasons if "partition " in reason and "offset " in reason]
        assert reasons
        assert "forged" not in str(report.to_json())
    report = deep(feed, in_both_partitions)
    assert account(report, "accounts").faults["repeated"] == 1, summary(report)


@pytest.mark.extended
def test_all_that_a_pipeline_publishes_is_a_chain(any_feed: Feed) -> None:
    """Changed keys, definitions, truncates, partial images, masks, snapshots and a topic that got more partitions."""
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
    connections = copied(feed, "accounts", lambda records: records)
    topic = feed.settings["topics"]["template"].format(database=feed.name, table="accounts")
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    count = sum(record.partition == 0 for record in records_of(feed.kafka.bootstrap, topic))
    admin.delete_records({kafka.TopicPartition(topic, 0): count // 2})
    report = verified(connections, deep=True)
    assert report.outcome == "incomplete", summary(report)
    assert "begin later, or have gaps" in " ".join(account(report, "accounts").notes)


@pytest.mark.extended
def test_the_command_looks_deep_and_names_key_and_offsets(feed: Feed) -> None:
    feed.write(60)
    feed.run()
    copied(feed, "accounts", before_forged)
    if feed.runner.connect:
        feed.use_connect(feed.runner.connect)
    done = feed.command("verify", feed.name, "--deep")
    assert done.returncode == 4, done.stderr + done.stdout
    assert "its row before the change is not the one that the record at offset" in " ".join(done.stdout.split())
