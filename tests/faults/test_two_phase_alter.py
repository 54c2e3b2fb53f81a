"""MariaDB's binlog_alter_two_phase: the statement is logged when an ALTER begins, and again when it ends."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner, fresh_feed
from integration.topic_rows import records_of
from pymysql.err import Error
from two_phase_alter import EXCHANGE, TABLE, TWO_PHASE, alter_at_once, begun_alter

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

TABLES = ("t0", "t1", "t2")


@pytest.fixture
def altered(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed of the server that the test names, with three tables more."""
    server: SqlServer = request.getfixturevalue(getattr(request, "param", "mariadb_server"))
    with fresh_feed(server, kafka_broker, unique_name, tmp_path, runner) as feed:
        server.execute(*(f"CREATE TABLE {table} {TABLE}" for table in TABLES), database=unique_name)
        feed.settings |= {"start": server.head(), "topics": {"partitions": 1}}
        feed.configure()
        yield feed


def check(feed: Feed) -> None:
    """Each row once with the names that it was written with, and each ALTER that was committed once, in that order."""
    for table, count in (("t0", 2), ("t1", 2), ("t2", 3)):
        rows = [json.loads(record.value)["after"] for record in feed.records(table)]
        assert rows == [{"id": number, "a": 10, "b": 20} for number in range(1, count + 1)], table
    changes = records_of(feed.kafka.bootstrap, f"changefeed.{feed.name}.schema-changes")
    statements = [json.loads(record.value)["ddl"].split()[:3] for record in changes]
    assert [words for words in statements if words[0] == "ALTER"] == [["ALTER", "TABLE", t] for t in ("t1", "t0", "t2")]


def test_two_phase_alter_takes_effect_at_its_commit(altered: Feed) -> None:
    """The tables are known before, and a window ends between the beginnings and the ends."""
    altered.run()
    alter_at_once(altered.mysql, altered.name, between=altered.run)
    altered.run()
    check(altered)


@pytest.mark.extended
@pytest.mark.parametrize(
    "altered", ["mariadb_server", "full_mariadb_server", "mariadb_1011_server", "mariadb_118_server"], indirect=True
)
@pytest.mark.parametrize("start", ["known", "learned behind them"])
def test_two_phase_alter_is_read_forwards_and_backwards(altered: Feed, start: str) -> None:
    if start == "known":
        altered.run()
    alter_at_once(altered.mysql, altered.name)
    altered.run()
    check(altered)


@pytest.mark.extended
def test_schemas_learned_during_a_two_phase_alter(altered: Feed) -> None:
    """What information_schema says then is what tables are before the ALTER."""
    alter_at_once(altered.mysql, altered.name, between=altered.run)
    altered.run()
    check(altered)


@pytest.mark.extended
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "learned behind it"])
def test_two_phase_alter_of_a_killed_server_changes_nothing(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner, is_known: bool
) -> None:
    """Its beginning stays in the binlog without an end; the table is as before, until it is altered anew."""
    with run_server(MariadbServer(tmp_path / "server", owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner, {"topics": {"partitions": 1}})
        server.execute(f"CREATE TABLE t0 {TABLE}", database=unique_name)
        row = "INSERT INTO t0 (id, a, b) VALUES ({}, 10, 20)"
        server.execute(row.format(1), database=unique_name)
        if is_known:
            feed.run()
        with contextlib.suppress(Error), begun_alter(server, unique_name, "t0", EXCHANGE):
            server.kill()
        server.start()
        server.execute(row.format(2), database=unique_name)
        if is_known:
            feed.run()
        server.execute(TWO_PHASE, f"ALTER TABLE t0 {EXCHANGE}", row.format(3), database=unique_name)
        feed.run()
        rows = [json.loads(record.value)["after"] for record in feed.records("t0")]
        assert rows == [{"id": number, "a": 10, "b": 20} for number in (1, 2, 3)]
