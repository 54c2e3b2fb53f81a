"""Servers and names for all tests.

The servers are started when the first test asks for them, once a session, and stopped at its end with their
data removed. A session that is killed leaves them to `python -m devstack stop`, or to the next session.
"""

from __future__ import annotations

import itertools
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from airflow_site import Site, site
from xdist.scheduler.loadscope import LoadScopeScheduling

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import EVERYTHING_ON, MysqlServer
from devstack.process import started
from devstack.reaper import end_orphans
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

# How long a property takes says how busy the machine is, and fails no test.
hypothesis.settings.register_profile(
    "changefeed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("changefeed")

_server_ids = itertools.count(1000 + os.getpid() % 100_000 * 1000)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """Where the servers of this session live: `.devstack/test/<unique>`, removed at the end."""
    home = Home.default()
    end_orphans(home)
    folder = home.test / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def mysql_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 9.7 with binlog_row_metadata=FULL and GTIDs."""
    with started(
        MysqlServer(session_folder / "mysql", options=EVERYTHING_ON, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def stock_mysql_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 9.7 with binlog_row_metadata=MINIMAL, its default, and without GTIDs, the default of releases before it."""
    options = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    with started(
        MysqlServer(session_folder / "stock-mysql", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.4 with binlog_row_metadata=FULL."""
    options = {"binlog_row_metadata": "FULL"}
    with started(
        MariadbServer(session_folder / "mariadb", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def stock_mariadb_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.4 with binlog_row_metadata=NO_LOG, its default."""
    with started(MariadbServer(session_folder / "stock-mariadb", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_57_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 5.7.22 with its defaults."""
    folder = session_folder / "mysql-5.7"
    with started(MysqlServer(folder, release="5.7", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_80_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 8.0.15 with its defaults."""
    folder = session_folder / "mysql-8.0"
    with started(MysqlServer(folder, release="8.0", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_1011_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 10.11.5 with its defaults, but for binlog_format=ROW."""
    folder = session_folder / "mariadb-10.11"
    with started(MariadbServer(folder, release="10.11", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_118_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.8 with its defaults, but for binlog_format=ROW."""
    folder = session_folder / "mariadb-11.8"
    with started(MariadbServer(folder, release="11.8", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_follower(session_folder: Path) -> Iterator[MysqlServer]:
    """A second MySQL, without a binlog, that a pipeline's changes are applied to."""
    options = {"skip-log-bin": "ON", "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF", "server-id": 2}
    options |= {"innodb-buffer-pool-size": "32M"}
    with started(MysqlServer(session_folder / "mysql-2", options=options, owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_follower(session_folder: Path) -> Iterator[MariadbServer]:
    """A second MariaDB that a pipeline's changes are applied to."""
    options = {"server-id": 2, "innodb-buffer-pool-size": "32M"}
    with started(
        MariadbServer(session_folder / "mariadb-2", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker(session_folder: Path) -> Iterator[KafkaBroker]:
    """A Kafka broker that creates no topic by itself."""
    with started(KafkaBroker(session_folder / "kafka", owner=ProcessId.own(), quick=True)) as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry(session_folder: Path) -> Iterator[SchemaRegistry]:
    """A schema registry that takes any schema: see `devstack.schema_registry`."""
    with started(SchemaRegistry(session_folder / "schema-registry", owner=ProcessId.own())) as registry:
        yield registry


@pytest.fixture(scope="session")
def spark_connect(session_folder: Path) -> Iterator[SparkConnectServer]:
    """Spark at local[2], started: for whatever needs Spark and is not about starting it."""
    with started(SparkConnectServer(session_folder / "spark-connect", owner=ProcessId.own())) as server:
        yield server


@pytest.fixture(scope="session")
def airflow_site(
    session_folder: Path, mysql_server: MysqlServer, kafka_broker: KafkaBroker, spark_connect: SparkConnectServer
) -> Iterator[Site]:
    """Airflow with our DAGs and plugin, and a user of each role."""
    with site(session_folder / "site", mysql_server, kafka_broker, spark_connect) as running:
        yield running


@pytest.fixture
def unique_name() -> str:
    """A short name that no other test has: for topics, databases, pipelines, transactional ids."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def server_id() -> int:
    """A replication server id that no other test has, also in a session at the same time; the next 9 are free too."""
    return next(_server_ids) * 10


@pytest.fixture
def database(mysql_server: MysqlServer, unique_name: str) -> Iterator[str]:
    """An empty database on `mysql_server`, dropped afterwards."""
    mysql_server.execute(f"CREATE DATABASE `{unique_name}`")
    yield unique_name
    mysql_server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


AIRFLOW = ("tests/browser/", "tests/integration/test_airflow_", "tests/security/")
"""The tests that share the one Airflow of a session."""

LONGEST_FIRST = (
    *AIRFLOW,
    "tests/faults/",
    "tests/foreign/",
    "tests/integration/",
    "tests/dags/",
    "tests/contract/",
    "tests/unit/",
)
"""The order with workers: the short ones at the end fill the gaps that the long ones leave."""


class WholeFiles(LoadScopeScheduling):
    """Gives each worker of pytest-xdist whole files, and all that need the one Airflow to one of them."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # the order is LONGEST_FIRST
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "airflow" if file.startswith(AIRFLOW) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    return WholeFiles(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of Airflow come last: its processes take CPU from whatever runs beside them. With workers they come first,
    as one worker has them all and they take longest."""

    def rank(item: pytest.Item) -> int:
        return next((rank for rank, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)), 0)

    if hasattr(config, "workerinput"):
        items.sort(key=rank)
    else:
        items.sort(key=lambda item: "airflow_site" in getattr(item, "fixturenames", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With --durations: the seconds of each directory and of its slowest files, all workers together."""
    if terminalreporter.config.getoption("durations") is None:
        return
    seconds: Counter[str] = Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            file = report.nodeid.split("::")[0]
            seconds[file] += report.duration
            seconds[str(Path(file).parents[-3]) + "/"] += report.duration
    terminalreporter.section("seconds by directory and file")
    for name, spent in seconds.most_common():
        if name.endswith("/") or spent >= 10:
            terminalreporter.line(f"{spent:8.1f}  {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped test is a failed one: what is not run is not known to work."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which counts as a failure in CI: {report.longrepr}"
    return report
