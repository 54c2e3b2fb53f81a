"""Messages of a SELECT's rows are equal to those of the binlog's events for the same rows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from integration.binlog_of import logged
from integration.random_tables import random_table

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.programs.result_columns import select_list
from changefeed.binlog.row_reader import AsOf, RowReader
from changefeed.errors import SchemaError, SourceError
from changefeed.formats.columns import SEPARATOR, ColumnsFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.style import ENCODINGS, Style
from changefeed.model.column_rules import ALL_SHOWN, ColumnRule, ColumnRules, Sha256
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.model.origin import Chunk
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.result_set import ResultSet
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

TABLES = 60
ROWS = 8
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
STYLES = [
    Style({kind: encodings[min(number, len(encodings) - 1)] for kind, encodings in ENCODINGS.items()})
    for number in range(max(map(len, ENCODINGS.values())))
]
MASKS = ColumnRules((ColumnRule("*.*.[!i]*", Sha256("pepper"), "columns.mask"),), "rows.yaml")
AS_OF = AsOf(BinlogCoordinates("binlog.000077", 4077), 1_790_000_000, 5, "")


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def route(_database: str, table: str) -> Route:
    return Route(table, 3)


def binlog_of(server: SqlServer, statements: list[str]) -> tuple[str, bytes]:
    """A binlog file with what the statements changed."""
    return logged(server, *statements, before=["SET sql_mode = '', time_zone = '+00:00'"])


def session_of(server: SqlServer) -> Session:
    return Session(MysqlConnection.from_uri(server.root_url))


def schema_of(session: Session, database: str, table: str) -> TableSchema:
    schema = table_schema(session, database, table)
    assert schema is not None
    return schema


def read(reader: RowReader, session: Session, schema: TableSchema, tail: str = "", number: int = 0) -> list[object]:
    sql = f"SELECT {select_list(schema)} FROM {quote_name(schema.database)}.{quote_name(schema.table)} {tail}"
    with ResultSet(session, sql) as rows:
        return list(reader.read(schema, rows, Chunk(schema.database, schema.table, number), AS_OF))


def messages(items: list[object]) -> Iterator[tuple[str, int, Message]]:
    for item in items:
        if isinstance(item, MessageBlock):
            yield from ((item.topic, item.partition, message) for message in item.messages())


def images(items: list[object]) -> dict[tuple[str, int, bytes | None], bytes]:
    """By topic, partition and key the after image, as bytes."""
    return {
        (topic, partition, message.key): (message.value or b"").rpartition(SEPARATOR)[2]
        for topic, partition, message in messages(items)
    }


def test_rows_of_random_tables_equal_those_of_the_binlog(server: SqlServer, unique_name: str) -> None:
    rng = random.Random(f"rows:{type(server).__name__}")
    server.execute(f"CREATE DATABASE {unique_name}")
    mariadb = isinstance(server, MariadbServer)
    tables = [random_table(rng, unique_name, f"t{number}", mariadb) for number in range(TABLES)]
    work = []
    for table in tables:
        work.append(table.create())
        values = ", ".join(f"({number}, {', '.join(table.literals(rng))})" for number in range(ROWS))
        work.append(f"INSERT INTO {table.qualified} VALUES {values}")
    name, data = binlog_of(server, work)
    with session_of(server) as session:
        schemas = {table.name: schema_of(session, unique_name, table.name) for table in tables}
        for style in STYLES:
            for rules in (ALL_SHOWN, MASKS):
                format = ColumnsFormat(style)
                decoder = KernelDecoder(route, lambda _database, table: schemas.get(table), format, UUID, columns=rules)
                written = list(decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data))))
                expected = images(written)
                assert len(expected) == TABLES * ROWS
                reader = RowReader(route, format, UUID, columns=rules)
                for number, table in enumerate(tables):
                    rows = read(reader, session, schemas[table.name], number=number)
                    seen = images(rows)
                    assert len(seen) == ROWS
                    for key, image in seen.items():
                        assert image == expected[key], f"{key} of {table.create()} in {style}"


def test_rows_of_rare_columns_equal_those_of_the_binlog(server: SqlServer, unique_name: str) -> None:
    server.execute(f"CREATE DATABASE {unique_name}")
    name, data = binlog_of(
        server,
        [
            f"CREATE TABLE {unique_name}.t (id INT UNSIGNED ZEROFILL, twice INT AS (id * 2) VIRTUAL, "
            "thrice INT AS (id * 3) STORED, hidden INT INVISIBLE DEFAULT 7, price DECIMAL(10, 2) ZEROFILL, "
            "`back``tick` FLOAT(7, 2), stamp TIMESTAMP(1) NULL, code CHAR(3) CHARACTER SET ucs2, "
            "kind ENUM('a', 'b') DEFAULT 'b', flags SET('x', 'y') DEFAULT 'x,y', "
            "PRIMARY KEY (code, id))",
            f"INSERT INTO {unique_name}.t (id, price, `back``tick`, stamp, code) VALUES "
            "(1, 0.5, 1.005, '2026-03-29 02:30:00.45', 'ä'), (2, 12.25, NULL, '1970-01-01 00:00:01', 'b'), "
            "(3, NULL, 3, 0, '')",
        ],
    )
    with session_of(server) as session:
        schema = schema_of(session, unique_name, "t")
        written = KernelDecoder(route, lambda _database, _table: schema, ColumnsFormat(), UUID)
        expected = images(list(written.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data)))))
        assert len(expected) == 3
        assert images(read(RowReader(route, ColumnsFormat(), UUID), session, schema)) == expected


def test_snapshot_row_has_op_r_snapshot_name_and_coordinates(server: SqlServer, unique_name: str) -> None:
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY)",
        f"INSERT INTO {unique_name}.t VALUES (1), (2)",
    )
    with session_of(server) as session:
        reader = RowReader(lambda *_: Route("t", 1), DebeziumFormat("test", 9), UUID, snapshot="incremental")
        schema = schema_of(session, unique_name, "t")
        for number in (3, 4):
            items = read(reader, session, schema, "ORDER BY id", number)
            block, report = items
            assert isinstance(block, MessageBlock)
            assert isinstance(report, SliceReport)
            assert (block.origin, block.slice) == (f"{unique_name}.t#{number}", number)
            assert report.rows == {f"{unique_name}.t": {"r": 2}}
            found = [message for _, _, message in messages(items)]
            assert [(message.position, message.sequence >> 2) for message in found] == [(4077, 0), (4077, 1)]
            assert [message.event_id.decode() for message in found] == [
                f"{UUID}/{unique_name}.t#{number}:4077/{row}" for row in range(2)
            ]
            values = [json.loads(message.value or b"") for message in found]
            assert [(value["op"], value["before"], value["after"]) for value in values] == [
                ("r", None, {"id": 1}),
                ("r", None, {"id": 2}),
            ]
            source = values[0]["source"]
            assert (source["snapshot"], source["file"], source["pos"]) == ("incremental", "binlog.000077", 4077)
            assert (source["server_id"], source["ts_ms"], source["gtid"]) == (5, 1_790_000_000_000, None)


def test_rows_of_several_packets_are_read_completely(mysql_server: SqlServer, unique_name: str) -> None:
    """A packet has 16,777,215 bytes: a longer row continues in the next, and a row of that size in an empty one."""
    row_head = 1 + 1 + 4 + 4  # 0, NULLs, id, length
    sizes = [1, 0xFFFFFF - row_head, 34_000_000, 2]
    mysql_server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, text LONGTEXT)",
        *(f"INSERT INTO {unique_name}.t VALUES ({n}, REPEAT('{n}', {size}))" for n, size in enumerate(sizes)),
    )
    with session_of(mysql_server) as session:
        schema = schema_of(session, unique_name, "t")
        found = images(read(RowReader(lambda *_: Route("t", 1), ColumnsFormat(), UUID), session, schema, "ORDER BY id"))
    texts = [json.loads(image)["text"] for image in found.values()]
    assert texts == [str(number) * size for number, size in enumerate(sizes)]


def test_failed_select_and_changed_table_raise(server: SqlServer, unique_name: str) -> None:
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, number INT)",
        f"INSERT INTO {unique_name}.t VALUES (1, 1), (2, 2), (3, 3)",
    )
    reader = RowReader(route, ColumnsFormat(), UUID)
    with session_of(server) as session:
        schema = schema_of(session, unique_name, "t")
        with pytest.raises(SourceError, match="ubquery returns more than 1 row"):
            read(reader, session, schema, "WHERE IF(id < 3, 1, (SELECT 1 UNION SELECT number + 2))")
    with session_of(server) as session, pytest.raises(SourceError, match=r"nowhere.*doesn't exist"):
        read(reader, session, replace(schema, table="nowhere"))
    with session_of(server) as session:
        server.execute(f"ALTER TABLE {unique_name}.t MODIFY number BIGINT")
        with pytest.raises(SchemaError, match=r"column 'number', a int, has type 8 .*; expected 3"):
            read(reader, session, schema)
