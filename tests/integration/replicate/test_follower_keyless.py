"""Many rows of a table without a primary key change in one transaction: the follower does not scan it for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

ROWS, CHANGED = 20_000, 4_000


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    made.source.execute(f"CREATE DATABASE {unique_name}")
    yield made
    made.drop()


def reads(server: SqlServer) -> int:
    return int(server.execute("SHOW GLOBAL STATUS LIKE 'Handler_read_rnd_next'")[0][1])


_DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
NUMBERS = (
    "SELECT a.d + 10 * b.d + 100 * c.d + 1000 * k.d + 10000 * m.d AS n FROM "
    + ", ".join(f"({_DIGITS}) AS {name}" for name in "abckm")
)  # fmt: skip


@pytest.mark.parametrize("alike", [1, 2], ids=["different", "pairs"])
def test_many_changes_read_the_table_a_few_times(followed: Followed, alike: int) -> None:
    name, source = f"{followed.name}.t", followed.source
    source.execute(
        f"CREATE TABLE {name} (a INT, digest VARCHAR(40), c DATETIME)",
        f"INSERT INTO {name} SELECT n DIV {alike}, CONCAT('row ', n DIV {alike}), NULL FROM ({NUMBERS}) AS s "
        f"WHERE n < {ROWS} ORDER BY n",
    )
    followed.publish()
    followed.follow()
    source.execute(f"UPDATE {name} SET c = NOW() WHERE a % {ROWS // CHANGED} = 0 ORDER BY a LIMIT {CHANGED}")
    if alike > 1:  # one of two alike rows
        source.execute(f"DELETE FROM {name} WHERE c IS NULL ORDER BY a LIMIT 501")
    followed.publish()
    before, began, used = reads(followed.follower), time.monotonic(), time.process_time()
    followed.follow()
    read, seconds = reads(followed.follower) - before, time.monotonic() - began
    print(f"{read:,} rows read, {seconds:.1f} s, of which this process used {time.process_time() - used:.1f} s of CPU")
    followed.check()
    assert read < 20 * ROWS


def test_rows_that_an_index_finds_are_deleted_one_by_one(followed: Followed) -> None:
    name, source = f"{followed.name}.t", followed.source
    source.execute(
        f"CREATE TABLE {name} (a INT, b VARCHAR(40), INDEX (a))",
        f"INSERT INTO {name} SELECT n, 'row' FROM ({NUMBERS}) AS s WHERE n < {ROWS}",
    )
    followed.publish()
    followed.follow()
    source.execute(f"UPDATE {name} SET b = 'other' WHERE a % {ROWS // 400} = 0")
    followed.publish()
    before = reads(followed.follower)
    followed.follow()
    assert reads(followed.follower) - before < ROWS
    followed.check()


TYPES = {
    "mysql": ["a JSON", "b BIT(9)", "e ENUM('x', 'z', 'y')", "s SET('p', 'q')"],
    "mariadb": ["a JSON", "b BIT(9)", "e ENUM('x', 'z', 'y')", "s SET('p', 'q')", "u UUID", "i INET6"],
}
PLAIN = [
    *("i8 TINYINT UNSIGNED", "big BIGINT UNSIGNED", "d DECIMAL(30, 10)", "f FLOAT", "r DOUBLE", "y YEAR"),
    *(
        "t TIME(3)",
        "dt DATETIME(6)",
        "ts TIMESTAMP NULL",
        "day DATE",
        "v VARCHAR(20)",
        "l CHAR(9) CHARACTER SET latin1",
    ),
    *("bin BINARY(5)", "vb VARBINARY(9)", "txt TEXT CHARACTER SET ucs2", "bl BLOB", "g INT AS (i8 + 1) VIRTUAL"),
]


def test_rows_of_all_types_are_distinguished_exactly(followed: Followed, request: pytest.FixtureRequest) -> None:
    kind = "mariadb" if "mariadb" in request.node.name else "mysql"
    name, source = f"{followed.name}.t", followed.source
    columns = [*PLAIN, *TYPES[kind]]
    names = [column.split()[0] for column in columns if " AS " not in column]
    source.execute(f"CREATE TABLE {name} (n INT, {', '.join(columns)}) DEFAULT CHARSET utf8mb4")
    followed.publish()
    followed.follow()
    values = {
        "i8": "n % 256", "big": "18446744073709551615 - n", "d": "n / 7", "f": "IF(n % 2, -0e0, n / 3)",
        "r": "IF(n % 3, n / 3e0, -0e0)", "y": "1901 + n % 200", "t": "SEC_TO_TIME(-n) ", "v": "CONCAT('Ä', n, ' ')",
        "dt": "IF(n % 5, TIMESTAMP('2026-01-01') + INTERVAL n MICROSECOND, '0000-00-00')", "ts": "FROM_UNIXTIME(1 + n)",
        "day": "IF(n % 5, DATE('2026-01-01') + INTERVAL n DAY, '2026-02-00')", "l": "CONCAT('é', n)",
        "bin": "CONCAT(CHAR(n % 250), 'a')", "vb": "CONCAT('a', CHAR(0))", "txt": "CONCAT('x', n, '€')",
        "bl": "REPEAT('z', n % 9)",
        "a": "CONCAT('{\"k\": [', n, ', 1.5, null]}')", "b": "n % 512", "e": "IF(n % 4, n % 4, '')", "s": "n % 4",
        "u": "CONCAT('00000000-0000-4000-8000-', LPAD(HEX(n), 12, '0'))", "i": "CONCAT('::', HEX(n))",
    }  # fmt: skip
    chosen = ", ".join(f"IF(n % 11 = 3, NULL, {values[each]})" for each in names)
    source.execute(
        "SET sql_mode = ''",
        f"INSERT INTO {name} (n, {', '.join(names)}) SELECT n DIV 3, {chosen} "
        f"FROM ({NUMBERS}) AS s WHERE n < 3000 ORDER BY n",
    )
    followed.publish()
    followed.follow()
    followed.check()
    before = reads(followed.follower)
    source.execute(
        "SET sql_mode = ''",
        f"UPDATE {name} SET n = n + 5000 WHERE n % 2 = 0",
        f"DELETE FROM {name} WHERE n % 5 = 1",
    )
    followed.publish()
    followed.follow()
    followed.check()
    assert reads(followed.follower) - before < 500_000
