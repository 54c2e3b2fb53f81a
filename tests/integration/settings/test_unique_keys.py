"""Tables without a primary key: the unique key that is the message key, for rows of binlog and SELECT."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
from pymysql import MySQLError

from changefeed.binlog.decoder import KernelDecoder
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.message_key import KeyRule
from changefeed.model.route import Route
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer

UNIQUE = KeyRule(keyless="unique")
TABLES = [
    "z INT NOT NULL, a INT NOT NULL, UNIQUE z (z), UNIQUE a (a)",
    "a INT, b INT NOT NULL, UNIQUE a (a), UNIQUE b (b)",
    "a INT NOT NULL, b VARCHAR(20) NOT NULL, UNIQUE b (b(5)), UNIQUE a (a)",
    "b VARCHAR(20) NOT NULL, UNIQUE b (b(5))",
    "b VARCHAR(20) NOT NULL, UNIQUE b (b(20))",
    "a INT NOT NULL UNIQUE, b INT NOT NULL UNIQUE",
    "b INT NOT NULL, a INT NOT NULL, UNIQUE (a, b), UNIQUE (b)",
    "a INT, UNIQUE (a)",
    "a INT NOT NULL, INDEX (a)",
    "a TEXT NOT NULL, UNIQUE a (a(5)), b INT NOT NULL UNIQUE",
]
"""Columns and keys; the server uses some of the keys as a primary key."""
OF_MYSQL = [
    (
        "a INT NOT NULL, v INT AS (a+1) VIRTUAL NOT NULL UNIQUE, w INT AS (a+2) STORED NOT NULL UNIQUE",
        "1, DEFAULT, DEFAULT",
    ),
    ("a INT NOT NULL, v INT AS (a+1) VIRTUAL NOT NULL UNIQUE", "1, DEFAULT"),
    ("a INT NOT NULL, b INT NOT NULL, UNIQUE f ((a + b)), UNIQUE b (b DESC)", "1, 1"),
]
OF_MARIADB = [
    ("t TEXT NOT NULL, a INT NOT NULL, UNIQUE t (t), UNIQUE a (a)", "1, 1"),
    ("t TEXT NOT NULL, UNIQUE t (t)", "1"),
    ("v VARCHAR(769) CHARACTER SET utf8mb4 NOT NULL, UNIQUE v (v)", "1"),
    ("v VARCHAR(768) CHARACTER SET utf8mb4 NOT NULL, UNIQUE v (v)", "1"),
    ("v VARCHAR(600) CHARACTER SET utf8mb4 NOT NULL, w VARCHAR(600) NOT NULL, UNIQUE v (v, w)", "1, 1"),
]
"""Keys with the values of a row, some of which only one of the servers uses as a primary key."""


def named_keys(server: SqlServer, database: str, tables: dict[str, str]) -> dict[str, list[str]]:
    """The key columns of each table in the server's FULL metadata, for a row with ``values``."""
    (name, *_) = server.execute("FLUSH BINARY LOGS", "SHOW BINARY LOGS")[-1]
    for table in tables:
        server.execute(f"INSERT INTO `{database}`.{table} VALUES ({tables[table]})")
    server.execute("FLUSH BINARY LOGS")
    data = (server.data / name).read_bytes()
    pipeline = Pipeline.model_validate({"name": "k", "source": {"connection": "s"}, "kafka": {"connection": "k"}})
    keys: dict[str, list[str]] = {}

    def route(_: str, table: str) -> Route:
        return Route(table, 1)

    decoder = KernelDecoder(route, lambda *_: None, compile_routes(pipeline).format(0), "uuid")
    for item in decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data))):
        if isinstance(item, MessageBlock):
            for message in item.messages():
                keys[item.topic] = list(json.loads(message.key)) if message.key else []
    return keys


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_unique_key_equals_the_servers_choice(request: pytest.FixtureRequest, unique_name: str, kind: str) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    database, chosen = unique_name, random.Random(1)
    tables = {}
    server.execute(f"CREATE DATABASE `{database}`")
    for number, columns in enumerate(TABLES):
        server.execute(f"CREATE TABLE `{database}`.t{number} ({columns})")
        tables[f"t{number}"] = ", ".join("1" for _ in server.execute(f"SHOW COLUMNS FROM `{database}`.t{number}"))
    more = [
        "ADD UNIQUE (b)",
        "ADD UNIQUE (a, b)",
        "ADD UNIQUE (c(3))",
        "ADD UNIQUE (c)",
        "ADD UNIQUE c_all (c(9), a)",
        "MODIFY a INT NOT NULL",
        "MODIFY b INT NULL",
        "MODIFY b INT NOT NULL",
        "MODIFY c VARCHAR(9) NOT NULL",
        "MODIFY c VARCHAR(12) NOT NULL",
        "DROP INDEX b",
        "DROP INDEX a",
        "ADD UNIQUE z (d)",
    ]
    for number in range(12):
        table = f"r{number}"
        server.execute(
            f"CREATE TABLE `{database}`.{table} (a INT, b INT NOT NULL, c VARCHAR(9) NOT NULL, d INT NOT NULL)"
        )
        for change in chosen.sample(more, 9):
            with contextlib.suppress(MySQLError):  # it drops what is not there
                server.execute(f"ALTER TABLE `{database}`.{table} {change}")
        tables[table] = "1, 1, 1, 1"
    more_tables = OF_MARIADB if server.product == "MariaDB" else OF_MYSQL
    for number, (columns, values) in enumerate(more_tables):
        server.execute(f"CREATE TABLE `{database}`.m{number} ({columns})")
        tables[f"m{number}"] = values
    named = named_keys(server, database, tables)
    with Session(MysqlConnection.from_uri(server.url)) as session:
        for table in tables:
            schema = table_schema(session, database, table)
            assert schema is not None
            keyed_table = UNIQUE.keyed_table(schema)
            key = [schema.columns[position].name for position in keyed_table.primary_key]
            assert key == named[table], server.execute(f"SHOW CREATE TABLE `{database}`.{table}")
