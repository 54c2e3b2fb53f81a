"""A follower stops before a change of rows that it cannot repeat, and continues after one snapshot of the table."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.replicate.test_follower_filled import Filled, Killer

from changefeed.errors import SettingsError
from changefeed.replicate.run import ReplicationResult
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


@pytest.fixture(params=["mysql", "mariadb"])
def filled(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Filled]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Filled(unique_name, source, follower, kafka_broker, tmp_path)
    source.execute(f"CREATE DATABASE {unique_name}_a")
    yield made
    made.drop()


on_mysql = pytest.mark.parametrize("filled", ["mysql"], indirect=True)
on_mariadb = pytest.mark.parametrize("filled", ["mariadb"], indirect=True)


def run(filled: Filled, *statements: str) -> None:
    """Run statements in one session in the database."""
    filled.source.execute(f"USE {filled.name}_a", *statements)


def make_table(filled: Filled, table: str, key: str = "") -> None:
    """Create a table on both servers; without a key, the follower has its rows in another order."""
    rows = ", ".join(f"({number}, {number % 5})" for number in range(60))
    run(filled, f"CREATE TABLE {table} (a INT{key}, n INT)", f"INSERT INTO {table} VALUES {rows}")
    filled.publish()
    filled.follow()
    run(filled, f"DELETE FROM {table} WHERE a = 1", f"INSERT INTO {table} VALUES (1, 1)")


def stop_message(filled: Filled, **options: bool) -> list[str]:
    """Check that the follower stops in each run; return the tables of the snapshot that its message asks for."""
    filled.publish()
    before = filled.tables(filled.follower)
    with pytest.raises(SettingsError, match=r"does not have its effect on each row|in statement format"):
        filled.follow(**options)
    with pytest.raises(SettingsError, match=f"`changefeed snapshot {filled.name} ") as caught:
        filled.follow(**options)
    assert filled.tables(filled.follower).keys() == before.keys(), "nothing was dropped"
    return re.findall(r"--tables (\S+[^`, ])", str(caught.value))


def fill_anew(filled: Filled, tables: list[str], number: int, *beside: str, **options: bool) -> ReplicationResult:
    """Take one snapshot of the tables, while the source runs statements."""
    for _ in filled.snapshot(str(number), tables=tables):
        run(filled, *beside)
        filled.publish()
    run(filled, *beside)
    filled.publish()
    done = filled.follow(**options)
    assert done.waiting == ()
    filled.check()
    return done


def test_rows_with_nondeterministic_values_are_filled_by_one_snapshot(filled: Filled) -> None:
    database = f"{filled.name}_a"
    chance = "UUID()" if isinstance(filled.source, MariadbServer) else "CONNECTION_ID()"
    make_table(filled, "numbered")
    make_table(filled, "other", " PRIMARY KEY")
    run(filled, "ALTER TABLE numbered ADD id INT AUTO_INCREMENT PRIMARY KEY", "UPDATE other SET n = n + 1")
    run(filled, "UPDATE numbered SET n = 70 WHERE id < 5")
    assert stop_message(filled) == [f"{database}.numbered"]
    change = "UPDATE numbered SET n = n + 1 WHERE id % 7 = 3"
    fill_anew(filled, [f"{database}.numbered"], 1, change, "DELETE FROM numbered WHERE a > 30 LIMIT 1")
    run(filled, change, f"ALTER TABLE other ADD c VARCHAR(40) DEFAULT ({chance})", "UPDATE other SET n = 4 WHERE a = 2")
    assert stop_message(filled) == [f"{database}.other"]
    fill_anew(filled, [f"{database}.other"], 2, change, "UPDATE other SET n = n + 1 WHERE a % 7 = 3")
    run(filled, change, "UPDATE other SET c = 'ours' WHERE a = 3")
    filled.publish()
    filled.follow()
    filled.check()


def test_table_renamed_since_is_filled_under_its_current_name(filled: Filled) -> None:
    database = f"{filled.name}_a"
    make_table(filled, "gone")
    run(filled, "ALTER TABLE gone ADD id INT AUTO_INCREMENT PRIMARY KEY", "UPDATE gone SET n = 5 WHERE id = 1")
    run(filled, "RENAME TABLE gone TO gone2", "DROP TABLE gone2")
    filled.publish()
    assert filled.follow().waiting == (), "no snapshot is needed of a table that is dropped"
    filled.check()
    make_table(filled, "old")
    run(filled, "ALTER TABLE old ADD id INT AUTO_INCREMENT PRIMARY KEY, RENAME TO middle", "RENAME TABLE middle TO new")
    run(
        filled,
        "UPDATE new SET n = 5 WHERE id = 1",
        "CREATE TABLE old (a INT PRIMARY KEY)",
        "INSERT INTO old VALUES (1)",
    )
    assert stop_message(filled) == [f"{database}.new"]
    fill_anew(filled, [f"{database}.new"], 1, "UPDATE new SET n = n + 1 WHERE id % 7 = 3")


def test_deterministic_ddl_is_run(filled: Filled) -> None:
    """InnoDB numbers rows in the order of the primary key, or of a unique key without NULL, also with parallel
    reads."""
    rows = ", ".join(f"({number * 7919 % 20011}, {number})" for number in range(20_000))
    run(filled, "CREATE TABLE keyed (a INT PRIMARY KEY, n INT)", f"INSERT INTO keyed VALUES {rows}")
    run(filled, "CREATE TABLE uniquely (a INT NOT NULL, n INT, UNIQUE (a))", f"INSERT INTO uniquely VALUES {rows}")
    make_table(filled, "keyless")
    make_table(filled, "counted")
    run(filled, "CREATE TABLE nothing (a INT)", "CREATE TABLE one (a INT)", "INSERT INTO one VALUES (1)")
    for table in ("keyed", "uniquely"):
        run(filled, f"DELETE FROM {table} WHERE a % 3 = 1", f"INSERT INTO {table} SELECT a + 30000, n FROM {table}")
        run(filled, f"UPDATE {table} SET a = 200000 - a WHERE a % 5 = 1")
    filled.publish()
    filled.follow()
    run(
        filled,
        "ALTER TABLE keyed ADD id INT AUTO_INCREMENT UNIQUE",
        "ALTER TABLE uniquely ADD id INT AUTO_INCREMENT PRIMARY KEY",
        "ALTER TABLE nothing ADD id INT AUTO_INCREMENT PRIMARY KEY",
        "ALTER TABLE one ADD id INT AUTO_INCREMENT PRIMARY KEY",
        "ALTER TABLE keyless ADD c VARCHAR(9) DEFAULT 'é', ADD d INT NOT NULL, ADD e DATETIME(6) DEFAULT NOW(6)",
        "ALTER TABLE keyless ADD f VARCHAR(40) AS (CONCAT(a, 'x')) STORED, ADD g DOUBLE AS (a / 7) VIRTUAL",
        "ALTER TABLE keyless ADD h VARCHAR(40) DEFAULT (CONCAT(a, 'y')), ADD i DATETIME(6) DEFAULT (UTC_TIMESTAMP(6))",
        "DELETE FROM counted WHERE a = 0",
        "ALTER TABLE counted MODIFY a INT AUTO_INCREMENT PRIMARY KEY",
    )
    filled.publish()
    filled.follow()
    filled.check()


@pytest.mark.long
@on_mariadb
def test_child_tables_of_unlogged_cascades_are_filled_with_their_parent(filled: Filled) -> None:
    database = f"{filled.name}_a"
    make_table(filled, "parents", " PRIMARY KEY")
    run(
        filled,
        "CREATE TABLE children (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parents (a) ON DELETE CASCADE)",
    )
    run(filled, "INSERT INTO children SELECT a, a FROM parents")
    filled.publish()
    filled.follow()
    run(filled, "ALTER TABLE parents ADD c UUID DEFAULT UUID()", "DELETE FROM parents WHERE a = 7")
    assert stop_message(filled) == [f"{database}.parents", f"{database}.children"]
    with pytest.raises(SettingsError, match=f"--tables {database}.children`"):
        fill_anew(filled, [f"{database}.parents"], 1)
    fill_anew(filled, [f"{database}.children"], 2)


@on_mariadb
def test_sequence_numbers_are_filled_and_the_sequence_continues_alike(filled: Filled) -> None:
    make_table(filled, "numbered", " PRIMARY KEY")
    run(filled, "CREATE SEQUENCE s", "SELECT NEXTVAL(s)")
    run(filled, "ALTER TABLE numbered ADD c INT DEFAULT NEXTVAL(s)", "INSERT INTO numbered (a) VALUES (1000)")
    assert stop_message(filled) == [f"{filled.name}_a.numbered"]
    fill_anew(filled, [f"{filled.name}_a.numbered"], 1, "INSERT INTO numbered (a) SELECT MAX(a) + 1 FROM numbered")
    table = f"SELECT * FROM {filled.name}_a.s"
    assert list(filled.follower.execute(table)) == list(filled.source.execute(table))


@pytest.mark.long
@on_mysql
def test_a_partition_is_exchanged_with_a_table_that_is_to_be_filled(filled: Filled) -> None:
    """Without the snapshot the other table would silently stay as it was."""
    database = f"{filled.name}_a"
    make_table(filled, "numbered")
    parts = "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (900))"
    columns = "a INT, n INT, id INT NOT NULL AUTO_INCREMENT PRIMARY KEY"
    run(filled, f"CREATE TABLE parted ({columns}) {parts}", "INSERT INTO parted VALUES (1, 1, 1)")
    filled.publish()
    filled.follow()
    run(filled, "ALTER TABLE numbered ADD id INT NOT NULL AUTO_INCREMENT PRIMARY KEY")
    run(filled, "ALTER TABLE parted EXCHANGE PARTITION p WITH TABLE numbered")
    assert stop_message(filled) == [f"{database}.numbered"]
    with pytest.raises(SettingsError, match=rf"and tables that the follower has.* --tables {database}\.parted`"):
        fill_anew(filled, [f"{database}.numbered"], 1)
    fill_anew(filled, [f"{database}.parted"], 2)


@pytest.mark.long
@on_mariadb
def test_table_from_partition_of_table_to_fill_comes_with_a_snapshot(filled: Filled) -> None:
    database = f"{filled.name}_a"
    run(
        filled,
        "CREATE TABLE parted (a INT PRIMARY KEY) PARTITION BY RANGE (a) "
        "(PARTITION p VALUES LESS THAN (10), PARTITION q VALUES LESS THAN MAXVALUE)",
        "INSERT INTO parted VALUES (1), (2), (30)",
    )
    filled.publish()
    filled.follow()
    run(filled, "ALTER TABLE parted ADD c UUID DEFAULT UUID()", "ALTER TABLE parted CONVERT PARTITION p TO TABLE made")
    run(filled, "UPDATE made SET a = 3 WHERE a = 2")
    assert stop_message(filled) == [f"{database}.parted"]
    fill_anew(filled, [f"{database}.parted", f"{database}.made"], 1, "UPDATE made SET c = UUID()")


def test_refused_statements_are_resolved_by_one_snapshot(filled: Filled) -> None:
    filled.configure(statements="publish")
    database = f"{filled.name}_a"
    make_table(filled, "one", " PRIMARY KEY")
    make_table(filled, "two", " PRIMARY KEY")
    run(
        filled,
        "UPDATE two SET n = n + 1",
        "SET SESSION binlog_format = STATEMENT",
        "INSERT INTO one SELECT a + 1000, n FROM two WHERE a < 3",
        "UPDATE one SET n = n + 1",
        "UPDATE two SET n = n + 1 WHERE a < 9",
        "CREATE TABLE made AS SELECT * FROM two",
    )
    assert stop_message(filled, runs_statements=True) == [f"{database}.one"]
    with pytest.raises(SettingsError, match=rf"--tables {database}\.made`"):
        fill_anew(filled, [f"{database}.one"], 1, runs_statements=True)
    fill_anew(filled, [f"{database}.made"], 2, "UPDATE two SET n = n - 1", runs_statements=True)


def test_follower_killed_while_it_refills_ends_as_the_source(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"anew:{type(filled.source).__name__}")
    database = f"{filled.name}_a"
    make_table(filled, "numbered")
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 10)
    run(filled, "ALTER TABLE numbered ADD id INT AUTO_INCREMENT PRIMARY KEY")
    filled.publish()
    killer = Killer(monkeypatch, rng)
    for _ in filled.snapshot("1", tables=[f"{database}.numbered"]):
        run(filled, "UPDATE numbered SET n = n + 1 WHERE id % 7 = 3", "DELETE FROM numbered WHERE a > 30 LIMIT 1")
        filled.publish()
        killer.follow(filled)
    run(filled, "UPDATE numbered SET n = n + 1 WHERE id % 7 = 3")
    filled.publish()
    while (done := killer.follow(filled)) is None:
        pass
    assert killer.kills > 0
    assert done.waiting == ()
    filled.check()


BROUGHT = {
    "altered": ["ALTER TABLE _altered ADD v INT", "RENAME TABLE altered TO _before, _altered TO altered"],
    "back": [
        "RENAME TABLE back TO _hidden",
        "INSERT INTO _hidden VALUES (8), (9)",
        "DELETE FROM _hidden WHERE id = 1",
        "RENAME TABLE _hidden TO back",
    ],
    "swapped": ["ALTER TABLE swapped RENAME TO _away", "ALTER TABLE _swapped RENAME TO swapped"],
    "parted": ["ALTER TABLE parted EXCHANGE PARTITION p WITH TABLE _parted"],
    "like": ["ALTER TABLE _like ADD v INT", "DROP TABLE `like`", "CREATE TABLE `like` LIKE _like"],
}
"""DDL that makes the table with that name from a table that the pipeline does not capture."""


@pytest.mark.long
def test_tables_from_uncaptured_tables_come_with_a_snapshot(filled: Filled) -> None:
    """As online schema change tools do. The follower does not have such a table, or only an outdated copy."""
    filled.configure(tables={"include": [f"{filled.name}*.*"], "exclude": [f"{filled.name}*._*"]})
    for table in BROUGHT:
        parts = " PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (100))" if table == "parted" else ""
        run(filled, f"CREATE TABLE `{table}` (id INT PRIMARY KEY){parts}", f"INSERT INTO `{table}` VALUES (1), (2)")
        run(filled, f"CREATE TABLE _{table} (id INT PRIMARY KEY)", f"INSERT INTO _{table} VALUES (3)")
    filled.publish()
    filled.follow()
    for number, (table, statements) in enumerate(BROUGHT.items()):
        run(filled, *statements, f"UPDATE `{table}` SET id = id + 10 ORDER BY id DESC")
        filled.publish()
        for _ in range(2):
            asked = rf"does not capture.*`changefeed snapshot \S+ --tables {filled.name}_a\.{table}`"
            with pytest.raises(SettingsError, match=asked):
                filled.follow()
        for _ in filled.snapshot(str(number), tables=[f"{filled.name}_a.{table}"]):
            filled.publish()
        run(filled, f"INSERT INTO `{table}` (id) VALUES (50)", f"DELETE FROM `{table}` WHERE id < 13")
        filled.publish()
        assert filled.follow().waiting == ()
        name = f"`{filled.name}_a`.`{table}`"
        assert filled.tables(filled.follower)[name] == filled.tables(filled.source)[name]


@pytest.mark.parametrize(
    ("columns", "row", "remedy"),
    [
        ("a INT, c VARCHAR(3) AS (a) STORED", "99999", "MODIFY c VARCHAR(3)"),
        (
            "a TIMESTAMP NULL, CONSTRAINT late CHECK (EXTRACT(HOUR FROM a) > 9)",
            "'2026-01-01 20:30:00'",
            "DROP CHECK late",
        ),
    ],
    ids=["generated", "check"],
)
@on_mysql
def test_row_refused_by_the_followers_session_comes_with_a_snapshot(
    filled: Filled, columns: str, row: str, remedy: str
) -> None:
    run(filled, "SET sql_mode = ''", f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, {columns})")
    filled.publish()
    filled.follow()
    run(filled, "SET sql_mode = '', time_zone = '+11:00'", f"INSERT INTO t (a) VALUES ({row})")
    for statements in ([], [f"ALTER TABLE t {remedy}"]):
        run(filled, *statements)
        filled.publish()
        with pytest.raises(SettingsError, match=rf"On the source, .*--tables {filled.name}_a\.t`"):
            filled.follow()
    fill_anew(filled, [f"{filled.name}_a.t"], 1, "INSERT INTO t (a) VALUES (NULL)")
