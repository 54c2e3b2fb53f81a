"""Extreme values of types: the kernel's text is equal to the server's."""

from __future__ import annotations

import itertools
import json
from typing import Any

from integration.binlog_of import binlog_of

from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer


def rows_of(server: SqlServer, database: str, *statements: str) -> list[dict[str, Any]]:
    """The rows that the statements insert, as the kernel has them."""
    binlog = binlog_of(server, database, *statements)
    lookup = catalog_lookup(lambda: Session(MysqlConnection.from_uri(server.root_url)))
    messages = binlog.messages(DebeziumFormat("t", 0), lookup=lookup)
    return [json.loads(message.value or b"")["after"] for message in messages]


def test_decimals_in_json_have_all_digits_that_the_server_keeps(mysql_server: MysqlServer, unique_name: str) -> None:
    numbers = ["0", "-0.0", "0.5", "-.5", "1" + "0" * 63, "1" + "0" * 34 + "." + "0" * 29 + "1"]
    numbers += [sign + "9" * digits for digits in range(18, 82) for sign in ("", "-")]
    numbers += [f"{'7' * integers}.{'3' * digits}" for integers in (1, 9, 10, 27, 35) for digits in (1, 9, 10, 29, 30)]
    casts = ["CAST(1e63 AS DECIMAL(64,0))", "CAST(1e34 AS DECIMAL(65,30)) * 1.1", "1e0 + 0.1", "1/3", *numbers]
    rows = rows_of(
        mysql_server,
        unique_name,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a JSON)",
        *(f"INSERT INTO t (a) SELECT JSON_ARRAY({cast})" for cast in casts),
        "INSERT INTO t (a) SELECT CAST(CAST(1e63 AS DECIMAL(64,0)) AS JSON)",
    )
    there = mysql_server.execute(f"SELECT CAST(a AS CHAR) FROM {unique_name}.t ORDER BY id")
    assert [row["a"] for row in rows] == [text for (text,) in there]


def test_inet6_with_zero_groups_equals_the_servers_text(mariadb_server: MariadbServer, unique_name: str) -> None:
    groups = ["".join(group) for group in itertools.product(("0000", "00a1"), repeat=8)]
    groups += ["0" * 20 + "ffff" + last for last in ("00000000", "00010000", "00000001", "c0000201")]
    groups += ["0" * 24 + last for last in ("00010000", "c0000201", "0000c000")]
    rows = rows_of(
        mariadb_server,
        unique_name,
        "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INET6)",
        f"INSERT INTO t (a) VALUES {', '.join(f'(0x{group})' for group in groups)}",
    )
    there = mariadb_server.execute(f"SELECT CAST(a AS CHAR) FROM {unique_name}.t ORDER BY id")
    assert len(there) == len(groups)
    assert [row["a"] for row in rows] == [text for (text,) in there]


def test_the_first_second_of_1970_is_no_zero_date(mariadb_server: MariadbServer, unique_name: str) -> None:
    texts = ["0000-00-00 00:00:00", "1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.999999", "1970-01-01 00:00:01"]
    columns = [f"t{digits}" for digits in range(7)]
    definitions = ", ".join(f"{column} TIMESTAMP({column[1]}) NULL" for column in columns)
    rows = rows_of(
        mariadb_server,
        unique_name,
        "SET sql_mode = '', time_zone = '+00:00'",
        f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, {definitions})",
        *(f"INSERT INTO t ({', '.join(columns)}) VALUES ({', '.join([repr(text)] * 7)})" for text in texts),
    )
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        listed = ", ".join(f"CAST({column} AS CHAR)" for column in columns)
        cursor.execute(f"SELECT {listed} FROM {unique_name}.t ORDER BY id")
        there = [[text.replace(" ", "T") + "Z" for text in row] for row in cursor.fetchall()]
    assert there[2][6] == "1970-01-01T00:00:00.999999Z"
    assert [[row[column] for column in columns] for row in rows] == there
