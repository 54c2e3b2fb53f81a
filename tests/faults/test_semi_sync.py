"""Transactions that are in the binlog, and not in the server's GTID set, because they wait for a replica."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults.feed import NOTHING_NEW, Feed, Runner
from integration.topic_rows import records_of

from changefeed.model.gtid import GtidSet
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture
def own(kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner) -> Iterator[Feed]:
    """A feed on its own server, as a commit that waits blocks all later ones."""
    with run_server(MysqlServer(tmp_path / "own", owner=ProcessId.own(), quick=True)) as server:
        yield Feed(unique_name, server, kafka_broker, tmp_path, runner)


@contextmanager
def waiting_commits(feed: Feed) -> Iterator[Callable[[str], None]]:
    """Commits wait for a replica, which the server does not have. Yields a function that logs a row of the journal."""
    server, threads = feed.mysql, list[threading.Thread]()

    def log(text: str) -> None:
        before = server.head()
        insert = f"INSERT INTO `{feed.name}`.journal (text) VALUES ('{text}')"
        threads.append(threading.Thread(target=server.execute, args=(insert,)))
        threads[-1].start()
        while server.head() == before:
            time.sleep(0.1)

    server.execute(
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "SET GLOBAL rpl_semi_sync_source_timeout = 3600000",
        "SET GLOBAL rpl_semi_sync_source_enabled = ON",
    )
    try:
        yield log
    finally:
        server.execute("SET GLOBAL rpl_semi_sync_source_enabled = OFF")
        for thread in threads:
            thread.join()


def texts(feed: Feed) -> list[str]:
    records = records_of(feed.kafka.bootstrap, f"{feed.name}.journal")
    return [json.loads(record.value)["after"]["text"] for record in records]


def executed(feed: Feed) -> GtidSet:
    return GtidSet.parse(str(feed.mysql.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))


def test_runs_continue_while_published_transactions_wait_for_a_replica(own: Feed) -> None:
    """The first checkpoint, and each sealed window, is after a transaction that the server has not committed."""
    with waiting_commits(own) as log:
        log("1")
        own.settings["start"] = "latest"
        own.configure()
        own.run()
        log("2")
        own.run()
        log("3")
        own.run()
        assert own.begin().result() == NOTHING_NEW
        last = json.loads(own.command("windows", own.name, "--json").stdout)[0]
        assert GtidSet.parse(last["gtids"]).subtract(executed(own))
        shown = own.command("seek", own.name, "latest", "--plan").stdout
        assert "nothing is skipped or repeated" in shown, shown
    assert str(executed(own)) == last["gtids"]
    own.mysql.execute(f"INSERT INTO `{own.name}`.journal (text) VALUES ('4')")
    own.run()
    assert sorted(texts(own)) == ["2", "3", "4"]
    (last, *_) = json.loads(own.command("windows", own.name, "--json").stdout)
    assert str(executed(own)) == last["gtids"]
