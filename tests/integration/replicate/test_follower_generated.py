"""Generated columns that depend on the session: a follower has the source's values, or stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from changefeed.errors import FollowerError, SettingsError
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

DAY = "at TIMESTAMP NULL, day DATE AS (DATE(at)) STORED"
BERLIN = "SET time_zone = '+02:00'"
MIDNIGHT = "'2026-01-01 00:30:00'"


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    source.execute(f"CREATE DATABASE {unique_name}")
    yield made
    made.drop()


def test_generated_value_that_depends_on_the_session_stops_the_follower(followed: Followed) -> None:
    """Cases: with a key, without a key, in an index, and from another generated column."""
    tables = {
        "keyed": f"id INT PRIMARY KEY, {DAY}",
        "keyless": f"id INT, {DAY}",
        "indexed": "id INT PRIMARY KEY, at TIMESTAMP NULL, day DATE AS (DATE(at)) VIRTUAL, KEY (day)",
        "derived": "id INT PRIMARY KEY, at TIMESTAMP NULL, v VARCHAR(20) AS (DATE(at)) VIRTUAL, "
        "day VARCHAR(20) AS (CONCAT(v, '!')) STORED",
    }
    for table, columns in tables.items():
        followed.source.execute(
            f"USE {followed.name}",
            "SET time_zone = '+00:00', sql_mode = ''",
            f"CREATE TABLE {table} ({columns})",
            f"INSERT INTO {table} (id, at) VALUES (1, {MIDNIGHT}), (2, NULL)",
        )
    followed.publish()
    followed.follow()
    followed.check()
    for table in tables:
        followed.source.execute(
            f"USE {followed.name}", BERLIN, "SET sql_mode = ''", f"INSERT INTO {table} (id, at) VALUES (3, {MIDNIGHT})"
        )
        followed.publish()
        for _ in range(2):
            with pytest.raises(FollowerError, match=rf"{table}: expected .2026-01-01!?. in the generated column"):
                followed.follow()
        assert followed.follower.execute(f"SELECT COUNT(*) FROM {followed.name}.{table} WHERE id = 3") == [(0,)]
        at_head = f"coordinates = '{followed.source.head()}'"
        followed.follower.execute(f"UPDATE changefeed.followed SET {at_head} WHERE pipeline = '{followed.name}'")


@pytest.mark.parametrize("followed", ["mysql"], indirect=True)
def test_generated_values_match_where_the_followers_settings_are_the_sources(followed: Followed) -> None:
    """The digits of a division and the beginning of a day depend on MySQL's session."""
    followed.source.execute(
        f"USE {followed.name}",
        "SET div_precision_increment = 9",
        "CREATE TABLE parts (id INT PRIMARY KEY, n INT, third VARCHAR(30) AS (n / 3) STORED, "
        "six INT AS (n * 6) STORED)",
        "INSERT INTO parts (id, n) VALUES (1, 1), (2, 2)",
        BERLIN,
        f"CREATE TABLE days (id INT PRIMARY KEY, {DAY}, of_index DATE AS (DATE(at)) VIRTUAL, KEY (of_index))",
        f"INSERT INTO days (id, at) VALUES (1, {MIDNIGHT}), (2, NULL), (3, '1970-01-01 02:00:01')",
        "SET sql_mode = ''",
        "INSERT INTO days (id, at) VALUES (4, 0)",
        "UPDATE days SET at = '2026-07-01 00:30:00' WHERE id = 2",
    )
    followed.publish()
    with pytest.raises(FollowerError, match=r"expected .0\.3{9}. in the generated column 'third'.*found '0\.3333'"):
        followed.follow()
    try:
        followed.follower.execute("SET GLOBAL div_precision_increment = 9")
        with pytest.raises(
            FollowerError, match=r"expected .2026-01-01. in the generated column 'day'.*Set the global time_zone"
        ):
            followed.follow()
        followed.follower.execute("SET GLOBAL time_zone = '+02:00'")
        followed.follow()
    finally:
        followed.follower.execute("SET GLOBAL div_precision_increment = DEFAULT, GLOBAL time_zone = DEFAULT")
    followed.check()
    by_index = f"SELECT id FROM {followed.name}.days FORCE INDEX (of_index) WHERE of_index = '2026-01-01'"
    assert followed.follower.execute(BERLIN, by_index) == followed.source.execute(BERLIN, by_index) == [(1,)]


def test_row_refused_by_the_followers_session_is_an_error_with_a_remedy(followed: Followed) -> None:
    """A sql_mode that is not strict truncates a generated value; MySQL checks constraints in the session's time
    zone."""
    tables = {
        "cut": ("id INT PRIMARY KEY, a INT, c VARCHAR(3) AS (a) STORED", "(1, 99999)", "make it a plain column"),
        "minus": ("id INT PRIMARY KEY, a INT UNSIGNED, b INT AS (a - 1) STORED", "(1, 0)", "make it a plain column"),
        "late": ("id INT PRIMARY KEY, a TIMESTAMP NULL, CHECK (EXTRACT(HOUR FROM a) > 9)", "(1, NOW())", "constraint"),
    }
    if not isinstance(followed.source, MysqlServer):  # which does not check rows that a follower writes
        del tables["late"]
    for table, (columns, row, remedy) in tables.items():
        modes = "'NO_UNSIGNED_SUBTRACTION', time_zone = '+11:00', timestamp = UNIX_TIMESTAMP('2026-01-01 20:30:00')"
        followed.source.execute(
            f"USE {followed.name}",
            "SET time_zone = '+11:00'",
            f"SET sql_mode = {modes}",
            f"CREATE TABLE {table} ({columns})",
            f"INSERT INTO {table} (id, a) VALUES {row}",
        )
        followed.publish()
        advice = rf"a row of \S+`{table}`.* the source.* {remedy}.*changefeed snapshot \S+ --tables \S+\.{table}"
        with pytest.raises(SettingsError, match=advice):
            followed.follow()
        at_head = f"coordinates = '{followed.source.head()}'"
        followed.follower.execute(f"UPDATE changefeed.followed SET {at_head} WHERE pipeline = '{followed.name}'")


@pytest.mark.parametrize("followed", ["mysql"], indirect=True)
def test_a_generated_timestamp_is_the_same_moment_in_the_followers_time_zone(followed: Followed) -> None:
    followed.source.execute(
        f"USE {followed.name}",
        "SET time_zone = '+02:00', sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP(3) NULL, "
        "later TIMESTAMP(3) AS (at + INTERVAL 1 DAY) STORED, seen TIMESTAMP AS (at) VIRTUAL, KEY (seen))",
        f"INSERT INTO t (id, at) VALUES (1, {MIDNIGHT}), (2, NULL), (3, '2026-10-25 01:30:00.125'), (4, 0)",
    )
    followed.publish()
    try:
        followed.follower.execute("SET GLOBAL time_zone = '+02:00'")
        followed.follow()
    finally:
        followed.follower.execute("SET GLOBAL time_zone = DEFAULT")
    followed.check()


@pytest.mark.extended
def test_values_that_are_the_same_in_all_sessions_are_followed(followed: Followed) -> None:
    """Values of all types, in sessions of several time zones, changed in all ways."""
    followed.source.execute(
        f"USE {followed.name}",
        "SET time_zone = '+05:00', sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP(3) NULL, d DATETIME, a INT, b DOUBLE, j JSON, v VARCHAR(20), "
        "half DECIMAL(20,6) AS (a / 2) STORED, later DATETIME AS (d + INTERVAL 1 DAY) STORED, "
        "ratio DOUBLE AS (b / 3) STORED, small FLOAT AS (b / 7) STORED, up VARCHAR(20) AS (UPPER(v)) VIRTUAL, "
        "part JSON AS (JSON_EXTRACT(j, '$.x')) STORED, raw VARBINARY(40) AS (CAST(v AS BINARY)) STORED, "
        "is_big BOOLEAN AS (a > 3) STORED, KEY (up), KEY (later))",
        "CREATE TABLE k (a INT, b DOUBLE, third DECIMAL(20,6) AS (a / 3) STORED)",
        "INSERT INTO t (id, at, d, a, b, j, v) VALUES (1, NOW(3), NOW(), 7, 0.1, '{\"x\": [1, null]}', 'äb '), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL), (3, NOW(3), '2026-02-28', -1, -0e0, '{\"x\": 1}', '')",
        "UPDATE t SET a = a + 1, v = 'c'",
        "UPDATE t SET at = NULL WHERE id = 1",
        "REPLACE INTO t (id, a, v) VALUES (1, 9, 'd'), (4, 10, 'e')",
        "INSERT INTO t (id, a, v) VALUES (4, 11, 'f') ON DUPLICATE KEY UPDATE v = 'ON', b = 1",
        "SET binlog_row_image = MINIMAL",
        "UPDATE t SET a = 12 WHERE id = 2",
        "SET binlog_row_image = FULL",
        "INSERT INTO k (a, b) VALUES (1, 1), (1, 1), (2, NULL)",
        "UPDATE k SET a = 3 WHERE a = 1 LIMIT 1",
    )
    followed.publish()
    followed.follow()
    followed.check()
