"""Several sessions write to a follower at the same time; its readers see only states of the source."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from changefeed.source.mysql.follower_session import FollowerSession
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


def accounts(followed: Followed) -> str:
    """Transactions that each move one from an account to another, in another table, count themselves, swap two values
    of a unique key, and touch rows of their own."""
    name = f"{followed.name}_s"
    followed.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.one (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE {name}.other (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE {name}.swapped (id INT PRIMARY KEY, place INT UNIQUE)",
        f"CREATE TABLE {name}.own (id INT PRIMARY KEY, text VARCHAR(20))",
        f"CREATE TABLE {name}.alike (n INT)",
        f"INSERT INTO {name}.one VALUES (1, 1000), (2, 1000), (3, 1000), (4, 1000)",
        f"INSERT INTO {name}.other VALUES (1, 0), (2, 0), (3, 0), (4, 0)",
        f"INSERT INTO {name}.swapped VALUES (1, 1), (2, 2)",
    )
    followed.publish()
    followed.follow()
    with followed.source.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(160):
            account = number // 5 % 4 + 1
            cursor.execute(f"UPDATE {name}.one SET n = n - 1 WHERE id = {account}")
            cursor.execute(f"UPDATE {name}.other SET n = n + 1 WHERE id = {account}")
            cursor.execute(f"INSERT INTO {name}.own VALUES ({number}, 'x'), ({number + 1000}, 'y')")
            if number % 20 == 0:
                cursor.execute(f"UPDATE {name}.swapped SET place = -place")
                cursor.execute(f"UPDATE {name}.swapped SET place = 3 + place")
                cursor.execute(f"INSERT INTO {name}.alike VALUES (1), (1)")
                cursor.execute(f"DELETE FROM {name}.own WHERE id = {number - 15}")
            connection.commit()
    followed.publish()
    return name


SEEN = (
    "SELECT (SELECT SUM(n) FROM {0}.one), (SELECT SUM(n) FROM {0}.other), "
    "(SELECT COUNT(*) FROM {0}.own WHERE id < 1000), "
    "(SELECT COUNT(*) FROM {0}.own WHERE id >= 1000)"
)


@pytest.mark.parametrize("sessions", [2, 3])
def test_a_reader_sees_only_what_the_source_was_at_some_commit(
    followed: Followed, sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = accounts(followed)
    seen: set[int] = set()
    wrong: list[tuple[int, ...]] = []
    ended = threading.Event()

    def read() -> None:
        with followed.follower.connect() as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute(SEEN.format(name))
                one, other, own, second = map(int, cursor.fetchone() or ())
                seen.add(other)
                deleted = (other + 19) // 20 - 1 if other else 0
                if one + other != 4000 or own != other - deleted or second != other:
                    wrong.append((one, other, own, second))

    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 8)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        followed.follow(sessions=sessions)
    finally:
        ended.set()
        reader.join()
    assert not wrong
    assert seen
    followed.check()


def test_a_row_that_somebody_else_locks_is_waited_for(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a session with others beside it waits: they are rolled back, and one session waits alone."""
    name = accounts(followed)
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 8)
    rolled_back = threading.Event()
    roll_back = FollowerSession.roll_back

    def noted(session: FollowerSession) -> None:
        roll_back(session)
        rolled_back.set()

    monkeypatch.setattr(FollowerSession, "roll_back", noted)
    with followed.follower.connect(autocommit=False) as holder, holder.cursor() as cursor:
        cursor.execute(f"UPDATE {name}.one SET n = n WHERE id = 2")
        cursor.execute(f"SELECT * FROM {name}.one WHERE id = 2 FOR UPDATE")
        run = threading.Thread(target=followed.follow)
        run.start()
        assert rolled_back.wait(240)
        holder.rollback()
        run.join()
    followed.check()


def test_batch_that_is_too_early_is_repeated_after_its_predecessor(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that batches touch are not known: only locks and row counts ensure their order."""
    accounts(followed)
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 30)
    monkeypatch.setattr("changefeed.replicate.batch_sessions.Batch.overlaps", lambda *_: False)
    followed.follow()
    followed.check()


def test_batch_too_large_to_repeat_is_written_alone(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    accounts(followed)
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 30)
    monkeypatch.setattr("changefeed.replicate.batch_sessions.REPEATABLE_BYTES", 200)
    followed.follow()
    followed.check()
