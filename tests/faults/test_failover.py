"""The server behind the connection is another one: the position is found again by GTID, or a terminal error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner
from faults.replica import caught_up, replicate

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import started

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[MysqlServer, MysqlServer]]:
    """A source and its follower."""
    options = {"binlog_row_metadata": "FULL"}
    with (
        started(MysqlServer(tmp_path / "a", options=options, owner=ProcessId.own(), quick=True)) as source,
        started(
            MysqlServer(tmp_path / "b", options={**options, "server_id": 2}, owner=ProcessId.own(), quick=True)
        ) as follower,
    ):
        replicate(source, follower)
        yield source, follower


@pytest.fixture
def pair_feed(
    pair: tuple[MysqlServer, MysqlServer], kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Feed:
    return Feed(unique_name, pair[0], kafka_broker, tmp_path, runner)


@pytest.mark.parametrize("stage", ["", "after_transaction_commit:3", "before_seal"])
def test_after_a_failover_nothing_is_repeated_and_nothing_lost(
    pair: tuple[MysqlServer, MysqlServer], pair_feed: Feed, stage: str
) -> None:
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(30)
    if stage:
        run = pair_feed.begin(stage)
        assert run.wait_until_held(), run.text()
        run.kill()
    caught_up(source, follower)
    source.stop()
    follower.execute("STOP REPLICA", "RESET REPLICA ALL")
    pair_feed.mysql = follower
    pair_feed.write(10)
    text = pair_feed.run()
    assert "found again by GTID set" in text
    assert ("skipped by GTID" in text) == bool(stage), text
    pair_feed.check(one_server=False)
    pair_feed.write(10)
    pair_feed.run()
    pair_feed.check(one_server=False)
    assert '"failover"' in pair_feed.command("windows", pair_feed.name, "--json").stdout


def test_a_new_server_that_lacks_what_was_published_is_a_terminal_error(
    pair: tuple[MysqlServer, MysqlServer], pair_feed: Feed
) -> None:
    source, follower = pair
    pair_feed.write(5)
    caught_up(source, follower)
    follower.execute("STOP REPLICA")
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.mysql = follower
    run = pair_feed.begin()
    assert run.result() == 2
    assert "lacks transactions" in run.text()
