"""Servers and names for all tests.

A server is started when the first test needs it, once a session; at the end of the session it is stopped and its data
is removed. If a session is killed, `python -m devstack stop` or the next session stops its servers.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import uuid
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from airflow_site import Site, site
from long_form import mark_further_cases
from xdist.scheduler.loadscope import LoadScopeScheduling

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import EVERYTHING_ON as MARIADB_EVERYTHING_ON
from devstack.mariadb import MariadbServer
from devstack.mysql import EVERYTHING_ON, GTIDS, MysqlServer
from devstack.process import run_server
from devstack.reaper import end_orphans
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

# No deadline: the time of an example depends on the load of the machine.
hypothesis.settings.register_profile(
    "changefeed",
    deadline=None,
    derandomize=os.environ.get("CHANGEFEED_SEED") != "0",
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("changefeed")

PREFIXES = {"stock": "", "everything": "everything_"}
"""The prefixes of the server fixtures, by `server_settings`."""

_server_ids = itertools.count(1000 + os.getpid() % 100_000 * 1000)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """The folder of this session's servers, `.devstack/test/<unique>`; removed at the end."""
    home = Home.default()
    end_orphans(home)
    folder = home.test / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def full_mysql_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 9.7 with binlog_row_metadata=FULL and GTIDs."""
    with run_server(
        MysqlServer(
            session_folder / "full-mysql",
            options={"binlog_row_metadata": "FULL"} | GTIDS,
            owner=ProcessId.own(),
            quick=True,
        )
    ) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 9.7 with binlog_row_metadata=MINIMAL, its default, and without GTIDs, the default of releases before it."""
    options = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    with run_server(
        MysqlServer(session_folder / "mysql", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def full_mariadb_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.4 with binlog_row_metadata=FULL."""
    options = {"binlog_row_metadata": "FULL"}
    with run_server(
        MariadbServer(session_folder / "full-mariadb", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.4 with binlog_row_metadata=NO_LOG, its default."""
    with run_server(MariadbServer(session_folder / "mariadb", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def everything_mysql_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 9.7 with all optional parts of its binlog."""
    folder = session_folder / "everything-mysql"
    with run_server(MysqlServer(folder, options=EVERYTHING_ON, owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def everything_mariadb_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.4 with all optional parts of its binlog."""
    folder = session_folder / "everything-mariadb"
    with run_server(MariadbServer(folder, options=MARIADB_EVERYTHING_ON, owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture
def server_settings(request: pytest.FixtureRequest) -> str:
    """The settings of a test's servers, "stock" or "everything"; see `both_settings`."""
    return str(getattr(request, "param", os.environ.get("CHANGEFEED_SERVERS", "stock")))


@pytest.fixture
def source_mysql(server_settings: str, request: pytest.FixtureRequest) -> MysqlServer:
    """`mysql_server` or `everything_mysql_server`, by `server_settings`."""
    server: MysqlServer = request.getfixturevalue(f"{PREFIXES[server_settings]}mysql_server")
    return server


@pytest.fixture
def source_mariadb(server_settings: str, request: pytest.FixtureRequest) -> MariadbServer:
    """`mariadb_server` or `everything_mariadb_server`, by `server_settings`."""
    server: MariadbServer = request.getfixturevalue(f"{PREFIXES[server_settings]}mariadb_server")
    return server


@pytest.fixture(scope="session")
def mysql_57_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 5.7.22 with its defaults."""
    folder = session_folder / "mysql-5.7"
    with run_server(MysqlServer(folder, release="5.7", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_80_server(session_folder: Path) -> Iterator[MysqlServer]:
    """MySQL 8.0.15 with its defaults."""
    folder = session_folder / "mysql-8.0"
    with run_server(MysqlServer(folder, release="8.0", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_1011_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 10.11.5 with its defaults, except binlog_format=ROW."""
    folder = session_folder / "mariadb-10.11"
    with run_server(MariadbServer(folder, release="10.11", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_118_server(session_folder: Path) -> Iterator[MariadbServer]:
    """MariaDB 11.8 with its defaults, except binlog_format=ROW."""
    folder = session_folder / "mariadb-11.8"
    with run_server(MariadbServer(folder, release="11.8", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.fixture(scope="session")
def mysql_follower(session_folder: Path) -> Iterator[MysqlServer]:
    """A second MySQL, without a binlog, as a follower."""
    options = {"skip-log-bin": "ON", "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF", "server-id": 2}
    options |= {"innodb-buffer-pool-size": "32M"}
    with run_server(
        MysqlServer(session_folder / "mysql-2", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_follower(session_folder: Path) -> Iterator[MariadbServer]:
    """A second MariaDB, as a follower."""
    options = {"server-id": 2, "innodb-buffer-pool-size": "32M"}
    with run_server(
        MariadbServer(session_folder / "mariadb-2", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker(session_folder: Path) -> Iterator[KafkaBroker]:
    """A Kafka broker without automatic creation of topics."""
    with run_server(KafkaBroker(session_folder / "kafka", owner=ProcessId.own(), quick=True)) as broker:
        yield broker


@pytest.fixture(scope="session")
def schema_registry(session_folder: Path) -> Iterator[SchemaRegistry]:
    """A schema registry that accepts any schema; see `devstack.schema_registry`."""
    with run_server(SchemaRegistry(session_folder / "schema-registry", owner=ProcessId.own())) as registry:
        yield registry


@pytest.fixture(scope="session")
def spark_connect(session_folder: Path) -> Iterator[SparkConnectServer]:
    """A running Spark Connect server with local[2], for tests that do not test the start of Spark."""
    with run_server(SparkConnectServer(session_folder / "spark-connect", owner=ProcessId.own())) as server:
        yield server


AIRFLOW_SITE = pytest.StashKey[ExitStack]()
"""The exit stack that stops the Airflow of a session."""


@pytest.fixture(scope="session")
def airflow_site(
    request: pytest.FixtureRequest,
    session_folder: Path,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    spark_connect: SparkConnectServer,
) -> Iterator[Site]:
    """Airflow with our DAGs and plugin, and a user of each role."""
    with ExitStack() as stack:
        request.config.stash[AIRFLOW_SITE] = stack
        yield stack.enter_context(site(session_folder / "site", mysql_server, kafka_broker, spark_connect))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop Airflow after the last test that may use it, because it takes a sixth of a core when idle."""
    if scope_of(item.nodeid) == "airflow" and (nextitem is None or scope_of(nextitem.nodeid) != "airflow"):
        with item.config.stash.get(AIRFLOW_SITE, ExitStack()):
            pass


@pytest.fixture
def unique_name() -> str:
    """A short unique name for topics, databases, pipelines and transactional ids."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def server_id() -> int:
    """A replication server id that is unique also among parallel sessions; the next 9 ids are free too."""
    return next(_server_ids) * 10


@pytest.fixture
def database(request: pytest.FixtureRequest, unique_name: str) -> Iterator[str]:
    """An empty database on `full_mysql_server` if the test uses that, else on `mysql_server`; dropped afterwards."""
    name = "full_mysql_server" if "full_mysql_server" in request.fixturenames else "mysql_server"
    server: MysqlServer = request.getfixturevalue(name)
    server.execute(f"CREATE DATABASE `{unique_name}`")
    yield unique_name
    server.execute(f"DROP DATABASE IF EXISTS `{unique_name}`")


AIRFLOW = ("tests/browser/", "tests/integration/airflow/test_airflow_", "tests/security/")
"""The tests that share the session's Airflow."""

DURATIONS = Path(__file__).with_name("durations.json")
"""By file, the seconds of its tests in `make test`, and of those that only `make test-all` runs; written by
`make test-durations`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-durations", action="store_true", help=f"write the seconds of each test file to {DURATIONS.name}"
    )


def scope_of(nodeid: str) -> str:
    """The tests that run in one worker: those of a file, or all that need Airflow."""
    file = nodeid.split("::")[0]
    return "airflow" if file.startswith(AIRFLOW) else file


def seconds_of_scopes(items: Iterable[pytest.Item]) -> dict[str, float]:
    """By scope, the stored seconds of its tests among ``items``; 0 for new files."""
    known = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    tiers = {(item.nodeid.split("::")[0], item.get_closest_marker("extended") is not None) for item in items}
    seconds: dict[str, float] = {}
    for file, extended in tiers:
        scope = scope_of(file)
        seconds[scope] = seconds.get(scope, 0.0) + known.get(file, [0.0, 0.0])[extended]
    return seconds


class WholeFiles(LoadScopeScheduling):
    """Gives each worker of pytest-xdist complete files, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeFiles:
    return WholeFiles(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Before the selection by -m and -k, mark the cases of the long form.

    Then, with workers, run the longest files first, so that all workers end at about the same time. Without workers,
    run the tests of Airflow last, because its processes take CPU from other tests."""
    mark_further_cases(items)
    yield
    if hasattr(config, "workerinput"):
        seconds = seconds_of_scopes(items)
        items.sort(key=lambda item: -seconds[scope_of(item.nodeid)])
    else:
        items.sort(key=lambda item: "airflow_site" in getattr(item, "fixturenames", ()))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print a failure and the free memory and disk at once, because a killed session prints nothing later."""
    if not report.failed or "PYTEST_XDIST_WORKER" in os.environ:
        return
    memory = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(memory["MemAvailable"].split()[0]) >> 10
    machine = f"{shutil.disk_usage(Path.cwd()).free >> 20} MB of disk and {free} MB of memory free"
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = str(crash.message if crash else report.longrepr).strip()
    print(f"\nFAILED {report.nodeid} ({report.when}; {machine})\n{reason[:600]}", flush=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With --durations: the seconds of each directory and of its slowest files, all workers together."""
    reports = [
        report
        for report in itertools.chain.from_iterable(terminalreporter.stats.values())
        if isinstance(report, pytest.TestReport)
    ]
    files: dict[str, list[float]] = {}
    for report in reports:
        files.setdefault(report.nodeid.split("::")[0], [0.0, 0.0])["extended" in report.keywords] += report.duration
    if terminalreporter.config.getoption("keep_durations"):
        kept = {file: [round(seconds, 1) for seconds in files[file]] for file in sorted(files)}
        lines = (f"  {json.dumps(file)}: {seconds}" for file, seconds in kept.items())
        DURATIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    if terminalreporter.config.getoption("durations") is None:
        return
    spent: Counter[str] = Counter({file: sum(seconds) for file, seconds in files.items()})
    for file, seconds in files.items():
        spent[str(Path(file).parents[-3]) + "/"] += sum(seconds)
    terminalreporter.section("seconds by directory and file")
    for name, total in spent.most_common():
        if name.endswith("/") or total >= 10:
            terminalreporter.line(f"{total:8.1f}  {name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, report a skipped test as failed."""
    report = yield
    if report.skipped and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which counts as a failure in CI: {report.longrepr}"
    return report
