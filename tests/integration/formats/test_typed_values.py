"""Messages are read back as the values that the source holds: written into a table of the same definition they make
the same table. The server makes the comparison."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import pytest
from integration.binlog_of import logged
from integration.random_tables import RandomTable, column_makers, random_table

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.envelope import read_envelope
from changefeed.formats.reader import Envelope
from changefeed.formats.style import DEFAULT_STYLE, Encoding, Kind, Style
from changefeed.formats.typed_values import RowValues, inexact, reader_of
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.identifier import quote_name
from changefeed.model.route import Route
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.replicate.literals import literal
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

TABLES, ROWS = 60, 8
EXACT = Style(
    {
        Kind.DECIMAL: Encoding.PRECISE,
        Kind.BIGINT_UNSIGNED: Encoding.LONG,
        Kind.BIT: Encoding.CONNECT,
        Kind.BINARY: Encoding.HEX,
        Kind.GEOMETRY: Encoding.CONNECT,
        Kind.ENUM: Encoding.INDEX,
        Kind.SET: Encoding.ARRAY,
        Kind.DATETIME: Encoding.SQL,
    }
)
"""Other encodings than the default ones, of which none loses anything."""


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def changes(server: SqlServer, style: Style, statements: list[str]) -> Iterator[Envelope]:
    name, data = logged(server, *statements, before=["SET sql_mode = '', time_zone = '+00:00'"])
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        decoder = KernelDecoder(
            lambda _database, table: Route(table, 1),
            lambda database, table: table_schema(session, database, table),
            DebeziumFormat("t", 0, style, tombstones=False),
            "uuid",
        )
        for item in decoder.decode([memoryview(data)[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data))):
            if isinstance(item, MessageBlock):
                yield from (read_envelope(message.value) for message in item.messages() if message.value is not None)


def changes_of_filled(
    server: SqlServer, style: Style, rng: random.Random, tables: list[RandomTable], rows: int
) -> dict[str, list[Envelope]]:
    """Make ``tables`` with so many rows each; the changes that this is, by table."""
    work = [table.create() for table in tables]
    for table in tables:
        values = ", ".join(f"({number}, {', '.join(table.literals(rng))})" for number in range(rows))
        work.append(f"INSERT INTO {table.qualified} VALUES {values}")
    seen: dict[str, list[Envelope]] = {}
    for change in changes(server, style, work):
        seen.setdefault(change.table, []).append(change)
    return seen


def one_of_each(rng: random.Random, database: str, mariadb: bool) -> list[RandomTable]:
    return [
        RandomTable(database, f"of_{kind}", [make(rng, f"c{number}") for number in range(6)])
        for kind, make in column_makers(mariadb).items()
    ]


@pytest.mark.parametrize("style", [DEFAULT_STYLE, EXACT], ids=["default", "other"])
def test_rows_that_are_read_back_make_the_same_table(server: SqlServer, unique_name: str, style: Style) -> None:
    mariadb = isinstance(server, MariadbServer)
    rng = random.Random(f"read back:{mariadb}")
    server.execute(f"CREATE DATABASE {unique_name}")
    tables = one_of_each(rng, unique_name, mariadb)
    tables += [random_table(rng, unique_name, f"t{number}", mariadb) for number in range(TABLES)]
    seen = changes_of_filled(server, style, rng, tables, ROWS)
    with (
        Session(MysqlConnection.from_uri(server.root_url)) as session,
        server.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for table in tables:
            schema = table_schema(session, unique_name, table.name)
            assert schema is not None
            values = RowValues(schema, style)
            twin = RandomTable(unique_name, f"twin_{table.name}", table.columns)
            cursor.execute(twin.create())
            assert len(seen[table.name]) == ROWS
            for change in seen[table.name]:
                assert change.after is not None
                row = values.of(change.after)
                names, written = ", ".join(map(quote_name, row)), ", ".join(map(literal, row.values()))
                cursor.execute(f"INSERT INTO {twin.qualified} ({names}) VALUES ({written})")
            assert twin.rows(cursor) == table.rows(cursor), table.create()
            if not any(column.definition == "JSON" for column in table.columns):
                cursor.execute(f"CHECKSUM TABLE {table.qualified}, {twin.qualified}")
                (_, one), (_, other) = cursor.fetchall()
                assert one == other, table.create()


def test_edges_of_every_type_are_read_back(server: SqlServer, unique_name: str) -> None:
    rows = {
        "TINYINT": ["-128", "127"],
        "BIGINT": ["-9223372036854775808", "9223372036854775807"],
        "BIGINT UNSIGNED": ["18446744073709551615", "0"],
        "DECIMAL(65,30)": ["-0.000000000000000000000000000001", "9" * 35 + "." + "9" * 30],
        "FLOAT": ["-0e0", "3.4028234e38", "1.17549435e-38", "0.1", "16777217"],
        "FLOAT(7,3)": ["1234.567", "-0.001"],
        "DOUBLE": ["-0e0", "5e-324", "1.7976931348623157e308", "0.1"],
        "DATE": ["'0000-00-00'", "'2026-00-31'", "'9999-12-31'"],
        "DATETIME(6)": ["'0000-00-00'", "'2026-02-00 10:11:12.000001'", "'9999-12-31 23:59:59.999999'"],
        "TIME(6)": ["'-838:59:59'", "'-00:00:00.000001'", "'838:59:59'"],
        "TIMESTAMP(6) NULL": ["0", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.499999'"],
        "YEAR": ["0", "1901", "2155"],
        "BIT(64)": ["b'0'", "x'FFFFFFFFFFFFFFFF'"],
        "BIT(1)": ["0", "1"],
        "ENUM('a','b,c','')": ["1", "2"],
        "ENUM('x')": ["0", "1"],
        "SET('a','b')": ["0", "1", "3"],
        "CHAR(5)": ["''", "'  a'", "'a\\\\b'''", "'\\0'"],
        "VARCHAR(20) CHARACTER SET latin1": ["'ÿ€'", "'trailing  '"],
        "BINARY(5)": ["''", "x'0061'", "x'6100'"],
        "VARBINARY(5)": ["''", "x'6100'"],
        "GEOMETRY": ["ST_GeomFromText('POINT(1 -0.0)', 4326)", "ST_GeomFromText('MULTIPOINT(1 2, 3 4)')"],
    }
    if isinstance(server, MariadbServer):
        rows |= {"UUID": ["UUID()"], "INET6": ["'::ffff:1.2.3.4'"]}
    else:
        documents = ['{"a": -0.0, "b": 1.0, "c": 1e300, "d": 18446744073709551615}', "null", '"\\\\u0000"', "[]"]
        rows |= {"VECTOR(3)": ["STRING_TO_VECTOR('[1.5,-0.0]')"], "JSON": [f"'{text}'" for text in documents]}
    server.execute(f"CREATE DATABASE {unique_name}")
    work = []
    for number, (definition, values) in enumerate(rows.items()):
        work.append(f"CREATE TABLE {unique_name}.t{number} (id INT PRIMARY KEY, c {definition})")
        listed = ", ".join(f"({id}, {value})" for id, value in enumerate([*values, "NULL"]))
        work.append(f"INSERT INTO {unique_name}.t{number} VALUES {listed}")
    seen = list(changes(server, DEFAULT_STYLE, work))
    with (
        Session(MysqlConnection.from_uri(server.root_url)) as session,
        server.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for number, definition in enumerate(rows):
            schema = table_schema(session, unique_name, f"t{number}")
            assert schema is not None
            values_of = RowValues(schema, DEFAULT_STYLE)
            cursor.execute(f"CREATE TABLE {unique_name}.twin{number} LIKE {unique_name}.t{number}")
            for change in seen:
                if change.table == f"t{number}":
                    row = values_of.of(change.after or {})
                    cursor.execute(
                        f"INSERT INTO {unique_name}.twin{number} VALUES ({', '.join(map(literal, row.values()))})"
                    )
            cursor.execute(f"CHECKSUM TABLE {unique_name}.t{number}, {unique_name}.twin{number}")
            (_, one), (_, other) = cursor.fetchall()
            assert one == other, definition


def test_default_debezium_values_are_ambiguous_for_zero_dates() -> None:
    default = Style({Kind.DATE: Encoding.EPOCH, Kind.TIMESTAMP: Encoding.ZONED, Kind.DECIMAL: Encoding.DOUBLE})
    assert set(inexact(default)) == {Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL}
    assert inexact(DEFAULT_STYLE) == {}
    assert inexact(EXACT) == {}


def test_numbers_of_dates_are_read_as_select_spells_them() -> None:
    def read(definition: Column, number: int, encoding: Encoding = Encoding.EPOCH) -> object:
        return reader_of(
            definition, Style(dict.fromkeys((Kind.TIME, Kind.DATETIME), encoding) | {Kind.DATE: Encoding.EPOCH})
        )(number)

    assert read(Column("c", "date"), 20484) == "2026-01-31"
    assert read(Column("c", "datetime", datetime_precision=3), -62135596800000) == "0001-01-01 00:00:00.000"
    assert read(Column("c", "datetime", datetime_precision=6), 1) == "1970-01-01 00:00:00.000001"
    assert read(Column("c", "time", datetime_precision=0), -3020399000000, Encoding.MICROS) == "-838:59:59"


def test_a_value_that_the_column_cannot_have_is_refused() -> None:
    for column, value in (
        (Column("c", "int"), "abc"),
        (Column("c", "enum", labels=("a",)), "b"),
        (Column("c", "set", labels=("a",)), "a,b"),
        (Column("c", "varchar"), 5),
        (Column("c", "blob"), "no base64!"),
        (Column("c", "vector"), [1, "a"]),
    ):
        with pytest.raises(SchemaError, match=r"column 'c', a .*, cannot have"):
            RowValues(TableSchema("d", "t", (Column("a", "int"), column)), DEFAULT_STYLE).of({"a": 1, "c": value})
    nameless = TableSchema("d", "t", (Column("a", "int"), Column("c", "enum", labels=("a", ""))))
    with pytest.raises(SchemaError, match="column 'c' has the label '', which records have as"):
        RowValues(nameless, DEFAULT_STYLE).of({"a": 1, "c": ""})
    with pytest.raises(SchemaError, match="a row has a column 'b'"):
        RowValues(TableSchema("d", "t", (Column("a", "int"),)), DEFAULT_STYLE).of({"a": 1, "b": 2})
    assert reader_of(Column("c", "decimal", scale=2), Style({Kind.DECIMAL: Encoding.PRECISE}))("/w==") == Decimal(
        "-0.01"
    )
