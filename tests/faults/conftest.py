"""A feed for each test, and kills at stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner, fresh_feed
from faults.replica import replicate

from devstack import mariadb, mysql
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import started
from devstack.sql_server import SqlServer

EVERYTHING_ON = {MysqlServer: mysql.EVERYTHING_ON, MariadbServer: mariadb.EVERYTHING_ON}
Pair = tuple[SqlServer, SqlServer]

ON_SPARK = bool(os.environ.get("CHANGEFEED_ON_SPARK"))
"""Whether all runs are on Spark, but for those that something is to go wrong in."""

LONG = int(os.environ.get("CHANGEFEED_FAULTS", "0"))
"""How many random kills; 0 is the short form."""


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    started = Runner(request.getfixturevalue("spark_connect").url if ON_SPARK else "")
    yield started
    started.stop()


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
def pair(tmp_path: Path, server_settings: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A source and its follower; a parameter is their kind.

    The follower divides statements into more events, so that rows have other numbers within theirs.
    """
    kind = getattr(request, "param", MysqlServer)
    options = dict(EVERYTHING_ON[kind]) if server_settings == "everything" else {}
    if kind is MariadbServer:
        options["log_slave_updates"] = "ON"
    others = {**options, "server_id": 2, "binlog_row_event_max_size": 256}
    with (
        started(kind(tmp_path / "a", options=options, owner=ProcessId.own(), quick=True)) as source,
        started(kind(tmp_path / "b", options=others, owner=ProcessId.own(), quick=True)) as other,
    ):
        replicate(source, other)
        yield source, other


@pytest.fixture
def pair_feed(pair: Pair, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner) -> Feed:
    return Feed(unique_name, pair[0], kafka_broker, tmp_path, runner)
