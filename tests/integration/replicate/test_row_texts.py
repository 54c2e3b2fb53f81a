"""The kernel's SQL for messages stores the rows of the source, on a real server."""

from __future__ import annotations

import random

import numpy as np
import orjson
import pytest
from integration.formats.test_typed_values import EXACT, changes_of_filled, one_of_each
from integration.random_tables import RandomTable

from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.model.connection import MysqlConnection
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, TableSchema
from changefeed.replicate import sql_rows as kernel
from changefeed.replicate.literals import literal_of
from changefeed.replicate.row_texts import RowTextMaker, RowTexts
from changefeed.replicate.single_rows import write_sql
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

ROWS = 40


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def texts_of(maker: RowTextMaker, messages: list[bytes]) -> RowTexts:
    ends = np.cumsum([len(message) for message in messages])
    values = np.stack([ends - [len(message) for message in messages], ends], axis=1).astype(np.int64)
    return maker.make_texts(np.frombuffer(bytearray().join(messages), np.uint8), values)


@pytest.mark.parametrize("style", [DEFAULT_STYLE, EXACT], ids=["default", "other"])
def test_rows_of_every_type_that_the_kernel_writes_make_the_same_table(
    server: SqlServer, unique_name: str, style: Style
) -> None:
    mariadb = isinstance(server, MariadbServer)
    rng = random.Random(f"row texts:{mariadb}")
    server.execute(f"CREATE DATABASE {unique_name}")
    tables = one_of_each(rng, unique_name, mariadb)
    seen = changes_of_filled(server, style, rng, tables, ROWS)
    written = 0
    with (
        FollowerSession(MysqlConnection.from_uri(server.root_url)) as session,
        server.connect() as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        for table in tables:
            schema = table_schema(session, unique_name, table.name)
            assert schema is not None
            maker = RowTextMaker.of(schema, style)
            if maker is None:
                continue
            twin = RandomTable(unique_name, f"twin_{table.name}", table.columns)
            session.write(twin.create())
            names = ", ".join(quote_name(column.name) for column in schema.columns)
            enums = [column.name for column in schema.columns if column.data_type == "enum"]
            made = texts_of(maker, [orjson.dumps(change.fields) for change in seen[table.name]])
            readers = [literal_of(column, style) for column in schema.columns]
            for (_, after, row), change in zip(made.changes(), seen[table.name], strict=True):
                if not after:  # left to Python
                    assert change.after is not None
                    literals = zip(readers, change.after.values(), strict=True)
                    row = f"({','.join('NULL' if v is None else read(v) for read, v in literals)})".encode()
                written += bool(after)
                loose = enums if b",0," in row else ()  # the invalid value of an ENUM
                write_sql(
                    session, schema, f"INSERT INTO {twin.qualified} ({names}) VALUES ".encode() + row, loose=loose
                )
            session.commit()
            assert twin.rows(cursor) == table.rows(cursor), table.create()
    assert written > 3 * ROWS


COLUMNS = (
    Column("b", "varchar"),
    Column("a", "int"),
    Column("n", "decimal", scale=2),
    Column("g", "int", generated=True),
)
KEYED = TableSchema("d", "t", COLUMNS, (1, 0))


def message(before: str, after: str, database: str = "d", table: str = "t") -> bytes:
    source = f'"source":{{"name":"x","db":"{database}","sequence":null,"table":"{table}","pos":1}},"op":"c"'
    return f'{{"before":{before},"after":{after},{source}}}'.encode()


ROW = '{"b":"x\\"y","a":-1,"n":"1.50","g":5}'


def test_change_has_its_row_and_the_keys_before_and_after_it() -> None:
    maker = RowTextMaker.of(KEYED, DEFAULT_STYLE)
    assert maker is not None
    other = ROW.replace("-1", "7").replace('"1.50"', "null")
    made = texts_of(maker, [message("null", ROW), message(ROW, "null"), message(ROW, other)])
    key, new = b'`b` = "x\\"y" AND `a` = -1', b'`b` = "x\\"y" AND `a` = 7'
    assert made.is_complete
    assert made.changes() == [
        (b"", key, b'("x\\"y",-1,1.50)'),
        (key, b"", b""),
        (key, new, b'("x\\"y",7,NULL)'),
    ]
    assert made.words[0, kernel.ROW] == 0


@pytest.mark.parametrize(
    "changed",
    [
        message("null", ROW, table="tt"),
        message("null", ROW, database='d\\"'),
        message("null", "null"),
        message("null", ROW.replace('"b"', '"c"')),
        message("null", ROW.replace("x", "\\u0001")),
        message("null", ROW.replace("x", "\\f")),
        message("null", ROW.replace("-1", "1.5")),
        message("null", ROW.replace("-1", "1); DROP TABLE t")),
        message("null", ROW.replace("1.50", "1.5e3")),
        message("null", ROW.replace("1.50", "")),
        message("null", ROW.replace("1.50", "1'")),
        message("null", ROW.replace('"1.50"', "{}")),
        message("null", ROW.replace(',"g":5', "")),
        message("null", ROW.replace('"g":5', '"g":5,"h":6')),
        message(ROW.replace(',"n":"1.50"', ""), ROW),
        message("null", ROW)[:40],
        b"",
        b"{}",
    ],
)
def test_unexpected_message_is_left_to_python_and_the_next_is_read(changed: bytes) -> None:
    maker = RowTextMaker.of(KEYED, DEFAULT_STYLE)
    assert maker is not None
    made = texts_of(maker, [message("null", ROW), changed, message("null", ROW.replace("-1", "2"))])
    assert not made.is_complete
    assert [row for _, _, row in made.changes()] == [b'("x\\"y",-1,1.50)', b"", b'("x\\"y",2,1.50)']
