"""Avro records of random tables over all column types: fastavro reads what SELECT says, the kernel writes what plain
Python writes."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from integration.random_tables import RandomTable, random_table

from changefeed.binlog.decoder import KernelDecoder
from changefeed.ddl.names import TableName
from changefeed.ddl.table import Table
from changefeed.formats import render
from changefeed.formats.avro import AvroFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.format import FormatSettings, RowFormat
from changefeed.formats.schema_ids import LocalIds
from changefeed.formats.style import Encoding, Kind
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

TABLES = int(os.environ.get("CHANGEFEED_RANDOM_TABLES", "60")) // 3
SEED = os.environ.get("CHANGEFEED_RANDOM_SEED", "changefeed")
ROWS = 8
MODES: tuple[dict[str, object], ...] = (
    {},
    {"bigint.unsigned.handling.mode": "precise", "binary.handling.mode": "hex"},
    {"bigint.unsigned.handling.mode": "precise", "binary.handling.mode": "base64"},
)
_BLOBS = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")


class NumberedSchemas(LocalIds):
    """Gives each schema the next number."""

    def __init__(self) -> None:
        self.known: list[str] = []

    def of_table(self, table: TableSchema, part: str, schema: str, *_: object) -> int:  # noqa: ARG002 - the protocol's
        if schema not in self.known:
            self.known.append(schema)
        return self.known.index(schema)

    def read(self, framed: bytes) -> Any:
        """The record in Confluent's framing, by its schema; nothing may be left of it."""
        assert framed[0] == 0
        schema = fastavro.parse_schema(json.loads(self.known[int.from_bytes(framed[1:5], "big")]))
        body = io.BytesIO(framed[5:])
        record = fastavro.schemaless_reader(body, schema)
        assert body.read() == b""
        return record


def decoded(data: bytes, file: str, format: RowFormat, schemas: dict[TableName, Table]) -> tuple[list[Message], Any]:
    """All messages, in binlog order, and the decoder that made them."""

    def lookup(database: str, table: str) -> TableSchema:
        return schemas[TableName(database, table)].schema

    decoder = KernelDecoder(lambda _database, _table: Route("all", 1), lookup, format, "uuid")
    blocks = decoder.decode([memoryview(data)[FIRST_POSITION:]], Slice(0, file, FIRST_POSITION, len(data)))
    return [message for block in blocks if isinstance(block, MessageBlock) for message in block.messages()], decoder


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_records_of_random_tables_equal_select_and_plain_python(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    rng = random.Random(f"{SEED}:{kind}")
    tables = [random_table(rng, unique_name, f"t{n}", isinstance(server, MariadbServer)) for n in range(TABLES)]
    inserted = {}
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE DATABASE {unique_name}")
        for table in tables:
            cursor.execute(table.create())
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        for table in tables:
            for number in range(ROWS):
                cursor.execute(f"INSERT INTO {table.qualified} VALUES ({number}, {', '.join(table.literals(rng))})")
            inserted[table.name] = table.rows(cursor)
            cursor.execute(f"UPDATE {table.qualified} SET id = id + 100 WHERE id < 2")
            cursor.execute(f"DELETE FROM {table.qualified}")
        cursor.execute("FLUSH BINARY LOGS")
    data = (server.data / name).read_bytes()
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        schemas = {
            name: entry for name, entry in current_schemas(session).tables.items() if name.database == unique_name
        }
    for options in MODES:
        avro = AvroFormat.of(FormatSettings("t", 7, schema_ids=NumberedSchemas(), options=options))
        _check(avro, data, name, schemas, tables, inserted)


def _check(
    avro: AvroFormat,
    data: bytes,
    name: str,
    schemas: dict[TableName, Table],
    tables: list[RandomTable],
    inserted: dict[str, Any],
) -> None:
    ids, hexed = avro.ids, avro.style[Kind.BINARY] is Encoding.HEX
    assert isinstance(ids, NumberedSchemas)
    messages, decoder = decoded(data, name, avro, schemas)
    plain, _ = decoded(data, name, DebeziumFormat("t", 7, avro.style), schemas)
    assert len(messages) == len(plain) >= len(tables) * ROWS * 2
    for message, text in zip(messages, plain, strict=True):
        keys = {name: ids.read(key) for name, key in message.headers}
        assert keys == {name: json.loads(key) for name, key in text.headers}
        if message.value is None:
            assert text.value is None
            continue
        record, change = ids.read(message.value), json.loads(text.value or b"")
        source = record["source"]
        where = f"{source['db']}.{source['table']} (CHANGEFEED_RANDOM_SEED={SEED})"
        bound = decoder.programs.bound[f"{source['db']}.{source['table']}"][0].schema
        assert (message.key, message.value) == _rendered(avro, bound, change, source["ts_us"]), where
        if record["op"] == "c" and record["after"]["id"] < 100:
            table = next(table for table in tables if table.name == source["table"])
            row = inserted[table.name][record["after"]["id"]]
            _compare(table, bound, record["after"], row, where, hexed=hexed)


def _rendered(
    format: RowFormat, table: TableSchema, change: dict[str, Any], commit_micros: int
) -> tuple[bytes | None, bytes | None]:
    source = change["source"]
    row = render.RowChange(
        change["op"], change["before"], change["after"], source["file"], source["pos"], source["row"],
        source["gtid"] or "", source["server_id"], source["ts_ms"] // 1000, source["query"],
        commit_micros=commit_micros,
    )  # fmt: skip
    return render.key(format, table, row), render.value(format, table, row)


def _compare(
    table: RandomTable, schema: TableSchema, record: dict[str, Any], row: dict[str, Any], where: str, *, hexed: bool
) -> None:
    """The record's values in the spelling of SELECT are ``row``, but for dates that are none."""
    types = {column.name: column for column in schema.columns}
    for column in table.columns:
        value = record[re.sub("[^A-Za-z0-9_]", "_", column.name)]
        of = types[column.name]
        expected = row[column.name]
        what = f"{column.name} {column.definition} of {where}"
        if (
            of.data_type in ("date", "datetime", "timestamp")
            and expected is not None
            and re.search("-00|0000", expected)
        ):
            assert value is None, what
        elif value is None:
            assert expected is None, what
        elif of.data_type == "json":
            assert column.normal(value) == expected, what
        else:
            if of.data_type in _BLOBS and isinstance(value, str):
                value = bytes.fromhex(value) if hexed else base64.b64decode(value)
            assert _as_selected(value, of) == expected, what


def _as_selected(value: Any, column: Column) -> Any:
    digits = column.datetime_precision or 0
    match column.data_type:
        case "decimal":
            assert isinstance(value, Decimal)
            return f"{value:f}"
        case "bigint" if column.unsigned:
            return int(value) % 2**64
        case "bit":
            return int(value) if isinstance(value, bool) else int.from_bytes(value, "little")
        case "date":
            return str(date(1970, 1, 1) + timedelta(days=value))
        case "datetime":
            micros = value if digits > 3 else value * 1000
            return _moment(micros // 1_000_000, micros % 1_000_000, digits)
        case "time":
            hours, rest = divmod(abs(value), 3_600_000_000)
            text = f"{'-' * (value < 0)}{hours:02d}:{rest // 60_000_000:02d}:{rest // 1_000_000 % 60:02d}"
            return text + (f".{rest % 1_000_000:06d}"[: digits + 1] if digits else "")
        case "vector":
            import struct

            return struct.pack(f"<{len(value)}f", *value).hex().upper()
    if isinstance(value, dict):
        return (value["srid"] or 0).to_bytes(4, "little").hex().upper() + value["wkb"].hex().upper()
    return value.hex().upper() if isinstance(value, bytes) else value


def _moment(seconds: int, micros: int, digits: int) -> str:
    days, clock = divmod(seconds, 86400)
    day = date.fromordinal(date(1970, 1, 1).toordinal() + days)
    text = f"{day}T{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
    return text + (f".{micros:06d}"[: digits + 1] if digits else "")
