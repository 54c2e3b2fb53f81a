"""Statement-format changes whose effect may differ when repeated: a follower ends as its source, or stops.

If it stops, it stops in each run, not only in the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed
from two_phase_alter import TABLE, alter_at_once

from changefeed.errors import SettingsError
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

STATEMENT = "SET SESSION binlog_format = STATEMENT"
MIXED = "SET SESSION binlog_format = MIXED"
LAX = "SET sql_mode = ''"


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path, {"statements": "publish"})
    made.source.execute(
        f"CREATE DATABASE {unique_name}",
        f"USE {unique_name}",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n INT, v VARCHAR(40), b VARBINARY(40))",
        "CREATE TABLE moment (id INT PRIMARY KEY, ts TIMESTAMP NOT NULL DEFAULT '2001-01-01')",
        "INSERT INTO t (n, v) VALUES (1, 'one'), (2, 'two')",
    )
    yield made
    made.drop()


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([STATEMENT, "SET NAMES utf8mb3", "INSERT INTO t (b) VALUES ('\U0001f600')"], id="utf8mb3"),
        pytest.param([STATEMENT, "SET NAMES ascii", "INSERT INTO t (b) VALUES ('\u00e9')"], id="ascii"),
        pytest.param([STATEMENT, "SET lc_time_names = 'de_DE'", "UPDATE t SET v = FROM_UNIXTIME(0, '%M')"], id="names"),
        pytest.param(
            [
                STATEMENT,
                "SET sql_auto_is_null = 1",
                "INSERT INTO t (n) VALUES (5)",
                "UPDATE t SET v = 'it' WHERE id IS NULL",
            ],
            id="auto_is_null",
        ),
        pytest.param(
            [STATEMENT, "SET default_week_format = 3", "UPDATE t SET n = EXTRACT(WEEK FROM '2024-01-01')"], id="week"
        ),
        pytest.param(
            [
                STATEMENT,
                LAX,
                "SET explicit_defaults_for_timestamp = OFF",
                "INSERT INTO moment VALUES (1, NULL), (2, NULL)",
            ],
            id="explicit_defaults",
        ),
        pytest.param(
            [
                STATEMENT,
                "XA START 'trap1'",
                "INSERT INTO t (n) VALUES (7)",
                "XA END 'trap1'",
                "XA PREPARE 'trap1'",
                "XA ROLLBACK 'trap1'",
            ],
            id="xa_rollback",
        ),
        pytest.param(
            [
                MIXED,
                "XA START 'trap2'",
                "INSERT INTO t (n, v) VALUES (7, UUID())",  # its row
                "UPDATE t SET n = n + 1",
                "XA END 'trap2'",
                "XA PREPARE 'trap2'",
                "XA COMMIT 'trap2'",
            ],
            id="xa_rows",
        ),
        pytest.param(
            [STATEMENT, "CREATE TEMPORARY TABLE t (a INT)", "ALTER TABLE t ADD COLUMN more INT"], id="temporary_alter"
        ),
        pytest.param(
            [STATEMENT, "CREATE TEMPORARY TABLE t (a INT)", "CREATE INDEX made ON t (a)"], id="temporary_index"
        ),
        pytest.param([STATEMENT, "CREATE TEMPORARY TABLE t (a INT)", "TRUNCATE TABLE t"], id="temporary_truncate"),
        pytest.param([STATEMENT, "CREATE TABLE made AS SELECT UUID() AS v"], id="create_select"),
    ],
)
def test_a_follower_ends_as_its_source_or_stops_with_each_run(followed: Followed, statements: list[str]) -> None:
    followed.source.execute(f"USE {followed.name}", *statements)
    followed.publish()
    for _ in range(2):
        stopped = ""
        try:
            followed.follow(runs_statements=True)
        except SettingsError as error:
            stopped = str(error)
        if not stopped:
            followed.check()
        assert stopped == "" or "a change in statement format" in stopped


@pytest.mark.parametrize("followed", ["mariadb"], indirect=True)
def test_mariadb_statements_end_as_on_the_source_or_stop(followed: Followed) -> None:
    """A role, and flags of regular expressions, which are not in its binlog."""
    followed.source.execute("CREATE OR REPLACE ROLE trap", "GRANT trap TO CURRENT_USER")
    followed.source.execute(
        f"USE {followed.name}", "SET ROLE trap", STATEMENT, "UPDATE t SET v = CURRENT_ROLE", "DROP ROLE trap"
    )
    followed.publish()
    with pytest.raises(SettingsError, match="CURRENT_ROLE"):
        followed.follow(runs_statements=True)


@pytest.mark.parametrize("followed", ["mariadb"], indirect=True)
def test_mariadbs_flags_of_regular_expressions_are_not_in_its_binlog(followed: Followed) -> None:
    followed.source.execute(
        f"USE {followed.name}",
        "INSERT INTO t (v) VALUES ('a\\nb')",
        STATEMENT,
        "SET default_regex_flags = 'DOTALL'",
        "UPDATE t SET n = 9 WHERE v REGEXP 'a.b'",
    )
    followed.publish()
    with pytest.raises(SettingsError, match="default_regex_flags"):
        followed.follow(runs_statements=True)


def test_auto_increment_after_an_explicit_number_is_not_recomputed(followed: Followed) -> None:
    """The next AUTO_INCREMENT value depends on what other sessions wrote meanwhile."""
    followed.source.execute(
        f"USE {followed.name}", STATEMENT, "INSERT INTO t (id, n) VALUES (NULL, 1), (90, 2), (0, 3)"
    )
    followed.publish()
    with pytest.raises(SettingsError, match="AUTO_INCREMENT"):
        followed.follow(runs_statements=True)


@pytest.mark.parametrize("followed", ["mariadb"], indirect=True)
def test_two_phase_alter_is_run_once_and_a_rolled_back_one_never(followed: Followed) -> None:
    """binlog_alter_two_phase: the follower runs the ALTER at its commit on the source."""
    tables = [f"CREATE TABLE {table} {TABLE}" for table in ("t0", "t1", "t2")]
    followed.source.execute(
        *tables, "CREATE TABLE journal (id INT PRIMARY KEY AUTO_INCREMENT, text VARCHAR(9))", database=followed.name
    )
    alter_at_once(followed.source, followed.name)
    followed.publish()
    followed.follow()
    followed.check()
