"""Test statements of MySQL and MariaDB on a source with a follower: a sample of `make test-foreign ARGS=--follower`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign.follower_arena import Ending, FollowedScript, FollowerArena
from foreign.suites import reference_of

from changefeed.source.mysql.follower_session import FollowerSession
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.mysqltest import MARIADB_TESTS
from devstack.process import run_server

pytestmark = pytest.mark.extended

SAMPLE = ["main/win_bit.test", "main/compare.test"]


@pytest.fixture(scope="module", params=[MysqlServer, MariadbServer], ids=["mysql", "mariadb"])
def arena(request: pytest.FixtureRequest, session_folder: Path, kafka_broker: KafkaBroker) -> Iterator[FollowerArena]:
    """Its own servers with default settings: all databases and binlogs are dropped between two files."""
    folder = session_folder / f"foreign-follower-{request.param.product}"
    source, follower = (
        request.param(folder / role, options={"server_id": number}, owner=ProcessId.own(), quick=True)
        for number, role in enumerate(("source", "follower"), 1)
    )
    with run_server(source), run_server(follower):
        yield FollowerArena(source, follower, kafka_broker.bootstrap, folder, reference_of(source))


def play(arena: FollowerArena, folder: Path, text: str) -> FollowedScript:
    """A script of our own."""
    path = folder / "own.test"
    path.write_text(text)
    return arena.follow(path, folder)


def test_a_sample_of_foreign_files_ends_with_both_servers_alike(arena: FollowerArena) -> None:
    folder = MARIADB_TESTS.fetch(Home.default())
    done = [arena.follow(folder / name, folder) for name in SAMPLE]
    assert [(each.script, each.text) for each in done if each.ending is not Ending.EQUAL] == []
    assert sum(each.tables for each in done) > 0


@pytest.mark.long
def test_row_or_table_missing_on_follower_is_reported(
    arena: FollowerArena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "create table t (a int primary key, b varchar(9)); insert into t values (1, 'x'), (2, 'y');"
    assert play(arena, tmp_path, script).ending is Ending.EQUAL
    write = FollowerSession.write

    def spoil(session: FollowerSession, sql: Any) -> int:
        text = sql if isinstance(sql, str) else sql.decode()
        return write(session, text.replace("'y'", "'z'").replace("create table t (", "create table t (c int, "))

    monkeypatch.setattr(FollowerSession, "write", spoil)
    done = play(arena, tmp_path, script)
    assert done.ending is not Ending.EQUAL, done


@pytest.mark.long
def test_refusal_of_follower_ends_a_file_with_its_message(arena: FollowerArena, tmp_path: Path) -> None:
    done = play(arena, tmp_path, "create table t (a int) engine=myisam; create table m (a int) engine=merge union=(t);")
    assert (done.ending, "Error: " in done.text) == (Ending.REFUSED, True), done
