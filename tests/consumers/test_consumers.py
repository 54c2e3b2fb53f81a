"""A sample of `make test-consumers`: a JDBC sink and Confluent's AvroDeserializer end with the rows of the source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from consumers.pipelines import PIPELINES
from consumers.sinks import UNWRAPPED, Sinks, Target, has_value, sinks
from consumers.source import TABLES, Source

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def source(
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    schema_registry: SchemaRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Source]:
    pipelines = {name: PIPELINES[name] for name in ("connect", "avro")}
    folder = tmp_path_factory.mktemp("source")
    made = Source("consumed", mysql_server, kafka_broker, folder, pipelines, schema_registry)
    yield made
    mysql_server.execute("DROP DATABASE consumed")


@pytest.fixture(scope="module")
def connect(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sinks]:
    with sinks(tmp_path_factory.mktemp("connect"), kafka_broker) as worker:
        yield worker


def test_jdbc_sink_into_mariadb_ends_with_the_rows_of_the_source(
    source: Source, connect: Sinks, mariadb_server: MariadbServer
) -> None:
    target = Target(mariadb_server, "consumed_sink")
    tables = [table for table in TABLES if table != "labels"]  # its CREATE TABLE has each label with a backslash
    connect.sink("maria", target, source.pipelines["connect"], tables)
    for table in tables:
        source.check(table, target.rows(table))


def test_extract_new_record_state_before_a_sink_ends_with_the_rows_of_the_source(
    source: Source, connect: Sinks, mariadb_server: MariadbServer
) -> None:
    target = Target(mariadb_server, "consumed_flat")
    tables = ["kinds", "pairs"]
    for table in tables:
        settings = {**UNWRAPPED, "collection.name.format": table}
        connect.sink(f"flat-{table}", target, source.pipelines["connect"], [table], settings, taken=has_value)
        source.check(table, target.rows(table))


def test_avro_deserializer_rebuilds_the_rows_of_the_source(source: Source, schema_registry: SchemaRegistry) -> None:
    pipeline = source.pipelines["avro"]
    read = AvroDeserializer(SchemaRegistryClient({"url": schema_registry.url}))
    for table in TABLES:
        rows: dict[str, dict[str, Any]] = {}
        for record in pipeline.records(table):
            key = read(record.key, SerializationContext(record.topic, MessageField.KEY))
            if record.value is None:
                rows.pop(repr(key), None)
                continue
            change = read(record.value, SerializationContext(record.topic, MessageField.VALUE))
            if change["op"] == "t":
                rows.clear()
            elif change["after"] is None:
                del rows[repr(key)]
            else:
                rows[repr(key)] = change["after"]
        names = {name: re.sub("[^A-Za-z0-9_]", "_", name) for name in source.columns(table)}
        types = source.columns(table)
        found = [{name: _read(types[name], row[theirs]) for name, theirs in names.items()} for row in rows.values()]
        source.check(table, found, lowest_first=True)


def _read(type_: str, value: Any) -> Any:
    """``value`` as the names of its schema say (`io.debezium.time.Date`, …), which Avro itself does not know."""
    word, digits = type_.split("(")[0], re.search(r"\((\d)\)", type_)
    if value is None or word not in ("date", "time", "datetime"):
        return value
    if word == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if word == "time":
        return timedelta(microseconds=value)
    return datetime(1970, 1, 1) + timedelta(microseconds=value if digits and int(digits[1]) > 3 else value * 1000)
