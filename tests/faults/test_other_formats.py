"""Avro, Debezium with schemas, outbox rows: in runs that are killed each message once, as a run left alone has it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from both_settings import on_both_settings
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from faults.feed import NOTHING_NEW, TABLES, Feed
from faults.proxy import Proxy
from integration.topic_rows import event_ids, records_of
from long_form import long

from devstack.identity import ProcessId
from devstack.process import run_server
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

STAGES = ["after_transaction_commit:2", *long("in_open_transaction:2", "before_seal")]
OUTBOX = """CREATE TABLE `{}`.outbox (
  id INT AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(50), aggregateid VARCHAR(50), type VARCHAR(50), payload JSON
)"""

Read = Callable[[str, MessageField, bytes | None], Any]
"""(topic, key or value, bytes) -> what they say."""


def as_json(_topic: str, _field: MessageField, data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def avro_reader(url: str) -> Read:
    read = AvroDeserializer(SchemaRegistryClient({"url": url}))
    return lambda topic, field, data: None if data is None else read(data, SerializationContext(topic, field))


def messages(feed: Feed, topics: tuple[str, ...], read: Read, prefix: str = "") -> dict[tuple[str, int], list[Any]]:
    """Key, value and headers by topic and partition, without the time at which the window was frozen."""
    found: dict[tuple[str, int], list[Any]] = {}
    for name in topics:
        topic = f"{prefix}{feed.name}.{name}"
        records = records_of(feed.kafka.bootstrap, topic)
        twice = [event for event, count in Counter(event_ids(records)).items() if count > 1]
        assert not twice, f"{topic}: published twice: {twice[:5]}"
        for record in records:
            value = read(topic, MessageField.VALUE, record.value)
            for time_of_window in ("ts_ms", "ts_us", "ts_ns"):
                envelope = value.get("payload", value) if isinstance(value, dict) else {}
                envelope.pop(time_of_window, None)
            message = (read(topic, MessageField.KEY, record.key), value, record.headers)
            found.setdefault((name, record.partition), []).append(message)
    return found


def undisturbed(
    feed: Feed, topics: tuple[str, ...], read: Read, *, spark: bool = False
) -> dict[tuple[str, int], list[Any]]:
    """What another pipeline makes of the same binlog in one run."""
    settings = {
        **feed.settings,
        "name": f"{feed.name}_other",
        "topics": {"partitions": 2, "template": "undisturbed.{database}.{table}"},
    }
    if "outbox" in settings:
        topic = f"undisturbed.{settings['outbox']['route.topic.replacement']}"
        settings["outbox"] = {**settings["outbox"], "route.topic.replacement": topic}
    other = copy(feed)
    other.settings = settings
    other.name = f"{feed.name}_other"
    other.settings["tables"] = {"include": [f"{feed.name}.*"]}
    other.configure()
    other.run(spark=spark)
    return messages(feed, topics, read, "undisturbed.")


def killed_and_retried(feed: Feed, stage: str, topics: tuple[str, ...], read: Read) -> None:
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.run()
    assert feed.begin().result() == NOTHING_NEW
    found = messages(feed, topics, read)
    assert sum(map(len, found.values())) > 60
    assert found == undisturbed(feed, topics, read)


@pytest.fixture
def registry_port(schema_registry: SchemaRegistry) -> Iterator[Proxy]:
    proxy = Proxy(schema_registry.port)
    yield proxy
    proxy.close()


@pytest.fixture
def avro(feed: Feed, registry_port: Proxy) -> Feed:
    feed.connections["REGISTRY"] = f"http://127.0.0.1:{registry_port.port}"
    feed.settings["format"] = {"name": "avro", "registry": "registry", "topic.prefix": feed.name}
    feed.configure(transaction_rows=10)
    return feed


@on_both_settings
@pytest.mark.parametrize("stage", STAGES)
def test_avro_killed_and_retried_is_as_undisturbed(avro: Feed, schema_registry: SchemaRegistry, stage: str) -> None:
    avro.write(20)
    avro.mysql.execute(f"ALTER TABLE `{avro.name}`.accounts ADD COLUMN more INT")
    avro.mysql.execute(*(f"INSERT INTO `{avro.name}`.accounts VALUES ({key}, 1, 'x', 5)" for key in range(100, 120)))
    avro.mysql.execute(*(f"INSERT INTO `{avro.name}`.journal (text) VALUES ('{key}')" for key in range(30)))
    killed_and_retried(avro, stage, TABLES, avro_reader(schema_registry.url))


@pytest.mark.parametrize("stage", STAGES)
def test_debezium_with_schemas_killed_and_retried_is_as_undisturbed(feed: Feed, stage: str) -> None:
    feed.settings["format"] = {"name": "debezium", "schemas": True, "topic.prefix": feed.name}
    feed.configure(transaction_rows=10)
    feed.write(60)
    killed_and_retried(feed, stage, TABLES, as_json)


@on_both_settings
@pytest.mark.parametrize("stage", STAGES)
def test_outbox_rows_killed_and_retried_are_as_undisturbed(feed: Feed, stage: str) -> None:
    outbox(feed)
    killed_and_retried(feed, stage, ("even", "odd", "journal"), as_json)


def outbox(feed: Feed) -> None:
    feed.settings["format"] = {"name": "debezium", "topic.prefix": feed.name}
    feed.settings["outbox"] = {
        "tables": [f"{feed.name}.outbox"],
        "route.topic.replacement": f"{feed.name}.${{routedByValue}}",
        "table.fields.additional.placement": "type:header:kind",
    }
    feed.configure(transaction_rows=10)
    feed.mysql.execute(OUTBOX.format(feed.name))
    write_outbox(feed, 0, 80)


def write_outbox(feed: Feed, first: int, last: int) -> None:
    statements = []
    for number in range(first, last):
        values = f"'{'odd' if number % 2 else 'even'}', '{number % 7}', 'Made', '{{\"number\": {number}}}'"
        statements += [
            "BEGIN",
            f"INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ({values})",
            f"INSERT INTO journal (text) VALUES ('{number}')",
            "DELETE FROM outbox",
            "COMMIT",
        ]
    feed.mysql.execute(*statements, database=feed.name)  # one connection: each costs as much as a run


def test_avro_of_many_slices_on_spark_is_finished_after_a_kill(
    avro: Feed, schema_registry: SchemaRegistry, spark_connect: SparkConnectServer
) -> None:
    for _ in range(3):
        avro.write(30)
        avro.mysql.execute("FLUSH BINARY LOGS")
    run = avro.begin("after_transaction_commit:3", spark=True)
    assert run.wait_until_held(400), run.text()
    run.kill()
    avro.settings["spark"] = {"connect": spark_connect.url}
    avro.configure(transaction_rows=10)
    avro.run(spark=True)
    read = avro_reader(schema_registry.url)
    assert messages(avro, TABLES, read) == undisturbed(avro, TABLES, read, spark=True)


def test_a_registry_that_is_away_at_the_retry_fails_it_until_it_is_back(
    avro: Feed, schema_registry: SchemaRegistry, registry_port: Proxy
) -> None:
    avro.write(60)
    run = avro.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    registry_port.cut()
    before = {table: len(avro.records(table)) for table in TABLES}
    run = avro.begin()
    assert run.result() == 1, run.text()
    assert "RegistryUnavailableError" in run.text()
    assert {table: len(avro.records(table)) for table in TABLES} == before
    registry_port.mend()
    avro.run()
    read = avro_reader(schema_registry.url)
    assert messages(avro, TABLES, read) == undisturbed(avro, TABLES, read)


@pytest.mark.long
def test_a_registry_that_is_slow_at_the_retry_is_waited_for(avro: Feed, tmp_path: Path) -> None:
    with run_server(SchemaRegistry(tmp_path / "slow", owner=ProcessId.own())) as slow:
        avro.connections["REGISTRY"] = slow.url
        avro.write(60)
        run = avro.begin("after_transaction_commit:2")
        assert run.wait_until_held(), run.text()
        run.kill()
        assert slow.pid is not None
        os.kill(slow.pid, signal.SIGSTOP)
        try:
            run = avro.begin()
            time.sleep(2)
            assert run.process.poll() is None, run.text()
        finally:
            os.kill(slow.pid, signal.SIGCONT)
        assert run.result() == 0, run.text()
        read = avro_reader(slow.url)
        assert messages(avro, TABLES, read) == undisturbed(avro, TABLES, read)


def test_a_window_is_not_finished_by_a_registry_that_gives_other_ids(
    avro: Feed, schema_registry: SchemaRegistry, registry_port: Proxy, tmp_path: Path
) -> None:
    avro.write(10)
    avro.run()  # its schemas have their ids
    avro.write(60)
    run = avro.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    before = {table: len(avro.records(table)) for table in TABLES}
    with run_server(SchemaRegistry(tmp_path / "another", owner=ProcessId.own())) as another:
        for number in range(20):
            name = f"{avro.name}_{number}"
            text = json.dumps({"type": "record", "name": name, "fields": []})
            SchemaRegistryClient({"url": another.url}).register_schema(name, Schema(text, "AVRO"))
        registry_port.lead_to(another.port)
        run = avro.begin()
        assert run.result() == 2, run.text()
        assert "RegistryError" in run.text()
        assert f"'{avro.name}.accounts-key'" in run.text()
        assert {table: len(avro.records(table)) for table in TABLES} == before
    registry_port.lead_to(schema_registry.port)
    avro.run()
    read = avro_reader(schema_registry.url)
    assert messages(avro, TABLES, read) == undisturbed(avro, TABLES, read)
