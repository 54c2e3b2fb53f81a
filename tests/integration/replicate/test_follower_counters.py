"""AUTO_INCREMENT on a follower: after a promotion it never repeats a number that the source used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed
from integration.replicate.test_follower_filled import Filled, filled

from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

__all__ = ["filled"]

TABLES = {
    "queue": "id INT AUTO_INCREMENT PRIMARY KEY, job VARCHAR(20) UNIQUE",
    "of_tenant": "tenant VARCHAR(20), b VARBINARY(20), id BIGINT UNSIGNED AUTO_INCREMENT, PRIMARY KEY (tenant, id), "
    "KEY (id)",
    "keyless": "t TEXT, id INT AUTO_INCREMENT, KEY (id)",
    "second": "name VARCHAR(20) PRIMARY KEY, id INT AUTO_INCREMENT, at DATETIME(3), KEY (id)",
    "kept": "id INT AUTO_INCREMENT PRIMARY KEY",
}
HARD = r"'a\",(''\\ b'"


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    create(made)
    yield made
    made.drop()


def create(followed: Followed) -> None:
    followed.source.execute(
        f"CREATE DATABASE {followed.name}",
        *(f"CREATE TABLE {followed.name}.{table} ({columns})" for table, columns in TABLES.items()),
    )


def counters(followed: Followed, server: SqlServer) -> dict[str, int]:
    """The next AUTO_INCREMENT value of each table."""
    fresh = ["SET information_schema_stats_expiry = 0"] if isinstance(server, MysqlServer) else []
    rows = server.execute(
        *fresh,
        f"SELECT table_name, auto_increment FROM information_schema.tables WHERE table_schema = '{followed.name}'",
    )
    return {str(table): int(number or 1) for table, number in rows}


def fill_and_drain(followed: Followed) -> None:
    followed.source.execute(
        f"USE {followed.name}",
        "INSERT INTO queue (job) VALUES ('one'), ('two')",
        "DELETE FROM queue WHERE job = 'one'",
        "INSERT INTO queue (job) VALUES ('one'), ('three')",
        "DELETE FROM queue",
        "INSERT INTO queue (id, job) VALUES (2, 'three')",
        f"INSERT INTO of_tenant (tenant, b) VALUES ({HARD}, x'002227'), ('other', NULL), ({HARD}, {HARD})",
        "DELETE FROM of_tenant WHERE id > 1",
        f"INSERT INTO keyless (t) VALUES ({HARD}), ('x'), ('x')",
        "DELETE FROM keyless",
        f"INSERT INTO second (name, at) VALUES ({HARD}, NOW(3)), ('b', NULL)",
        "DELETE FROM second",
        "INSERT INTO kept VALUES (), (), ()",
        "DELETE FROM kept WHERE id = 2",
    )


def test_inserted_and_deleted_rows_advance_auto_increment(followed: Followed) -> None:
    fill_and_drain(followed)
    followed.publish()
    followed.follow()
    followed.check()
    expected = {"queue": 5, "of_tenant": 4, "keyless": 4, "second": 3, "kept": 4}
    assert counters(followed, followed.source) == expected
    assert counters(followed, followed.follower) == expected
    followed.source.execute(
        f"USE {followed.name}", "DELETE FROM kept", "TRUNCATE queue", "ALTER TABLE kept ENGINE=InnoDB"
    )
    fill_and_drain(followed)
    followed.publish()
    followed.follow()
    followed.check()
    assert counters(followed, followed.follower) == counters(followed, followed.source)


@pytest.mark.extended
def test_tables_created_by_a_snapshot_continue_auto_increment(filled: Filled) -> None:
    create(filled)
    fill_and_drain(filled)
    filled.publish()
    assert list(filled.snapshot())
    filled.source.execute(f"DELETE FROM {filled.name}.queue")
    fill_and_drain(filled)
    filled.publish()
    filled.follow()
    filled.check()
    assert counters(filled, filled.follower) == counters(filled, filled.source)
    assert counters(filled, filled.source)["queue"] == 9
