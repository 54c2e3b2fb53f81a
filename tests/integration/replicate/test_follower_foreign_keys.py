"""Foreign keys have the same effect on a follower as on the source."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

TABLES = (
    "CREATE TABLE parent (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) "
    "ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE emptied (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES child (id) ON DELETE SET NULL)",
    "CREATE TABLE tree (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES tree (id) ON DELETE CASCADE)",
    *(f"INSERT INTO parent VALUES ({n}, 0)" for n in range(1, 9)),
    "INSERT INTO child VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)",
    "INSERT INTO emptied VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
    "INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2), (4, NULL), (5, 4), (6, 5)",
)
UNCHECKED, CHECKED = "SET foreign_key_checks = 0", "SET foreign_key_checks = 1"


def followed_by(source: SqlServer, follower: SqlServer, kafka: KafkaBroker, name: str, folder: Path) -> Followed:
    followed = Followed(name, source, follower, kafka, folder)
    source.execute(f"CREATE DATABASE {name}", f"USE {name}", *TABLES)
    return followed


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = followed_by(source, follower, kafka_broker, unique_name, tmp_path)
    yield made
    made.drop()


def change(followed: Followed) -> None:
    """Change parents with and without foreign key checks, some in one transaction."""
    followed.source.execute(
        f"USE {followed.name}",
        "DELETE FROM parent WHERE id = 1",
        UNCHECKED,
        "DELETE FROM parent WHERE id = 2",
        "UPDATE parent SET id = 33 WHERE id = 3",
        "DELETE FROM tree WHERE id = 1",
        "UPDATE parent SET n = 1 WHERE id = 4",
        "BEGIN",
        "DELETE FROM parent WHERE id = 5",
        CHECKED,
        "UPDATE parent SET id = 44 WHERE id = 4",
        "UPDATE child SET p = 7 WHERE id = 6",
        "DELETE FROM tree WHERE id = 4",
        UNCHECKED,
        "DELETE FROM parent WHERE id = 7",
        "INSERT INTO parent VALUES (7, 9)",
        "COMMIT",
        CHECKED,
        "DELETE FROM parent WHERE id = 7",
        "XA START 'unchecked'",
        UNCHECKED,
        "DELETE FROM parent WHERE id = 44",
        "XA END 'unchecked'",
        "XA PREPARE 'unchecked'",
        "XA COMMIT 'unchecked'",
    )


def test_rows_changed_without_foreign_key_checks_change_no_child_rows(followed: Followed) -> None:
    followed.publish()
    followed.follow()
    followed.check()
    change(followed)
    followed.publish()
    followed.follow()
    orphans = followed.source.execute(f"SELECT id FROM {followed.name}.child WHERE p IN (2, 3, 5, 44) ORDER BY id")
    assert orphans == [(2,), (3,), (4,), (5,)]
    followed.check()


@pytest.mark.extended
def test_a_server_that_leaves_keys_to_innodb_for_a_while_is_followed(
    mysql_follower: MysqlServer, kafka_broker: KafkaBroker, session_folder: Path, unique_name: str, tmp_path: Path
) -> None:
    """MySQL 9.7 logs the rows that keys change, unless innodb_native_foreign_keys=ON."""
    source = MysqlServer(session_folder / unique_name, owner=ProcessId.own(), quick=True)
    with run_server(source):
        followed = followed_by(source, mysql_follower, kafka_broker, unique_name, tmp_path)
        source.execute(f"USE {unique_name}", "DELETE FROM parent WHERE id = 8")
        source.restart({"innodb_native_foreign_keys": "ON"})
        change(followed)
        source.execute(f"USE {unique_name}", "DELETE FROM parent WHERE id = 6")
        followed.publish()
        followed.follow()
        followed.check()
        source.restart({"innodb_native_foreign_keys": "OFF"})
        source.execute(f"USE {unique_name}", "INSERT INTO parent VALUES (1, 1)", "DELETE FROM parent")
        followed.publish()
        followed.follow()
        followed.check()
        followed.drop()


@pytest.mark.extended
def test_rows_written_without_unique_checks_are_as_on_the_source(followed: Followed) -> None:
    """InnoDB refuses duplicates of a unique key even without unique_checks, so a follower has none either."""
    followed.source.execute(
        f"USE {followed.name}",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT UNIQUE)",
        "SET unique_checks = 0",
        "INSERT IGNORE INTO u VALUES (1, 1), (2, 1), (3, 3)",
        "UPDATE IGNORE u SET v = 1 WHERE id = 3",
    )
    followed.publish()
    followed.follow()
    assert followed.follower.execute(f"SELECT * FROM {followed.name}.u") == [(1, 1), (3, 3)]
    followed.check()
