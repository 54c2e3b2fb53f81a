"""A feed for each test, and kills at stages."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from faults.feed import Feed, Run, Runner, fresh_feed
from faults.proxy import Proxy
from faults.replica import replicate

from devstack import mariadb, mysql
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_cluster import SparkCluster
from devstack.sql_server import SqlServer

EVERYTHING_ON = {MysqlServer: mysql.EVERYTHING_ON, MariadbServer: mariadb.EVERYTHING_ON}
Pair = tuple[SqlServer, SqlServer]

ON_SPARK = bool(os.environ.get("CHANGEFEED_ON_SPARK"))
"""Whether all runs without a fault are on Spark."""

LONG = int(os.environ.get("CHANGEFEED_FAULTS", "0"))
"""The number of random kills; 0 for the short test."""


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    forks = Runner(request.getfixturevalue("spark_connect").url if ON_SPARK else "")
    yield forks
    forks.stop()


@pytest.fixture
def feed(
    source_mysql: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(source_mysql, kafka_broker, unique_name, tmp_path, runner) as fresh:
        yield fresh


@pytest.fixture
def mariadb_feed(
    source_mariadb: MariadbServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(source_mariadb, kafka_broker, unique_name, tmp_path, runner) as fresh:
        yield fresh


@pytest.fixture
def mysql_proxy(feed: Feed) -> Iterator[Proxy]:
    """A proxy before the server of ``feed``, which its runs connect to."""
    proxy = Proxy(feed.mysql.port)
    feed.mysql_port = proxy.port
    yield proxy
    proxy.close()


@pytest.fixture
def keyed_feed(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Feed:
    """A feed whose commit log may be signed with the secret in CHANGEFEED_LOG_KEY, which tests look for elsewhere."""
    key = secrets.token_hex(32)
    monkeypatch.setenv("CHANGEFEED_LOG_KEY", key)
    feed.environment["CHANGEFEED_LOG_KEY"] = key
    return feed


@pytest.fixture(scope="module")
def spark_cluster(session_folder: Path) -> Iterator[SparkCluster]:
    """A standalone cluster of two hosts with a core each, for a module, as it is three JVMs."""
    folder = session_folder / f"cluster-{uuid4().hex[:8]}"
    with run_server(SparkCluster(folder, owner=ProcessId.own())) as cluster:
        yield cluster


@pytest.fixture
def pair(tmp_path: Path, server_settings: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A source and its follower; the parameter is their kind.

    The follower divides statements into more events, so that rows have other numbers in their events.
    """
    kind = getattr(request, "param", MysqlServer)
    options = dict(EVERYTHING_ON[kind]) if server_settings == "everything" else {}
    if kind is MariadbServer:
        options["log_slave_updates"] = "ON"
    others = {**options, "server_id": 2, "binlog_row_event_max_size": 256}
    with (
        run_server(kind(tmp_path / "a", options=options, owner=ProcessId.own(), quick=True)) as source,
        run_server(kind(tmp_path / "b", options=others, owner=ProcessId.own(), quick=True)) as other,
    ):
        replicate(source, other)
        yield source, other


@pytest.fixture
def pair_feed(pair: Pair, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner) -> Feed:
    return Feed(unique_name, pair[0], kafka_broker, tmp_path, runner)


def run_for(feed: Feed, time: str) -> None:
    """Change how long the next runs go on."""
    feed.settings["windows"] = {"every": "100ms", "run_for": time}
    feed.configure()


@pytest.fixture
def continuous(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Iterator[Feed]:
    """A feed whose runs publish windows for ten seconds. Those that have not ended after the test are killed."""
    begun: list[Run] = []
    begin = feed.begin

    def begin_and_remember(fault: str = "", **options: Any) -> Run:
        begun.append(begin(fault, **options))
        return begun[-1]

    monkeypatch.setattr(feed, "begin", begin_and_remember)
    run_for(feed, "10s")
    yield feed
    for run in begun:
        if run.process.poll() is None:
            run.kill()
