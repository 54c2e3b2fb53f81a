"""The tables of a server that a new pipeline may capture."""

from __future__ import annotations

import pytest

from changefeed.errors import SettingsError
from changefeed.model.connection import MysqlConnection
from changefeed.operations.source_tables import SourceColumn, source_columns, source_tables
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_tables_have_size_key_and_warnings(kind: str, request: pytest.FixtureRequest, unique_name: str) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.keyed (a INT, b INT, c VARCHAR(9), PRIMARY KEY (b, a))",
        f"CREATE TABLE {unique_name}.keyless (a INT)",
        f"CREATE TABLE {unique_name}.old (a INT) ENGINE = MyISAM",
        f"CREATE VIEW {unique_name}.seen AS SELECT 1",
    )
    try:
        with Session(MysqlConnection.from_uri(server.root_url)) as session:
            tables, more = source_tables(session)
            first, is_cut = source_tables(session, most=1)
            columns = source_columns(session, unique_name, "keyed")
            for missing in ((unique_name, "seen"), (unique_name, "nosuch"), ("mysql", "user")):
                with pytest.raises(SettingsError, match="which it does not have"):
                    source_columns(session, *missing)
        assert [(each.name, each.in_key, each.is_text) for each in columns] == [
            ("a", True, False), ("b", True, False), ("c", False, True),
        ]  # fmt: skip
        assert columns[2] == SourceColumn("c", "varchar(9)", in_key=False, is_text=True)
        own = {each.table: each for each in tables if each.database == unique_name}
        assert (more, len(first), is_cut) == (False, 1, True)
        assert list(own) == ["keyed", "keyless", "old"]
        assert (own["keyed"].key, own["keyed"].warnings, own["keyed"].rows) == (("b", "a"), (), 0)
        assert own["keyed"].size_bytes > 0
        assert "no primary key" in own["keyless"].warnings[0]
        assert len(own["keyless"].warnings) == 1
        assert "engine MyISAM has no consistent reads" in own["old"].warnings[1]
        assert not {each.database for each in tables} & {"sys", "performance_schema", "information_schema"}
    finally:
        server.execute(f"DROP DATABASE {unique_name}")
