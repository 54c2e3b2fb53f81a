"""A feed for each test, and kills at stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner, fresh_feed

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer

LONG = int(os.environ.get("CHANGEFEED_FAULTS", "0"))
"""How many random kills; 0 is the short form."""


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    started = Runner()
    yield started
    started.stop()


@pytest.fixture
def feed(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(mysql_server, kafka_broker, unique_name, tmp_path, runner) as fresh:
        yield fresh


@pytest.fixture
def mariadb_feed(
    mariadb_server: MariadbServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    with fresh_feed(mariadb_server, kafka_broker, unique_name, tmp_path, runner) as fresh:
        yield fresh
