"""MariaDB's system-versioned tables: upserts of the messages result in the rows of a SELECT, or in all their
versions."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from integration.binlog_of import SERVER_UUID, Binlog, binlog_of

from changefeed.errors import SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.message_key import KeyRule
from changefeed.model.route import Route
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.reference.reader import ReferenceReader
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer

EXPLICIT = (
    "s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
    "PERIOD FOR SYSTEM_TIME (s, e)"
)
TABLES = {
    "plain": "x INT PRIMARY KEY, y INT, b BLOB",
    "long_key": "x INT, y INT, b BLOB, k INT DEFAULT 5, PRIMARY KEY (k, x)",
    "named": f"x INT PRIMARY KEY, y INT, b BLOB, {EXPLICIT}",
    "named_first": f"{EXPLICIT}, x INT, y INT, b BLOB, PRIMARY KEY (x)",
    "invisible": f"x INT PRIMARY KEY, y INT, b BLOB, {EXPLICIT}".replace("START,", "START INVISIBLE,"),
    "partly": "x INT PRIMARY KEY, y INT WITHOUT SYSTEM VERSIONING, b BLOB",
    "by_unique_key": "x INT NOT NULL UNIQUE, y INT, b BLOB",
    "with_hash": "x INT PRIMARY KEY, y INT, b BLOB, long_text TEXT UNIQUE",
    "of_uuids": "x INT PRIMARY KEY, y INT, b BLOB, u UUID DEFAULT '123e4567-e89b-12d3-a456-426655440000'",
    "in_partitions": "x INT PRIMARY KEY, y INT, b BLOB",
}
PARTITIONS = {"in_partitions": "PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT)"}


def definition(name: str) -> str:
    return f"CREATE TABLE {name} ({TABLES[name]}) WITH SYSTEM VERSIONING {PARTITIONS.get(name, '')}"


def changes(table: str, rng: random.Random, *, moving_keys: bool) -> Iterator[str]:
    """Statements that write current rows, and history."""

    def row() -> str:
        return f"({rng.randrange(8)}, {rng.randrange(100)}, REPEAT('b', {rng.randrange(5)}))"

    for _ in range(40):
        x, other = rng.randrange(8), rng.randrange(8)
        yield rng.choice(
            [
                f"INSERT IGNORE INTO {table} (x, y, b) VALUES {row()}, {row()}",
                f"INSERT INTO {table} (x, y, b) VALUES {row()} ON DUPLICATE KEY UPDATE y = y + 1",
                f"REPLACE INTO {table} (x, y, b) VALUES {row()}",
                f"UPDATE {table} SET y = y + 1 WHERE x IN ({x}, {other})",
                f"UPDATE {table} SET y = y WHERE x = {x}",
                f"UPDATE {table} SET b = CONCAT(b, 'c')",
                f"UPDATE IGNORE {table} SET {f'x = {other}' if moving_keys else 'y = 7'} WHERE x = {x}",
                f"DELETE FROM {table} WHERE x = {x}",
                f"UPDATE (SELECT 1 AS a) AS o LEFT JOIN {table} AS v ON v.x = {x} SET v.y = v.y + 1",
                f"DELETE HISTORY FROM {table}",
                f"BEGIN; UPDATE {table} SET y = 1 WHERE x = {x}; DELETE FROM {table} WHERE x = {other}; COMMIT",
            ]
        )


def upserted(binlog: Binlog, server: MariadbServer, *, with_history: bool) -> dict[str, dict[str, dict[str, Any]]]:
    """By topic the rows by their keys that the messages leave."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    lookup = catalog_lookup(lambda: Session(MysqlConnection.from_uri(server.root_url)))
    route = {"with_history": with_history, "key": KeyRule(keyless="unique")}
    for block in binlog.blocks(DebeziumFormat("t", 0), lookup=lookup, route=route):
        rows = tables.setdefault(block.topic, {})
        for message in block.messages():
            assert message.key is not None
            key = message.key.decode()
            change = json.loads(message.value) if message.value is not None else {"op": "d"}
            if change["op"] == "d":
                rows.pop(key, None)
            else:
                rows[key] = rows.get(key, {}) | change["after"]
    return tables


def selected(server: MariadbServer, database: str, table: str, what: str = "*", of: str = "") -> list[dict[str, Any]]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT {what} FROM {database}.{table} {of}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, map(plain, row), strict=True)) for row in cursor.fetchall()]


def plain(value: Any) -> Any:
    import base64

    match value:
        case datetime.datetime():
            return value.isoformat(timespec="microseconds") + "Z"
        case bytes():
            return base64.b64encode(value).decode()
    return value


def ordered(rows: Any) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def compared(rows: dict[str, dict[str, Any]], there: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the columns that a SELECT gave; NOBLOB logs no BLOB of a new row that is NULL. Only the hash of a long
    unique key is more than those."""
    names = there[0].keys() if there else {}
    assert all(row.keys() - names <= {"DB_ROW_HASH_1"} for row in rows.values())
    return [{name: row.get(name) for name in names} for row in rows.values()]


def written(server: MariadbServer, database: str, image: str) -> Binlog:
    """A binlog of the same random changes to all TABLES."""
    rng = random.Random(f"versions:{image}")
    statements = [f"SET binlog_row_image = {image}, timestamp = 1700000000"]
    now = 1_700_000_000
    for table in TABLES:
        statements.append(definition(table))
        # Of a row whose key changes NOBLOB logs no blob that stays the same.
        for change in changes(table, rng, moving_keys=image != "NOBLOB"):
            for statement in change.split("; "):
                now += 1
                statements += [f"SET timestamp = {now}", statement]
    return binlog_of(server, database, *statements)


@pytest.mark.parametrize("image", ["FULL", "NOBLOB", "MINIMAL"])
@pytest.mark.parametrize("kind", ["full_mariadb_server", "mariadb_server"])
def test_rows_upserted_by_key_are_what_select_has(
    kind: str, image: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: MariadbServer = request.getfixturevalue(kind)
    binlog = written(server, unique_name, image)
    current = upserted(binlog, server, with_history=False)
    versions = upserted(binlog, server, with_history=True)
    for table in TABLES:
        topic = f"{unique_name}.{table}"
        what = "*, s" if table == "invisible" else "*"
        there = selected(server, unique_name, table, what)
        assert ordered(compared(current[topic], there)) == ordered(there), table
        assert all("row_end" not in key and '"e"' not in key for key in current[topic]), table
        if image == "NOBLOB":
            continue  # to become history is a change of the key
        what = what if "TIMESTAMP" in TABLES[table] else "*, row_start, row_end"
        there = selected(server, unique_name, table, what, "FOR SYSTEM_TIME ALL")
        assert ordered(compared(versions[topic], there)) == ordered(there), table


def test_table_that_loses_versioning_keeps_its_keys_and_rows(
    full_mariadb_server: MariadbServer, mariadb_server: MariadbServer, unique_name: str
) -> None:
    for server in (full_mariadb_server, mariadb_server):
        binlog = binlog_of(
            server,
            unique_name,
            "SET system_versioning_alter_history = KEEP",
            "CREATE OR REPLACE TABLE t (x INT PRIMARY KEY, y INT)",
            "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
            "ALTER TABLE t ADD SYSTEM VERSIONING",
            "UPDATE t SET y = 10 WHERE x = 1",
            "DELETE FROM t WHERE x = 2",
            "ALTER TABLE t PARTITION BY SYSTEM_TIME (PARTITION p0 HISTORY, PARTITION pn CURRENT)",
            "UPDATE t SET y = 11 WHERE x = 1",
            "ALTER TABLE t REMOVE PARTITIONING",
            "INSERT INTO t VALUES (4, 4)",
            "ALTER TABLE t DROP SYSTEM VERSIONING",
            "UPDATE t SET y = 30 WHERE x = 3",
            "DELETE FROM t WHERE x = 4",
        )
        rows = upserted(binlog, server, with_history=False)[f"{unique_name}.t"]
        assert rows == {'{"x":1}': {"x": 1, "y": 11}, '{"x":3}': {"x": 3, "y": 30}}
        assert ordered(rows.values()) == ordered(selected(server, unique_name, "t"))


def test_history_is_counted_as_left_out_and_makes_no_message(
    full_mariadb_server: MariadbServer, unique_name: str
) -> None:
    binlog = binlog_of(
        full_mariadb_server,
        unique_name,
        "CREATE TABLE t (x INT PRIMARY KEY) WITH SYSTEM VERSIONING",
        "INSERT INTO t VALUES (1), (2)",
        "UPDATE t SET x = x + 10",
        "DELETE FROM t WHERE x = 11",
        "DELETE HISTORY FROM t",
    )
    route = {"with_history": False}
    messages = binlog.messages(DebeziumFormat("t", 0), route=route)
    ops = [json.loads(message.value)["op"] if message.value is not None else "-" for message in messages]
    assert ops == ["c", "c", "d", "-", "c", "d", "-", "c", "d", "-"]
    (report,) = binlog.reports(DebeziumFormat("t", 0), route=route)
    name = f"{unique_name}.t"
    assert report.rows[name] == {"c": 2, "u": 2, "d": 1}
    assert report.filtered[name] == {"c": 2, "d": 3}


def test_versions_by_transaction_are_logged_as_statements(full_mariadb_server: MariadbServer, unique_name: str) -> None:
    binlog = binlog_of(
        full_mariadb_server,
        unique_name,
        "CREATE TABLE t (x INT PRIMARY KEY, s BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, "
        "e BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING",
        "INSERT INTO t (x) VALUES (1)",
    )
    assert binlog.messages(DebeziumFormat("t", 0)) == []
    (report,) = binlog.reports(DebeziumFormat("t", 0))
    assert [statement.sql[:6] for statement in report.statements] == ["CREATE", "INSERT"]


@pytest.mark.parametrize("kind", ["full_mariadb_server", "mariadb_server"])
@pytest.mark.parametrize("table", ["plain", "named"])
def test_the_reference_reader_refuses_tables_with_history(
    kind: str, table: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: MariadbServer = request.getfixturevalue(kind)
    binlog = binlog_of(server, unique_name, definition(table), f"INSERT INTO {table} (x) VALUES (1)")
    reader = ReferenceReader(
        [binlog.data[FIRST_POSITION:]],
        is_mariadb=True,
        version=(11, 4),
        server_uuid=SERVER_UUID,
        router=lambda _database, name: Route(name, 1, with_history=False),
        schemas=catalog_lookup(lambda: Session(MysqlConnection.from_uri(server.root_url))),
        format=DebeziumFormat("t", 0),
    )
    with pytest.raises(SchemaError, match=r"is system-versioned|with 5 columns, and the server says it has 3"):
        list(reader.read(binlog.slice))
