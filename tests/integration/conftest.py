"""What the integration tests share beside the servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow_database import environment
from integration.command import Command
from integration.command_forks import CommandForks

from changefeed.spark.connect import connect_session
from changefeed.spark.target import SparkTarget
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer


@pytest.fixture(scope="module")
def spark(spark_connect: SparkConnectServer) -> Iterator[SparkTarget]:
    """A session on the Spark that is up, with two cores, for tests that are not about how it starts."""
    with connect_session(spark_connect.url) as session:
        yield session


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandForks]:
    started_from = CommandForks(environment(tmp_path_factory.mktemp("forks")))
    yield started_from
    started_from.stop()


@pytest.fixture
def changefeed(
    tmp_path: Path,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    database: str,
    server_id: int,
    spark_connect: SparkConnectServer,
    forks: CommandForks,
) -> Command:
    spark = f"{{connect: '{spark_connect.url}'}}"
    return Command(tmp_path, unique_name, database, mysql_server, kafka_broker, server_id, spark, forks)


@pytest.fixture(scope="module")
def spare_server(session_folder: Path) -> Iterator[MysqlServer]:
    """A server whose settings and binlogs may be changed."""
    with run_server(MysqlServer(session_folder / "spare-mysql", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture
def spare(
    tmp_path: Path,
    spare_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    forks: CommandForks,
) -> Command:
    spare_server.execute(f"CREATE DATABASE `{unique_name}`")
    return Command(tmp_path, unique_name, unique_name, spare_server, kafka_broker, server_id, forks=forks)
