"""Consumers that are not ours, over topics of a MySQL and of a MariaDB: each ends with the rows of the source.

`make test-consumers` runs it, beside the sample in `test_consumers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from consumers.flink import DEBEZIUM, MAXWELL, Flink, FlinkFormat
from consumers.pipelines import PIPELINES
from consumers.sinks import OUTBOX_EVENTS, UNWRAPPED, Sinks, Target, has_value, is_insert, sinks
from consumers.source import EMPTIED, EVENTS, OUTBOX, TABLES, Source
from consumers.spark_reader import spark_reader

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.postgresql import PostgresqlServer
from devstack.process import run_server
from devstack.schema_registry import SchemaRegistry
from devstack.sql_server import SqlServer

ROWS = tuple(table for table in TABLES if table != EMPTIED)
"""Without the table of which a consumer has to take a TRUNCATE."""


@pytest.fixture(scope="module", params=["mysql", "mariadb"])
def source(
    request: pytest.FixtureRequest,
    kafka_broker: KafkaBroker,
    schema_registry: SchemaRegistry,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Source]:
    server: SqlServer = request.getfixturevalue(f"{request.param}_server")
    name = f"foreign_{request.param}"
    made = Source(name, server, kafka_broker, tmp_path_factory.mktemp("source"), PIPELINES, schema_registry)
    yield made
    server.execute(f"DROP DATABASE {name}")


@pytest.fixture(scope="module")
def connect(kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sinks]:
    with sinks(tmp_path_factory.mktemp("connect"), kafka_broker) as worker:
        yield worker


@pytest.fixture(scope="module")
def postgresql(session_folder: Path) -> Iterator[PostgresqlServer]:
    with run_server(PostgresqlServer(session_folder / "postgresql", owner=ProcessId.own())) as server:
        yield server


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_jdbc_sink_ends_with_the_rows_of_the_source(
    source: Source, connect: Sinks, postgresql: PostgresqlServer, mariadb_server: MariadbServer, kind: str
) -> None:
    target = Target(postgresql if kind == "postgresql" else mariadb_server, f"{source.name}_sink")
    # The sink's CREATE TABLE for MariaDB has labels with a comma or a quote in them as they are.
    tables = [table for table in TABLES if kind == "postgresql" or table != "labels"]
    connect.sink(f"{source.name}-{kind}", target, source.pipelines["connect"], tables)
    for table in tables:
        source.check(table, target.rows(table))


def test_extract_new_record_state_ends_with_the_rows_of_the_source(
    source: Source, connect: Sinks, postgresql: PostgresqlServer
) -> None:
    target = Target(postgresql, f"{source.name}_flat")
    for number, table in enumerate(ROWS):
        settings = {**UNWRAPPED, "collection.name.format": table}
        connect.sink(
            f"{source.name}-flat-{number}", target, source.pipelines["connect"], [table], settings, taken=has_value
        )
        source.check(table, target.rows(table))


def test_event_router_writes_the_payloads_of_the_outbox(
    source: Source, connect: Sinks, postgresql: PostgresqlServer
) -> None:
    target = Target(postgresql, f"{source.name}_outbox")
    connect.sink(f"{source.name}-outbox", target, source.pipelines["connect"], [OUTBOX], OUTBOX_EVENTS, taken=is_insert)
    found = sorted(tuple(row[name] for name in ("id", "total", "who")) for row in target.rows("order_events"))
    assert found == [tuple(map(str, event.payload.values())) for event in EVENTS]


@pytest.fixture(scope="module")
def flink() -> Iterator[Flink]:
    with Flink() as started_flink:
        yield started_flink


@pytest.mark.parametrize(("name", "format"), [("debezium", DEBEZIUM), ("maxwell", MAXWELL)])
def test_flink_ends_with_the_rows_of_the_source(source: Source, flink: Flink, name: str, format: FlinkFormat) -> None:
    pipeline = source.pipelines[name]
    for table in ROWS:
        types = source.columns(table)
        rows = flink.table(pipeline.kafka, pipeline.topic(table), types, source.key(table), format)
        if format is MAXWELL and types.get("json_") == "json":
            rows = [{**row, "json_": _document(row["json_"])} for row in rows]
        source.check(table, rows, lowest_first=True)


def _document(text: str | None) -> str | None:
    """Maxwell has documents themselves in place of their text, and Flink strings among them without their quotes."""
    return text if text is None or text.startswith(("{", "[")) else json.dumps(text)


def test_spark_ends_with_the_rows_of_the_source(source: Source) -> None:
    pipeline = source.pipelines["flat"]
    with spark_reader() as spark:
        for table in ROWS:
            rows: list[dict[str, Any]] = spark.table(pipeline.kafka, pipeline.topic(table), source.columns(table))
            source.check(table, rows, lowest_first=True)
