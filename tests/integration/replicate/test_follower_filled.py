"""A snapshot fills an empty follower beside a writer and the pipeline, whenever the follower runs."""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from faults.inline_spark import InlineSpark
from integration.followed import Followed, Workload

from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model import fault_point
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.replicate.run import ReplicationResult
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot import follower_announcer, published_position
from changefeed.snapshot.planning import plan_snapshot
from changefeed.snapshot.run import run_snapshot
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


class Filled(Followed):
    """A source whose tables are older than its pipeline; its snapshots run on ``spark``."""

    spark: Any = None
    snapshots: tuple[Generator[SnapshotRecord], ...] = ()

    def tables(self, server: SqlServer) -> dict[str, Any]:
        """The tables without charsets that follow from a collation, which MySQL shows after its own SHOW CREATE TABLE
        was run."""
        return {
            name: shown
            if isinstance(shown, str)
            else (re.sub(r" CHARACTER SET \w+ COLLATE", " COLLATE", shown[0]), *shown[1:])
            for name, shown in super().tables(server).items()
        }

    def snapshot(self, run: str = "1", **asked: Any) -> Iterator[SnapshotRecord]:
        """The steps of a snapshot. At the end of the test it is ended, which returns its claim."""
        snapshot = self._steps(run, **asked)
        self.snapshots += (snapshot,)
        return snapshot

    def _steps(self, run: str, **asked: Any) -> Generator[SnapshotRecord]:
        store = checkpoint_store(PipelineConnections(self.pipeline, self.uris.__getitem__), cast(Any, None))
        request = SnapshotRequest.of({"pipeline": self.name, "chunk_rows": 20, **asked})
        plan = plan_snapshot(self.connections, store, request, snapshot_identity(self.name, run))
        yield from run_snapshot(self.spark or InlineSpark(), self.connections, plan)


on_mysql = pytest.mark.parametrize("filled", ["mysql"], indirect=True)
on_mariadb = pytest.mark.parametrize("filled", ["mariadb"], indirect=True)
"""For tests that do not depend on the server, as they take long."""


@pytest.fixture(params=["mysql", "mariadb"])
def filled(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Filled]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Filled(unique_name, source, follower, kafka_broker, tmp_path, {"start": "snapshot"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_announcer, "WAIT_SECONDS", 0.05)
        patch.setattr(published_position, "VISIBLE_AFTER_SECONDS", 0.2)  # these tests wait for each commit
        yield made
    for snapshot in made.snapshots:
        snapshot.close()
    made.drop()


class KilledError(Exception):
    """Simulates SIGKILL: no code of ours runs after it."""


class Killer:
    """Kills runs of the follower after a random statement, sometimes before its result arrived."""

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.left, self.kills = 0, 0
        self._rng = rng
        write = FollowerSession.write

        def killed(session: FollowerSession, sql: str) -> int:
            self.left -= 1
            if self.left == 0:
                session.raw._force_close()
                raise KilledError
            written = write(session, sql)
            if self.left == 1 and rng.random() < 0.5:
                session.raw._force_close()
                raise KilledError
            return written

        patch.setattr(FollowerSession, "write", killed)

    def follow(self, followed: Followed) -> ReplicationResult | None:
        self.left = self._rng.randrange(8, 80)
        try:
            return followed.follow()
        except KilledError:
            self.kills += 1
            return None
        finally:
            self.left = 0


@on_mariadb
def test_row_left_to_a_window_is_applied_after_rows_of_the_snapshot(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run applies all rows of the snapshot before the window with the missing row is published."""
    name = f"{filled.name}_a"
    filled.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, n INT)",
        f"INSERT INTO {name}.t VALUES {', '.join(f'({number}, 0)' for number in range(30))}",
    )
    filled.publish()  # which begins at the binlog's end
    filled.source.execute(f"INSERT INTO {name}.t VALUES (100, 0)")
    filled.publish()

    def change(stage: str) -> None:
        if stage == "after_decode":
            filled.source.execute(f"UPDATE {name}.t SET n = n + 1 WHERE id = 7")

    with monkeypatch.context() as patch:
        patch.setattr(fault_point, "reach", change)
        list(filled.snapshot())
    filled.follow()
    filled.publish()
    assert filled.follow().waiting == ()
    filled.check()


def test_follower_filled_beside_a_writer_and_killed_ends_as_the_source(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"fill:{type(filled.source).__name__}")
    many = f"{filled.name}_a.many"
    work = Workload(filled, rng, cascades=False, partial=False)
    filled.source.execute(
        f"CREATE TABLE {many} (id INT PRIMARY KEY, n INT, text VARCHAR(20))",
        f"INSERT INTO {many} VALUES {', '.join(f'({number}, 0, {number})' for number in range(400))}",
    )
    work.run(25)
    filled.publish()  # which begins at the binlog's end
    work.run(3)
    filled.publish()
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 30)
    monkeypatch.setattr("changefeed.replicate.filler.COMMIT_ROWS", 30)
    killer = Killer(monkeypatch, rng)
    killer.follow(filled)
    for step in filled.snapshot():
        for _ in range(rng.randrange(4)):
            key = rng.randrange(400)
            filled.source.execute(
                f"UPDATE {many} SET n = n + 1 WHERE id % 7 = {key % 7}",
                f"DELETE FROM {many} WHERE id = {key}",
                f"UPDATE {many} SET id = id + 1000 WHERE id = {key + 1}",
                f"INSERT INTO {many} VALUES ({key + 2000}, 0, 'new') ON DUPLICATE KEY UPDATE n = n + 1",
            )
            work.run(1)
        if rng.random() < 0.5 or step.round:
            filled.publish()
        if rng.random() < 0.7:
            killer.follow(filled)
    work.run(5)
    filled.publish()
    while (done := killer.follow(filled)) is None:
        pass
    assert killer.kills > 0
    assert done.waiting == ()
    filled.check()
    work.run(5)
    filled.publish()
    filled.follow()
    filled.check()
