"""`freeze_schema`: rows are read by the first run's schemas, and a TABLE_MAP that contradicts them fails a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from faults.feed import Feed, Runner
from faults.test_schema_moments import asked, begin_here, rows, sql, tried
from integration.random_tables import RandomTable, column_makers, columns_of_all_charsets
from seeds import of_this_test

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

FROZEN = {"freeze_schema": True, "publish_ddl": "off"}
WITHOUT_NAMES = ("mysql_server", "mariadb_server")
WITH_NAMES = ("full_mysql_server", "full_mariadb_server")
CONTRADICTIONS = {
    "MODIFY a BIGINT": "expected `a` as column 2, found bigint[0]",
    "MODIFY a INT UNSIGNED": "expected `a` as column 2, found int[0] unsigned",
    "MODIFY t DATETIME(6)": "column 4",
    "MODIFY d DECIMAL(12, 2)": "column 5 'd': expected precision 10, found 12",
    "DROP COLUMN n": "expected 5 columns, found 4",
    "RENAME COLUMN a TO b": "column 2 'a': expected name 'a', found 'b'",
    "DROP PRIMARY KEY": "expected primary key ['id'], found []",
}
NEEDS_NAMES = ("RENAME COLUMN a TO b", "DROP PRIMARY KEY")
NEEDS_SIGNS = ("MODIFY a INT UNSIGNED",)


@pytest.fixture
def frozen(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed with frozen schemas."""
    server: SqlServer = request.getfixturevalue(request.param)
    feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
    server.execute("FLUSH BINARY LOGS")
    begin_here(feed, topics={"partitions": 1}, **FROZEN)
    yield feed
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


@pytest.mark.long
@pytest.mark.parametrize("frozen", WITHOUT_NAMES, indirect=True)
def test_ddl_invisible_in_rows_keeps_the_frozen_names(frozen: Feed) -> None:
    sql(frozen, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)")
    frozen.run()
    sql(frozen, "ALTER TABLE t RENAME COLUMN a TO b", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (2, 20)",
        "CREATE TABLE made_later (id INT PRIMARY KEY, x INT)", "INSERT INTO made_later VALUES (1, 5)")  # fmt: skip
    frozen.run()
    sql(frozen, "ALTER TABLE made_later RENAME COLUMN x TO y", "INSERT INTO made_later VALUES (2, 6)")
    sql(frozen, "DROP TABLE t", "CREATE TABLE t (other INT PRIMARY KEY, names INT)")
    sql(frozen, "INSERT INTO t VALUES (3, 30)")
    frozen.run()
    assert rows(frozen, "t") == [{"id": 1, "a": 10}, {"id": 2, "a": 20}, {"id": 3, "a": 30}]
    assert rows(frozen, "made_later") == [{"id": 1, "x": 5}, {"id": 2, "x": 6}]


@pytest.mark.parametrize("frozen", [*WITHOUT_NAMES, *WITH_NAMES], indirect=True)
def test_rows_that_contradict_the_frozen_schema_fail_the_run(frozen: Feed) -> None:
    server, version = frozen.mysql, str(frozen.mysql.execute("SELECT VERSION()")[0][0])
    metadata = str(server.execute("SELECT @@GLOBAL.binlog_row_metadata")[0][0])
    cases = {
        clause: text
        for clause, text in CONTRADICTIONS.items()
        if not (clause in NEEDS_NAMES and metadata != "FULL") and not (clause in NEEDS_SIGNS and metadata == "NO_LOG")
    }
    table = "(id INT PRIMARY KEY, a INT, n VARCHAR(20), t DATETIME, d DECIMAL(10, 2))"
    for number in range(len(cases)):
        sql(frozen, f"CREATE TABLE t{number} {table}", f"INSERT INTO t{number} (id) VALUES (1)")
    frozen.run()
    for number, (clause, expected) in enumerate(cases.items()):
        sql(frozen, f"ALTER TABLE t{number} {clause}", f"INSERT INTO t{number} (id) VALUES (2)")
        code, text = tried(frozen)
        assert code == 2, (version, clause, text)
        assert f"{frozen.name}.t{number} contradict" in text, (version, clause, text)
        assert expected in text, (version, clause, text)
        code, text = asked(frozen, "schema", frozen.name, "--relearn", f"{frozen.name}.t{number}")
        assert code == 0, text
        frozen.run()
        assert len(rows(frozen, f"t{number}")) == 2


@pytest.mark.parametrize("frozen", WITHOUT_NAMES, indirect=True)
def test_rows_before_a_seek_back_use_the_frozen_schema(frozen: Feed) -> None:
    earlier = frozen.settings["start"]
    sql(frozen, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)",
        "ALTER TABLE t RENAME COLUMN a TO b")  # fmt: skip
    begin_here(frozen)
    sql(frozen, "INSERT INTO t VALUES (2, 20)")
    frozen.run()
    sql(frozen, "ALTER TABLE t RENAME COLUMN b TO c")
    code, text = asked(frozen, "seek", frozen.name, earlier, "--why", "a test", "--yes")
    assert code == 0, text
    frozen.run()
    assert rows(frozen, "t") == [{"id": 2, "b": 20}, {"id": 1, "b": 10}, {"id": 2, "b": 20}]


@pytest.mark.parametrize("frozen", WITHOUT_NAMES, indirect=True)
def test_removing_the_setting_resumes_following_ddl(frozen: Feed) -> None:
    sql(frozen, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)")
    frozen.run()
    sql(frozen, "ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (2, 20)")
    frozen.run()
    begin_here(frozen, freeze_schema=False)
    sql(frozen, "INSERT INTO t VALUES (3, 30)", "ALTER TABLE t ADD c INT", "INSERT INTO t VALUES (4, 40, 4)")
    frozen.run()
    begin_here(frozen, freeze_schema=True)
    sql(frozen, "INSERT INTO t VALUES (5, 50, 5)")
    frozen.run()
    found = [list(row) for row in rows(frozen, "t")]
    assert found == [["id", "a"], ["id", "a"], ["id", "b"], ["id", "b", "c"], ["id", "b", "c"]]


@pytest.mark.parametrize("frozen", [*WITHOUT_NAMES, *WITH_NAMES], indirect=True)
def test_tables_of_all_types_do_not_contradict_themselves(frozen: Feed) -> None:
    rng, is_mariadb = of_this_test(), isinstance(frozen.mysql, MariadbServer)
    tables = [
        RandomTable(frozen.name, f"of_{kind}", [make(rng, f"c{number}") for number in range(6)])
        for kind, make in column_makers(is_mariadb).items()
    ]
    texts = columns_of_all_charsets(rng, is_mariadb)
    charsets = [replace(column, name=f"c{number}") for number, column in enumerate(texts)]
    tables.append(RandomTable(frozen.name, "of_charsets", charsets))
    for table in tables:
        frozen.mysql.execute(table.create())
        for key in range(3):
            frozen.mysql.execute(
                "SET SESSION sql_mode = ''",
                f"INSERT INTO {table.qualified} VALUES ({key}, {', '.join(table.literals(rng))})",
            )
    frozen.run()
    assert {table.name: len(rows(frozen, table.name)) for table in tables} == {table.name: 3 for table in tables}
