"""Rows that are there already, with functions, as outbox messages and in Avro: as their changes are published."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.serialization import MessageField
from faults.existing_rows import begin, finish
from faults.feed import Feed
from faults.test_other_formats import OUTBOX, avro_reader
from faults.test_transforms import transformed
from integration.rebuilt import event_ids, records_of, selected

from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


def test_functions_get_rows_that_were_read_and_none_that_change_meanwhile(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    """A function makes two messages of a row: both are left out, or none."""
    feed.settings["start"] = "snapshot"
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
    wanted = selected(feed.mysql, feed.name, "accounts")
    for topic in ("accounts", "copies"):
        records = records_of(feed.kafka.bootstrap, f"{feed.name}.{topic}")
        assert len(set(event_ids(records))) == len(records) == len(wanted), "once: read, or changed"
        changes = [json.loads(record.value) for record in records]
        assert {change["op"] for change in changes} == {"r", "u"}
        assert all((change["op"] == "r") == bool(change["after"]["id"] % 2) for change in changes)
        assert sorted(str(change["after"]) for change in changes) == sorted(map(str, wanted.values()))
    even = records_of(feed.kafka.bootstrap, f"{feed.name}.even")
    journal = selected(feed.mysql, feed.name, "journal").values()
    assert len(even) == sum(len(row["text"]) % 2 == 0 for row in journal)


def test_outbox_rows_that_were_read_become_the_messages_that_they_become_when_they_are_written(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.settings |= {"start": "snapshot", "format": {"name": "debezium", "topic.prefix": feed.name}}
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


def test_rows_that_were_read_are_in_avro_as_their_changes_are(
    feed: Feed, schema_registry: SchemaRegistry, spark_connect: SparkConnectServer
) -> None:
    feed.connections["REGISTRY"] = schema_registry.url
    feed.settings["start"] = "snapshot"
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
    wanted = selected(feed.mysql, feed.name, "accounts").values()
    assert sorted(keys) == sorted(2 * [row["id"] for row in wanted])
    assert len(feed.records("journal")) == len(selected(feed.mysql, feed.name, "journal"))
