"""Statements of a user who may only write rows of one table must not block readers of the binlog."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from integration.binlog.test_decode_features import decoded

from changefeed.ddl import Kind, read_statement
from devstack.sql_server import SqlServer

_ALLOWED_SECONDS = 60
_PASSWORD = "of-a-writer-1"


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest, unique_name: str) -> Iterator[SqlServer]:
    server: SqlServer = request.getfixturevalue(request.param)
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY)",
        f"CREATE USER {unique_name}@'127.0.0.1' IDENTIFIED BY '{_PASSWORD}'",
        f"GRANT SELECT, INSERT ON {unique_name}.t TO {unique_name}@'127.0.0.1'",
    )
    yield server
    server.execute(f"DROP USER {unique_name}@'127.0.0.1'", f"DROP DATABASE {unique_name}")


def test_comments_of_a_writer_do_not_stop_a_reader(server: SqlServer, unique_name: str) -> None:
    """ANALYZE TABLE requires only INSERT, and is logged verbatim: here 185 bytes that consist of comments."""
    statement = "/*x*/" * 30 + "/*! ANALYZE TABLE t */ -- " + "x" * 8

    def write(_cursor: Any) -> None:
        arguments = {"host": "127.0.0.1", "port": server.port, "user": unique_name, "password": _PASSWORD}
        with pymysql.connect(**arguments, database=unique_name) as own, own.cursor() as cursor:
            cursor.execute(statement)
            cursor.fetchall()
            cursor.execute("INSERT INTO t VALUES (1)")
            own.commit()

    def too_long(*_: Any) -> None:
        pytest.fail(f"the reader stays at {statement!r}")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(_ALLOWED_SECONDS)
    try:
        read = decoded(server, unique_name, write)
        assert read_statement(statement).kind is Kind.HARMLESS
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert [list(row["after"].values()) for row in read.values] == [[1]]
