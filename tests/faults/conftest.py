"""A feed for each test, and kills at stages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.feed import Feed, Runner

from devstack.kafka import KafkaBroker
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
    """A feed on a fresh binlog file, so that no other test's events are read again."""
    mysql_server.execute("FLUSH BINARY LOGS")
    head = mysql_server.execute("SHOW BINARY LOG STATUS")[0]
    yield Feed(unique_name, mysql_server, kafka_broker, tmp_path, runner, {"start": f"{head[0]}:{head[1]}"})
    mysql_server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")
