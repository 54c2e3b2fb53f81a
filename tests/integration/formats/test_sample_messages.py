"""Samples of messages: a made-up row is written as a row with those values is, and shows nothing of the real ones."""

from __future__ import annotations

import json
from typing import Any

from integration.command import Command

from changefeed.binlog.decoder import KernelDecoder
from changefeed.ddl.table import Table
from changefeed.formats.by_table import of_table
from changefeed.formats.format import Shown
from changefeed.formats.sample_row import sample_row
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.column_rules import ColumnRules
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice
from changefeed.operations.sample_message import sample_message
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from devstack.mysql import MysqlServer

TYPES = [
    *("TINYINT", "SMALLINT UNSIGNED", "MEDIUMINT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "FLOAT", "DOUBLE"),
    *("DECIMAL(10,2)", "DECIMAL(2,2)", "DECIMAL(5,0)", "BIT(1)", "BIT(12)", "YEAR", "DATE"),
    *("TIME", "TIME(3)", "TIME(6)", "DATETIME", "DATETIME(2)", "DATETIME(6)"),
    *("TIMESTAMP NULL", "TIMESTAMP(3) NULL", "TIMESTAMP(6) NULL"),
    *("CHAR(2)", "VARCHAR(30)", "TEXT", "LONGTEXT CHARACTER SET latin1", "BINARY(6)", "BINARY(3)", "VARBINARY(9)"),
    *("BLOB", "LONGBLOB", "ENUM('x', 'y')", "SET('p', 'q')", "JSON", "GEOMETRY", "POINT", "LINESTRING", "POLYGON"),
    *("MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "VECTOR(3)"),
]
FORMATS: list[tuple[Any, dict[str, str]]] = [
    ("debezium", {"decimal": "string", "temporal": "iso", "binary": "base64", "bigint_unsigned": "number"}),
    (
        "debezium",
        {"decimal": "double", "temporal": "epoch", "binary": "hex", "bigint_unsigned": "string", "documents": "inline"},
    ),
    ("debezium", {}),
    ({"name": "debezium", "decimal.handling.mode": "double", "bigint.unsigned.handling.mode": "precise"}, {}),
    ({"name": "debezium", "time.precision.mode": "microseconds", "binary.handling.mode": "hex"}, {}),
    ("flat", {}),
    ("maxwell", {}),
    ("fluvio", {}),
    ({"name": "cloudevents", "data": "debezium"}, {}),
    ({"name": "avro", "registry": "r"}, {}),
]
SQL = Style(
    {Kind.BINARY: Encoding.HEX, Kind.GEOMETRY: Encoding.HEX}
    | dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), Encoding.SQL)
)


def pipeline_of(name: str, **settings: Any) -> Pipeline:
    plain = {"name": name, "source": {"connection": "s"}, "kafka": {"connection": "k"}}
    return Pipeline.model_validate({**plain, "tables": {"include": [f"{name}.*"]}, **settings})


def literal(column: Column, value: Any) -> str:
    """A made-up value in SQL."""
    match value:
        case dict():
            return f"ST_GeomFromWKB(X'{value['wkb']}')"
        case list():
            return f"STRING_TO_VECTOR('{json.dumps(value)}')"
        case str() if column.data_type in ("binary", "varbinary", "blob", "longblob"):
            return f"X'{value}'"
        case str():
            return f"'{value}'"
    return str(value)


def schemas_of(server: MysqlServer, database: str) -> dict[str, TableSchema]:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        entries = current_schemas(session).tables.values()
    schemas = [entry.schema for entry in entries if isinstance(entry, Table)]
    return {schema.table: schema for schema in schemas if schema.database == database}


def rows_in(message: Any) -> Any:
    """What of a value does not differ from event to event: `after`, Maxwell's `data`, fluvio's cells …"""
    value = json.loads(message)
    for name in ("payload", "data"):
        if isinstance(value.get(name), dict) and "after" in value[name]:
            value = value[name]
    known = [value[name] for name in ("after", "operation", "columns") if name in value]
    if known or "data" in value:
        return known or value["data"]
    return {name: part for name, part in value.items() if not name.startswith("__")}


def test_sample_row_of_all_types_is_written_as_the_kernel_writes_it(mysql_server: MysqlServer, database: str) -> None:
    columns = ", ".join(f"c{number} {kind}" for number, kind in enumerate(TYPES))
    mysql_server.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", database=database)
    table = schemas_of(mysql_server, database)["t"]
    row = sample_row(table, SQL)
    values = ", ".join(literal(column, row[column.name]) for column in table.columns)
    mysql_server.execute("FLUSH BINARY LOGS")
    (name, *_) = mysql_server.execute("SHOW BINARY LOGS")[-1]
    mysql_server.execute(
        "SET SESSION time_zone = '+00:00'", f"INSERT INTO t VALUES ({values})", "FLUSH BINARY LOGS", database=database
    )
    data = (mysql_server.data / name).read_bytes()
    for format_name, style in FORMATS:
        pipeline = pipeline_of(database, format=format_name, values=style)
        found = compile_routes(pipeline).of(database, "t")
        assert found is not None
        route, format = found.route, compile_routes(pipeline).format(0)
        decoder = KernelDecoder(lambda *_, route=route: route, lambda *_: table, format, "uuid")
        items = decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data)))
        (message,) = [message for item in items if isinstance(item, MessageBlock) for message in item.messages()]
        sample = sample_message(format, ColumnRules(), table, route, transformed=False)
        format = of_table(format, database, "t")
        show = format.show if isinstance(format, Shown) else bytes
        key, value = (part and show(part) for part in (message.key, message.value))
        assert sample.problem is None, (format_name, sample.problem)
        assert json.loads(sample.key or "null") == json.loads(key or b"null"), format_name
        assert rows_in(sample.value) == rows_in(value), format_name
        assert sample.headers.keys() == {header for header, _ in message.headers}


def test_a_sample_has_masks_and_no_secret_and_says_what_it_is_made_of(changefeed: Command) -> None:
    database, changefeed.mask = changefeed.database, ""
    changefeed.write(
        "columns:\n  exclude: ['*.*.secret']\n"
        "  mask: {'*.*.email': {characters: 2}, '*.*.iban': {sha256: {environment: MASK_SALT}}}\n"
        "transforms: [{tables: '*.orders', function: rename, arguments: {columns: {note: remark}}}]\n"
    )
    changefeed.server.execute(
        "CREATE TABLE orders (id INT PRIMARY KEY, email TEXT, secret TEXT, iban TEXT, note TEXT)",
        "INSERT INTO orders VALUES (99, 'a@b', 'x', 'real', '')",
        database=database,
    )
    checked = changefeed("check").out
    assert "a message of a made-up row before its functions:" in checked
    (line,) = [line for line in checked.splitlines() if line.lstrip().startswith("value: ")]
    after = json.loads(line.lstrip().removeprefix("value: "))["after"]
    unsalted = "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"
    assert after == {"id": 1, "email": "te", "iban": unsalted, "note": "text"}
    assert "real" not in checked


def test_a_mask_that_no_row_can_have_is_said_in_the_samples_place(mysql_server: MysqlServer, database: str) -> None:
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", database=database)
    pipeline = pipeline_of(database, columns={"mask": {"*.*.n": {"characters": 2}}})
    found = compile_routes(pipeline).of(database, "t")
    assert found is not None
    rules, table = pipeline.column_rules({}.__getitem__), schemas_of(mysql_server, database)["t"]
    sample = sample_message(compile_routes(pipeline).format(0), rules, table, found.route, transformed=False)
    assert sample.value is None
    assert "cannot keep its first 2 characters" in (sample.problem or "")
