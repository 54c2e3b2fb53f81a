"""Schemas read in one query are equal to those of single tables."""

from __future__ import annotations

import pytest

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql import catalog
from changefeed.source.mysql.catalog import table_schema, table_schemas
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer

TABLES = {
    "plain": "(id INT PRIMARY KEY, name VARCHAR(20) COLLATE utf8mb4_bin, KEY (name))",
    "pairs": "(a INT, b CHAR(3) CHARACTER SET latin1, c DECIMAL(9, 2) DEFAULT 1, PRIMARY KEY (b, a), UNIQUE (c))",
    "o'clock": "(line TEXT, kind ENUM('x', 'y') NOT NULL)",
    "Sums": "(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, n INT, twice BIGINT AS (n * 2) STORED)",
}


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_schemas_of_many_tables_equal_those_of_each_and_omit_missing_ones(
    kind: str, request: pytest.FixtureRequest, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    other = f"{unique_name}_2"
    for database in (unique_name, other):
        server.execute(
            f"CREATE DATABASE {database}",
            *(f"CREATE TABLE {database}.`{name}` {columns}" for name, columns in TABLES.items()),
        )
    names = [(database, table) for database in (other, unique_name) for table in (*TABLES, "gone")]
    monkeypatch.setattr(catalog, "_AT_ONCE", 3)
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        each = {name: table_schema(session, *name) for name in names}
        assert table_schemas(session, names) == {name: schema for name, schema in each.items() if schema is not None}
    server.execute(f"DROP DATABASE {unique_name}", f"DROP DATABASE {other}")
