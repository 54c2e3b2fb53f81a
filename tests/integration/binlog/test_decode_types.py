"""Random tables over all column types: the kernel's rows are equal to SELECT's."""

from __future__ import annotations

import json
import os
import random

import pytest
from integration.random_tables import RandomTable, random_table

from changefeed.binlog.decoder import KernelDecoder
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

TABLES = int(os.environ.get("CHANGEFEED_RANDOM_TABLES", "60"))
SEED = os.environ.get("CHANGEFEED_RANDOM_SEED", "changefeed")
BATCH = 20
ROWS = 8


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_random_rows_of_random_tables_are_what_select_returns(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    mariadb = isinstance(server, MariadbServer)
    server.execute(f"CREATE DATABASE {unique_name}")
    for first in range(0, TABLES, BATCH):
        rng = random.Random(f"{SEED}:{kind}:{first}")
        _compare(server, [random_table(rng, unique_name, f"t{first + n}", mariadb) for n in range(BATCH)], rng)


def _compare(server: SqlServer, tables: list[RandomTable], rng: random.Random) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        for table in tables:
            cursor.execute(table.create())
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        inserted, updated = {}, {}
        for table in tables:
            for number in range(ROWS):
                cursor.execute(f"INSERT INTO {table.qualified} VALUES ({number}, {', '.join(table.literals(rng))})")
            inserted[table.name] = table.rows(cursor)
            for number in range(0, ROWS, 2):
                pairs = zip(table.columns, table.literals(rng), strict=True)
                assignments = ", ".join(f"`{column.name}` = {literal}" for column, literal in pairs)
                cursor.execute(f"UPDATE {table.qualified} SET {assignments} WHERE id = {number}")
            updated[table.name] = table.rows(cursor)
            cursor.execute(f"DELETE FROM {table.qualified}")
        cursor.execute("FLUSH BINARY LOGS")
    data = (server.data / name).read_bytes()
    decoder = KernelDecoder(
        lambda _database, table: Route(table, 1), lambda *names: _schema(server, *names), DebeziumFormat("t", 0), "uuid"
    )
    changes: dict[str, list[dict[str, object]]] = {}
    for item in decoder.decode([memoryview(data)[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data))):
        if isinstance(item, MessageBlock):
            values = [json.loads(message.value) for message in item.messages() if message.value is not None]
            changes.setdefault(item.topic, []).extend(values)
    for table in tables:
        seen = changes[table.name]
        where = f"{table.create()} (CHANGEFEED_RANDOM_SEED={SEED})"
        assert dict(table.seen(change["after"]) for change in seen if change["op"] == "c") == inserted[table.name], (
            where
        )
        for change in seen:
            if change["op"] == "u":
                number, after = table.seen(change["after"])
                assert after == updated[table.name][number], where
                assert table.seen(change["before"])[1] == inserted[table.name][number], where
        deleted = dict(table.seen(change["before"]) for change in seen if change["op"] == "d")
        assert deleted == updated[table.name], where


def _schema(server: SqlServer, database: str, table: str) -> TableSchema:
    sql = (
        "SELECT column_name, data_type, column_type, collation_name FROM information_schema.columns "
        f"WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position"
    )
    rows = server.execute(sql)
    return TableSchema(
        database,
        table,
        tuple(
            Column(name, data_type.lower(), "unsigned" in full, collation) for name, data_type, full, collation in rows
        ),
        (0,),
    )


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_every_collation_of_the_server_has_a_charset(kind: str, request: pytest.FixtureRequest) -> None:
    from changefeed.binlog.events.charsets import charset_of

    server: SqlServer = request.getfixturevalue(kind)
    source = "COLLATION_CHARACTER_SET_APPLICABILITY" if isinstance(server, MariadbServer) else "collations"
    rows = server.execute(f"SELECT id, character_set_name FROM information_schema.{source} WHERE id IS NOT NULL")
    assert len(rows) > 200
    assert {collation: charset_of(int(collation)) for collation, _ in rows} == dict(rows)
