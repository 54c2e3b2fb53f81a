"""System tables of each server, and users' tables in the database `mysql`."""

from __future__ import annotations

import pytest

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.catalog import is_own, table_names
from changefeed.source.mysql.own_tables import NOT_OWN, OWN_DATABASES
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer

SERVERS = [
    "mysql_server",
    "mariadb_server",
    *(
        pytest.param(name, marks=pytest.mark.extended)
        for name in ("mysql_57_server", "mysql_80_server", "mariadb_1011_server", "mariadb_118_server")
    ),
]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def test_only_user_tables_of_the_mysql_database_are_listed(server: SqlServer, unique_name: str) -> None:
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        own = session.rows(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema IN %s AND table_type <> 'VIEW' AND table_name NOT LIKE 't__________'",
            ("mysql", *OWN_DATABASES),
        )
        assert len(own) > 30
        assert [name for name in own if not is_own(session, *map(str, name))] == []
        shortened = session.rows(f"SELECT table_schema FROM information_schema.tables WHERE {NOT_OWN}")
        assert "sys" not in {name for (name,) in shortened}
        before = set(table_names(session))
        server.execute(f"CREATE TABLE mysql.{unique_name} (id INT PRIMARY KEY, v VARCHAR(9))")
        try:
            assert set(table_names(session)) - before == {("mysql", unique_name)}
            known = {name for name in current_schemas(session).tables if name.database == "mysql"}
            assert known == {("mysql", unique_name)}
            assert not is_own(session, "mysql", unique_name)
        finally:
            server.execute(f"DROP TABLE mysql.{unique_name}")


def test_system_table_name_of_another_release_is_free(mysql_server: SqlServer) -> None:
    with Session(MysqlConnection.from_uri(mysql_server.root_url)) as session:
        assert not is_own(session, "mysql", "proc")
        assert not is_own(session, "mysql", "column_stats")
        assert is_own(session, "mysql", "role_edges")
        assert is_own(session, "mysql", "rds_heartbeat2")
