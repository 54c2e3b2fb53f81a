"""What a statement may write besides the tables that it names, as either server says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from changefeed.ddl import SessionContext, TableName, read_statement
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session, server_of
from changefeed.source.mysql.side_effects import Reach
from devstack.sql_server import SqlServer


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest, unique_name: str) -> Iterator[SqlServer]:
    server: SqlServer = request.getfixturevalue(request.param)
    server.execute(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        f"CREATE DATABASE `{unique_name}`",
        f"USE `{unique_name}`",
        "CREATE TABLE plain (id INT PRIMARY KEY)",
        "CREATE TABLE log (id INT PRIMARY KEY)",
        "CREATE FUNCTION Noted(x INT) RETURNS INT DETERMINISTIC BEGIN INSERT INTO log VALUES (x); RETURN x; END",
        "CREATE TABLE watched (id INT PRIMARY KEY)",
        "CREATE TRIGGER logged AFTER INSERT ON watched FOR EACH ROW INSERT INTO log VALUES (NEW.id)",
        f"GRANT TRIGGER ON `{unique_name}`.* TO changefeed@'%'",
        "CREATE VIEW shown AS SELECT * FROM log",
        "CREATE TABLE child (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES plain (id) ON DELETE CASCADE)",
        "CREATE TABLE grandchild (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES child (id) ON UPDATE CASCADE)",
        "CREATE TABLE kept (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES plain (id))",
    )
    yield server
    server.execute(f"DROP DATABASE `{unique_name}`")


def test_functions_triggers_and_views_raise_doubts(server: SqlServer, unique_name: str) -> None:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        reach, context = Reach(lambda: session), SessionContext(unique_name)

        def doubt(sql: str) -> str:
            server = server_of(session)
            return reach.doubt(read_statement(sql, context, server), server)

        assert doubt("REPLACE INTO log SELECT COUNT(*), LOWER(CONV(CRC32(`id`), 10, 16)) FROM plain") == ""
        assert doubt("UPDATE mysql.rds_heartbeat2 SET value = 5") == ""
        assert "function 'noted'" in doubt("INSERT INTO log VALUES (noted(1))")
        assert "function 'noted'" in doubt("INSERT INTO log SELECT `NOTED` /* a\ncomment */ (id) FROM plain")
        assert "function 'noted'" in doubt("INSERT INTO log VALUES (noted/**//*(*/ # (\n -- (\n (1))")
        assert doubt("INSERT INTO log SELECT id FROM plain WHERE 'noted(1)' <> '' -- noted(1)") == ""
        assert "trigger 'logged'" in doubt("INSERT INTO watched VALUES (1)")
        assert "is a view" in doubt("DELETE FROM shown")
        assert "does not say" in doubt("SELECT `noted`(1)")
        assert "does not say" in doubt("FROBNICATE log")
        written_tables = reach.written_tables((TableName(unique_name, "plain"),))
        assert {name.table for name in written_tables} - {"kept"} == {"plain", "child", "grandchild"}
        assert session.is_mariadb or TableName(unique_name, "kept") not in written_tables  # MariaDB shows no rules
