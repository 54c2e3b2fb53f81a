"""Rare tables, rows and DDL: a follower has them as the source does, or reports why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.replicate.test_follower_filled import Filled
from run_verify import run_verify

from changefeed.errors import FollowerError, SchemaError, SettingsError
from changefeed.operations.finding import Level
from changefeed.operations.source_checks import SourceContext, check_source
from changefeed.verify.key_comparison import ResultKind
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Filled]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Filled(unique_name, source, follower, kafka_broker, tmp_path)
    source.execute(f"CREATE DATABASE {unique_name}_a")
    yield made
    made.drop()


on_mysql = pytest.mark.parametrize("followed", ["mysql"], indirect=True)
on_mariadb = pytest.mark.parametrize("followed", ["mariadb"], indirect=True)


def run(followed: Filled, *statements: str) -> None:
    """Run statements in one session in the database, publish and follow."""
    followed.source.execute(f"USE {followed.name}_a", *statements)
    followed.publish()
    followed.follow()


def snapshot_and_verify(followed: Filled) -> None:
    """Take a snapshot of the tables, and check that verify finds their records equal."""
    for _ in followed.snapshot("1"):
        followed.publish()
    followed.publish()
    report = run_verify(followed.connections)
    outcomes = {table.name.partition(".")[2]: table.outcome for table in report.tables}
    assert outcomes == {name: "incomplete" if name == "keyless" else "equal" for name in outcomes}, report
    assert {kind for table in report.tables for kind in +table.kinds} == {ResultKind.EQUAL}


@on_mysql
def test_a_primary_key_with_a_stored_column(followed: Filled) -> None:
    run(
        followed,
        "CREATE TABLE one (a INT NOT NULL, g INT AS (a + 1) STORED PRIMARY KEY, b INT)",
        "CREATE TABLE two (a INT NOT NULL, g VARCHAR(20) AS (CONCAT('é', a)) STORED, b INT, PRIMARY KEY (b, g))",
        "INSERT INTO one (a, b) VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO two (a, b) VALUES (1, 1), (2, 2), (3, 3)",
    )
    for table in ("one", "two"):
        run(
            followed,
            f"UPDATE {table} SET b = 5 WHERE a = 1",
            f"DELETE FROM {table} WHERE a = 2",
            f"UPDATE {table} SET a = 9 WHERE a = 3",
            "SET binlog_row_image = MINIMAL",
            f"UPDATE {table} SET a = 8 WHERE a = 1",
            f"INSERT INTO {table} (a, b) VALUES (7, 7)",
            f"DELETE FROM {table} WHERE a = 9",
        )
    followed.check()
    snapshot_and_verify(followed)


@on_mariadb
def test_a_unique_key_that_is_too_long_for_an_index(followed: Filled) -> None:
    run(
        followed,
        "CREATE TABLE keyed (a INT PRIMARY KEY, b TEXT, c BLOB, UNIQUE (b), UNIQUE (a, c))",
        "CREATE TABLE keyless (a INT, b TEXT NOT NULL, UNIQUE (b))",
        "INSERT INTO keyed VALUES (1, 'x', NULL), (2, 'y', 'c'), (3, NULL, 'd')",
        "INSERT INTO keyless VALUES (1, 'x'), (2, 'y'), (3, 'z')",
    )
    for table in ("keyed", "keyless"):
        run(
            followed,
            f"UPDATE {table} SET b = 'zz' WHERE a = 1",
            f"DELETE FROM {table} WHERE a = 2",
            f"INSERT INTO {table} (a, b) VALUES (4, 'y')",
            f"UPDATE {table} SET a = 5 WHERE a = 4",
            "SET binlog_row_image = MINIMAL",
            f"UPDATE {table} SET b = 'v' WHERE a = 1",
        )
    followed.check()
    snapshot_and_verify(followed)
    run(followed, "ALTER TABLE keyless DROP INDEX b", "UPDATE keyless SET b = 'w' WHERE a = 1")
    followed.check()


def test_a_drop_of_tables_of_which_some_are_missing_or_not_captured(followed: Filled) -> None:
    other = f"others_{followed.name}"
    run(followed, *(f"CREATE TABLE {table} (a INT)" for table in "abcd"))
    run(followed, f"DROP TABLE IF EXISTS a, missing, b, {other}.x")
    followed.check()
    with pytest.raises(Exception, match=r"Unknown table"):
        run(followed, "DROP TABLE c, missing, d")
    followed.publish()
    followed.follow()
    followed.check()
    run(followed, "CREATE TABLE p (a INT PRIMARY KEY)", "CREATE TABLE q (a INT REFERENCES p (a))")
    run(followed, "DROP TABLE IF EXISTS q, p")
    followed.check()


def problems(followed: Filled, **settings: object) -> list[str]:
    """The failures of `changefeed check` for the source of a pipeline with a follower."""
    followed.configure(followers=[{"connection": "copy"}], **settings)
    with followed.connections.session() as session:
        found = check_source(SourceContext(followed.connections, session))
        return [finding.text for finding in found if finding.level is Level.FAIL]


def test_empty_enum_label_stops_the_follower_with_its_name(followed: Filled) -> None:
    run(
        followed, "CREATE TABLE t (a INT PRIMARY KEY, e ENUM('', 'x'), s SET('y'))", "INSERT INTO t VALUES (1, 'x', '')"
    )
    followed.source.execute("SET sql_mode = ''", f"INSERT INTO {followed.name}_a.t VALUES (2, '', ''), (3, 'none', '')")
    followed.publish()
    assert [f"{followed.name}_a.t.e" in text and "label ''" in text for text in problems(followed)] == [True]
    with pytest.raises(SchemaError, match=r"'e' has the label '', which records have as they have the invalid value 0"):
        followed.follow()


def test_undefined_bytes_are_corrected_and_the_table_filled_again(followed: Filled) -> None:
    """Beside an invalid label, for which the follower's session is not strict, they used to become `?`."""
    database = f"{followed.name}_a"
    run(followed, "CREATE TABLE t (a INT PRIMARY KEY, e ENUM('x'), h VARCHAR(9) CHARACTER SET hebrew)")
    run(followed, "INSERT INTO t VALUES (9, 'x', '?')")
    followed.source.execute(
        f"USE {database}",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (1, 'none', 'a')",
        "INSERT INTO t VALUES (2, 'x', X'A1')",
        "INSERT INTO t VALUES (3, 'none', X'41FB')",
    )
    followed.publish()
    for _ in range(2):
        with pytest.raises(SettingsError, match=f"U\\+FFFD .* --tables {database}.t`"):
            followed.follow()
    assert run_verify(followed.connections).outcome == "equal", "a SELECT has them as the binlog has them"
    followed.source.execute(f"UPDATE {database}.t SET h = 'aleph' WHERE a IN (2, 3)")
    for _ in followed.snapshot("1", tables=[f"{database}.t"]):
        followed.publish()
    followed.publish()
    assert followed.follow().waiting == ()
    followed.check()


def test_truncated_values_are_as_on_the_source(followed: Filled) -> None:
    run(
        followed,
        "CREATE TABLE t (a INT PRIMARY KEY, e ENUM('x'), c CHAR(3), v VARCHAR(3), tt TINYTEXT, b BINARY(3), "
        "n TINYINT UNSIGNED, d DATE, dt DATETIME(2), tm TIME, dc DECIMAL(4,1), y YEAR, f FLOAT, ff FLOAT(5,2), "
        "dd DOUBLE(5,2), bt BIT(3), s SET('a','b'), nn INT NOT NULL, ts TIMESTAMP NULL)",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES (1, 'none', 'abcdé', 'éééé', REPEAT('é', 200), 'abcd', 999, '2026-02-31', "
        "'2026-01-01 25:00:00', '999:00:00', 99999, 3000, 1e39, 1234567.891, 1234567.891, 99, 'a,c', 'x', '1960-1-1')",
        "INSERT INTO t VALUES (2, '', 'é ', 'é  ', 'a', 'ab', -1, '0000-00-00', '9999-12-31 23:59:59.999', "
        "'-999:00:00', -99999, 0, -1e39, -0.005, -0.005, 7, '', '', '2039-01-01')",
        "INSERT INTO t (a, e) VALUES (3, 'x'), (4, NULL)",
        "UPDATE t SET nn = 99999999999, c = 'qwert' WHERE a IN (1, 3)",
    )
    followed.check()
    run(followed, "DELETE FROM t WHERE a = 1", "UPDATE t SET a = 9 WHERE a = 2")
    followed.check()
    assert run_verify(followed.connections).outcome == "equal"


def test_foreign_key_to_uncaptured_table_stops_the_follower_at_its_ddl(followed: Filled) -> None:
    tables = {"include": [f"{followed.name}*.*"], "exclude": [f"{followed.name}*.hidden"]}
    followed.configure(tables=tables)
    child = "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES hidden (id))"
    followed.source.execute(f"USE {followed.name}_a", "CREATE TABLE hidden (id INT PRIMARY KEY)", child)
    followed.publish()
    (found,) = problems(followed, tables=tables)
    assert f"{followed.name}_a.child refers to {followed.name}_a.hidden, which the pipeline does not capture" in found
    with pytest.raises(FollowerError, match=r"a foreign key refers to .*hidden.*which the pipeline does not capture"):
        followed.follow()
