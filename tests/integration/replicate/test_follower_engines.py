"""Followers whose tables, or whose position, are of an engine that cannot roll back: nothing is written twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.followed import Followed

from changefeed.errors import FollowerError
from changefeed.replicate.position_table import PositionTable
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    yield made
    made.drop()


class KilledError(Exception):
    """Simulates SIGKILL."""


def kill_before_the_position_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(self: PositionTable, *_: Any) -> None:
        self._session.raw._force_close()
        raise KilledError

    monkeypatch.setattr(PositionTable, "move", killed)


def rows(server: SqlServer, name: str) -> list[Any]:
    return sorted(server.execute(f"SELECT * FROM {name}"))


@pytest.mark.parametrize(("engine", "key"), [("MyISAM", ""), ("MEMORY", " PRIMARY KEY")], ids=["keyless", "keyed"])
def test_table_that_cannot_roll_back_gets_no_rows_until_it_can(
    followed: Followed, engine: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{followed.name}.t"
    followed.source.execute(
        f"CREATE DATABASE {followed.name}", f"CREATE TABLE {name} (a INT{key}, b VARCHAR(9)) ENGINE = {engine}"
    )
    followed.publish()
    followed.follow()
    followed.source.execute(f"INSERT INTO {name} VALUES (1, 'x'), (2, 'y')")
    followed.publish()
    with monkeypatch.context() as patch:
        kill_before_the_position_moves(patch)
        with pytest.raises((FollowerError, KilledError)):
            followed.follow()
    with pytest.raises(FollowerError, match=f"engine {engine}, which cannot roll back"):
        followed.follow()
    assert rows(followed.follower, name) == []
    followed.follower.execute(f"ALTER TABLE {name} ENGINE = InnoDB")
    followed.follow()
    assert rows(followed.follower, name) == rows(followed.source, name) == [(1, "x"), (2, "y")]


def test_table_without_engine_is_made_in_one_that_can_roll_back(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, follower = f"{followed.name}.t", followed.follower
    (default,) = follower.execute("SELECT @@GLOBAL.default_storage_engine")[0]
    follower.execute("SET GLOBAL default_storage_engine = MyISAM")
    try:
        followed.source.execute(f"CREATE DATABASE {followed.name}", f"CREATE TABLE {name} (a INT)")
        followed.publish()
        followed.follow()
        followed.source.execute(f"INSERT INTO {name} VALUES (1), (1)")
        followed.publish()
        with monkeypatch.context() as patch:
            kill_before_the_position_moves(patch)
            with pytest.raises(KilledError):
                followed.follow()
        followed.follow()
    finally:
        follower.execute(f"SET GLOBAL default_storage_engine = {default}")
    followed.check()


def test_position_that_cannot_roll_back_is_refused(followed: Followed) -> None:
    followed.source.execute(f"CREATE DATABASE {followed.name}", f"CREATE TABLE {followed.name}.t (a INT PRIMARY KEY)")
    followed.publish()
    followed.follow()
    followed.source.execute(f"INSERT INTO {followed.name}.t VALUES (1)")
    followed.publish()
    followed.follower.execute("ALTER TABLE changefeed.followed ENGINE = MyISAM")
    try:
        with pytest.raises(FollowerError, match="in an engine with transactions, found MyISAM"):
            followed.follow()
        assert rows(followed.follower, f"{followed.name}.t") == []
    finally:
        followed.follower.execute("ALTER TABLE changefeed.followed ENGINE = InnoDB")
    followed.follow()
    followed.check()
