"""A session reads what is there now, whatever the server's settings make of other clients."""

from __future__ import annotations

import pytest

from changefeed.connection import MysqlConnection
from changefeed.mysql.session import Session
from devstack.sql_server import SqlServer


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_a_session_sees_later_definitions_and_rows_where_the_server_s_autocommit_is_off(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    server.execute(f"CREATE DATABASE {unique_name}", "SET GLOBAL autocommit = 0")
    columns = f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{unique_name}' ORDER BY 1"
    try:
        with Session(MysqlConnection.from_uri(server.url)) as session:
            assert session.rows(columns) == []
            server.execute("SET autocommit = 1", f"CREATE TABLE {unique_name}.t (a INT)")
            assert session.rows(columns) == [("a",)]
            server.execute("SET autocommit = 1", f"INSERT INTO {unique_name}.t VALUES (1)")
            assert session.rows(f"SELECT a FROM {unique_name}.t") == [(1,)]
            server.execute("SET autocommit = 1", f"ALTER TABLE {unique_name}.t ADD b INT")
            assert session.rows(columns) == [("a",), ("b",)]
    finally:
        server.execute("SET GLOBAL autocommit = 1", f"DROP DATABASE {unique_name}")
