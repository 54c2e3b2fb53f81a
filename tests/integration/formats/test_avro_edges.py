"""What Avro cannot say is refused with its coordinates; dates that are none; the same bytes at each reading."""

from __future__ import annotations

import json

import pytest
from integration.binlog_of import binlog_of
from integration.formats.test_avro_values import NumberedSchemas

from changefeed.errors import BinlogFormatError
from changefeed.formats.avro import AvroFormat
from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.kafka.schema_registry.subjects import Subjects
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry

NO_MODE = "SET sql_mode = '', time_zone = '+00:00'"


def test_row_without_some_columns_fails_with_coordinates_and_setting(
    full_mysql_server: MysqlServer, database: str
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        database,
        "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)",
        "INSERT INTO t VALUES (1, 'a')",
        "SET SESSION binlog_row_image = MINIMAL",
        "UPDATE t SET note = 'b'",
    )
    with pytest.raises(BinlogFormatError, match=rf"{binlog.name}:\d+, UPDATE_ROWS.*binlog_row_image = FULL"):
        binlog.messages(AvroFormat("t", 0, NumberedSchemas()))


def test_a_date_that_is_none_is_null_and_1970_where_its_column_must_have_a_value(
    full_mysql_server: MysqlServer, database: str
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        database,
        NO_MODE,
        "CREATE TABLE t (id INT PRIMARY KEY, d DATE, d2 DATE NOT NULL, s DATETIME(6), s2 DATETIME(3) NOT NULL, "
        "u TIMESTAMP NULL, u2 TIMESTAMP(3) NOT NULL)",
        "INSERT INTO t VALUES (1, '0000-00-00', '0000-00-00', '2026-00-00', '2026-01-00', '0000-00-00', '0000-00-00')",
    )
    ids = NumberedSchemas()
    (message,) = binlog.messages(AvroFormat("t", 0, ids))
    assert message.value is not None
    assert ids.read(message.value)["after"] == {
        "id": 1, "d": None, "d2": 0, "s": None, "s2": 0, "u": None, "u2": "1970-01-01T00:00:00Z",
    }  # fmt: skip


def test_numbers_at_their_ends_and_texts_at_the_lengths_where_a_varint_grows(
    full_mysql_server: MysqlServer, database: str
) -> None:
    lengths = (0, 1, 63, 64, 65, 8191, 8192, 8193)
    texts = [
        f"INSERT INTO t (id, a, b, c) SELECT {n}, REPEAT('x', {n}), REPEAT('é', {n}), JSON_QUOTE(REPEAT('y', {n}))"
        for n in lengths
    ]
    ends = [-(2**63), -(2**62) - 1, -65, -64, -1, 0, 63, 64, 2**62, 2**63 - 1]
    numbers = [f"INSERT INTO t (id, n, u) VALUES ({100_000 + i}, {n}, {n % 2**64})" for i, n in enumerate(ends)]
    binlog = binlog_of(
        full_mysql_server,
        database,
        "CREATE TABLE t (id INT PRIMARY KEY, a TEXT, b TEXT CHARACTER SET latin1, c JSON, n BIGINT, u BIGINT UNSIGNED)",
        *texts,
        *numbers,
    )
    ids = NumberedSchemas()
    rows = [ids.read(message.value or b"")["after"] for message in binlog.messages(AvroFormat("t", 0, ids))]
    for row, length in zip(rows, lengths, strict=False):
        assert (row["a"], row["b"], row["c"]) == ("x" * length, "é" * length, '"' + "y" * length + '"')
    assert [row["n"] for row in rows[len(lengths) :]] == ends
    assert [row["u"] for row in rows[len(lengths) :]] == ends, "as Debezium has them: over 2**63 - 1 negative"


def test_debezium_s_modes_choose_the_types(full_mysql_server: MysqlServer, database: str) -> None:
    binlog = binlog_of(
        full_mysql_server,
        database,
        "SET binlog_rows_query_log_events = ON",
        "CREATE TABLE t (id INT PRIMARY KEY, a DECIMAL(5,2), b DATETIME(3))",
        "INSERT INTO t VALUES (1, -1.5, '1970-01-01 00:00:01.5')",
    )
    ids = NumberedSchemas()
    options = {"decimal.handling.mode": "string", "time.precision.mode": "microseconds", "include.query": "true"}
    settings = FormatSettings("t", 0, schema_ids=ids, options={**options, "topic.prefix": "srv"})
    (message,) = binlog.messages(format_of("avro", settings))
    record = ids.read(message.value or b"")
    assert record["after"] == {"id": 1, "a": "-1.50", "b": 1_500_000}
    assert record["source"]["name"] == "srv"
    assert record["source"]["query"].startswith("INSERT INTO t")
    schemas = list(map(json.loads, ids.known))
    assert [schema["name"] for schema in schemas] == ["Key", "Envelope"]
    assert {schema["namespace"] for schema in schemas} == {f"srv.{database}.t"}


def test_retry_of_a_window_with_an_alter_makes_the_same_bytes(
    full_mysql_server: MysqlServer, database: str, schema_registry: SchemaRegistry
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        database,
        "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t ADD COLUMN b INT",
        "INSERT INTO t VALUES (2, 2, 2)",
        "ALTER TABLE t DROP COLUMN b",
        "INSERT INTO t VALUES (3, 3)",
    )
    registry = Registry(RegistryConnection.from_uri(schema_registry.url))

    def values() -> list[bytes | None]:
        ids = Subjects(registry, lambda database, table: f"{database}.{table}", "statements")
        return [message.value for message in binlog.messages(AvroFormat("t", 0, ids))]

    first = values()
    registry._ask("POST", f"subjects/{database}.other-value/versions", {"schema": '"int"'})
    assert values() == first
    schemas = [int.from_bytes((value or b"")[1:5], "big") for value in first]
    assert schemas[0] == schemas[2] != schemas[1]
