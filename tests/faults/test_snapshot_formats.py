"""Existing rows with functions, as outbox messages and in Avro: published in the same way as their changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.serialization import MessageField
from faults.existing_rows import begin, finish
from faults.feed import Feed
from faults.inline_spark import InlineSpark
from faults.test_other_formats import OUTBOX, avro_reader
from faults.test_transforms import transformed
from integration.topic_rows import event_ids, records_of, select_rows

from changefeed.ingest.window_run import ingest
from changefeed.operations.backfill import plan_backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import Archive
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


def test_functions_get_rows_of_a_snapshot_but_none_that_change_meanwhile(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    """A function makes two messages of a row: both are left out, or none."""
    feed.settings["start"] = "latest"
    transformed(feed)
    feed.write(60)
    feed.run_until_current()
    feed.use_connect(spark_connect.url)
    run = begin(feed, fault="after_decode")
    assert run.wait_until_held(), run.text()
    feed.mysql.execute(f"UPDATE `{feed.name}`.accounts SET version = version + 1 WHERE id MOD 2 = 0")
    run.go_on()
    assert run.result() == 0, run.text()
    feed.run_until_current()
    expected = select_rows(feed.mysql, feed.name, "accounts")
    for topic in ("accounts", "copies"):
        records = records_of(feed.kafka.bootstrap, f"{feed.name}.{topic}")
        assert len(set(event_ids(records))) == len(records) == len(expected), "once: read, or changed"
        changes = [json.loads(record.value) for record in records]
        assert {change["op"] for change in changes} == {"r", "u"}
        assert all((change["op"] == "r") == bool(change["after"]["id"] % 2) for change in changes)
        assert sorted(str(change["after"]) for change in changes) == sorted(map(str, expected.values()))
    even = records_of(feed.kafka.bootstrap, f"{feed.name}.even")
    journal = select_rows(feed.mysql, feed.name, "journal").values()
    assert len(even) == sum(len(row["text"]) % 2 == 0 for row in journal)


def test_outbox_rows_of_a_snapshot_become_the_same_messages_as_inserted_rows(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.settings |= {"start": "latest", "format": {"name": "debezium", "topic.prefix": feed.name}}
    feed.settings["outbox"] = {"tables": [f"{feed.name}.outbox"], "route.topic.replacement": f"{feed.name}.made"}
    feed.configure()
    insert = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES "
    values = [f"('even', '{number % 7}', 'Made', JSON_OBJECT('number', {number}))" for number in range(40)]
    feed.mysql.execute(OUTBOX.format(feed.name), insert + ", ".join(values), database=feed.name)
    feed.run_until_current()
    feed.use_connect(spark_connect.url)
    run = begin(feed, fault="after_decode")
    assert run.wait_until_held(), run.text()
    feed.mysql.execute(f"DELETE FROM `{feed.name}`.outbox WHERE id < 10")  # as who writes an outbox does, some time
    run.go_on()
    assert run.result() == 0, run.text()
    before = records_of(feed.kafka.bootstrap, f"{feed.name}.made")
    assert sorted(json.loads(record.value)["number"] for record in before) == list(range(40))
    feed.mysql.execute("DELETE FROM outbox", insert + ", ".join(values), database=feed.name)
    feed.run_until_current()
    after = records_of(feed.kafka.bootstrap, f"{feed.name}.made")
    assert sorted((each.key, each.value) for each in after) == sorted(2 * [(each.key, each.value) for each in before])


def test_rows_of_a_snapshot_are_in_avro_as_their_changes_are(
    feed: Feed, schema_registry: SchemaRegistry, spark_connect: SparkConnectServer
) -> None:
    feed.connections["REGISTRY"] = schema_registry.url
    feed.settings["start"] = "latest"
    feed.settings["format"] = {"name": "avro", "registry": "registry", "topic.prefix": feed.name}
    feed.configure()
    feed.write(60)
    feed.run_until_current()
    feed.use_connect(spark_connect.url)
    finish(feed)
    feed.mysql.execute(f"UPDATE `{feed.name}`.accounts SET version = version + 1")
    feed.run_until_current()
    read, topic = avro_reader(schema_registry.url), f"{feed.name}.accounts"
    records = feed.records("accounts")
    changes = [read(topic, MessageField.VALUE, record.value) for record in records]
    keys = [read(topic, MessageField.KEY, record.key)["id"] for record in records]
    rows = [change["after"] for change in changes if change["op"] == "r"]
    assert rows == [change["before"] for change in changes if change["op"] == "u"]
    expected = select_rows(feed.mysql, feed.name, "accounts").values()
    assert sorted(keys) == sorted(2 * [row["id"] for row in expected])
    assert len(feed.records("journal")) == len(select_rows(feed.mysql, feed.name, "journal"))


MEMBER = "def transform(change, copies):\n    change.ext = change.rows[0]['id']\n    return change\n"
LIKE_ROWS = '"rows":['
"""The text before the rows in records that have all rows of an event."""


@pytest.mark.parametrize("format", ["debezium", "event", "fluvio"])
def test_rows_of_snapshots_and_backfills_have_members_of_functions(
    feed: Feed, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = feed.settings["start"].partition(":")[0]
    feed.settings |= {"start": "latest", "format": format, "topics": {"partitions": 1}}
    transformed(feed, MEMBER)
    columns = f"id INT, `{LIKE_ROWS}` VARCHAR(30), doc JSON, PRIMARY KEY (id, `{LIKE_ROWS}`)"
    document = json.dumps({LIKE_ROWS: [[LIKE_ROWS + "]}"]], "rows": [{"rows": []}]})
    rows = ", ".join(f"({number}, '{LIKE_ROWS}{number}]}}', '{document}')" for number in range(20))
    rows = rows.replace("\\", "\\\\")  # as MySQL spells a backslash
    feed.mysql.execute(f"CREATE TABLE hostile ({columns})", f"INSERT INTO hostile VALUES {rows}", database=feed.name)
    feed.run_until_current()
    finish(feed)
    assert _members(feed, "hostile", format) == list(range(20)), "rows that were read"

    environment = feed.env()
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", environment["CHANGEFEED_TRANSFORMS"])
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    request = BackfillRequest(pipeline=feed.name, from_file=file)

    def lookup(connection_id: str) -> str:
        return environment[f"AIRFLOW_CONN_{connection_id.upper()}"]

    planned = plan_backfill(PipelineConnections(pipeline, lookup), request, archive_of=Archive)
    replayed = PipelineConnections(backfill_pipeline(pipeline, request), lookup)
    ingest(InlineSpark(), replayed, planned.window, identity=f"{feed.name}.backfill.1")
    assert _members(feed, "hostile.replay", format) == list(range(20)), "rows of the backfill"


def _members(feed: Feed, topic: str, format: str) -> list[int]:
    """`ext` of each row of a topic, beside the rows' own values."""
    found = []
    for value in (json.loads(record.value) for record in feed.records(topic)):
        if format == "debezium":
            found.append(value["ext"])
        elif "query" not in value and "Query" not in value.get("operation", ()):
            rows = value["rows"] if format == "event" else next(iter(value["operation"].values()))["rows"]
            found += [row["ext"] for row in rows]
    return sorted(found)
