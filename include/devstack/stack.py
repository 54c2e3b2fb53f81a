"""The servers of the demo, each either started by devstack or existing.

MYSQL_URL (`mysql://user:password@host:port`, a user who may create a database and replicate) and KAFKA_BOOTSTRAP
(`host:port`) name existing servers. devstack then neither fetches nor starts its own.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from devstack.airflow import AirflowServer
from devstack.connect import fetch_connect
from devstack.consumers import CONSUMERS
from devstack.errors import DevstackError, FetchError, ServerError
from devstack.home import PROJECT, Home
from devstack.java import fetch_java, find_java
from devstack.kafka import KafkaBroker, fetch_kafka
from devstack.lock import hold_lock
from devstack.mariadb import DEBIAN_RELEASE, JARS, MariadbServer, fetch_mariadb
from devstack.mysql import OLD_RELEASES, MysqlServer, fetch_mysql
from devstack.mysqltest import MARIADB_TESTS, fetch_mariadb_binlog
from devstack.postgresql import fetch_postgresql
from devstack.promtool import fetch_promtool
from devstack.reaper import end_orphans
from devstack.spark import fetch_spark
from devstack.sql_server import Options, SqlServer
from devstack.yarn import fetch_yarn

MYSQL_VARIABLE = "MYSQL_URL"
KAFKA_VARIABLE = "KAFKA_BOOTSTRAP"

SITE_VARIABLE = "CHANGEFEED_SITE"
SITE = """\
# What users of the demo may set on the page and over REST, beyond the safe defaults: docs/reference/site-settings.md
# describes all keys. To use a file of your own, name it in CHANGEFEED_SITE before `make demo`.
connections:
  - {source: mysql_shop, kafka: kafka_shop}
"""

PIPELINES_VARIABLE = "CHANGEFEED_PIPELINES"
CONTINUOUS = ('schedule: "* * * * *"', 'schedule: "@continuous"\nwindows: {every: 1s, run_for: 10m}')
"""The schedule of the shop pipeline, and what the demo with continuous runs has in its place."""

FOLLOWER_OPTIONS: Options = {
    "skip-log-bin": "ON",
    "gtid-mode": "OFF",
    "enforce-gtid-consistency": "OFF",
    "server-id": 2,
    "innodb-buffer-pool-size": "32M",
}


class Condition(StrEnum):
    """State of a server."""

    RUNNING = "running"
    STOPPED = "stopped"
    EXISTING = "existing"  # named by an environment variable; devstack does not start or stop it


@dataclass(frozen=True)
class ServerState:
    """One line of `status`; *where* is the address, empty if the server does not run."""

    name: str
    condition: Condition
    where: str


class Stack:
    """MySQL (or MariaDB if MySQL cannot be fetched), Kafka and Airflow below `<home>/servers`.

    Several processes may create a stack of the same home: all use the same servers.
    """

    def __init__(
        self, home: Home | None = None, *, with_follower: bool = False, continuous: bool | None = None
    ) -> None:
        self.with_follower = with_follower
        self._wants_continuous = continuous
        self.home = home or Home.default()
        self._existing_mysql = _existing_mysql()
        self._existing_kafka = os.environ.get(KAFKA_VARIABLE) or None
        servers = self.home.servers
        self._mysql = MysqlServer(servers / "mysql", home=self.home)
        self._mariadb = MariadbServer(servers / "mariadb", home=self.home)
        self._follower = MysqlServer(servers / "mysql-2", options=FOLLOWER_OPTIONS, home=self.home)
        self._kafka = KafkaBroker(servers / "kafka", home=self.home)
        self._site = servers / "site.yaml"
        self._pipelines = servers / "pipelines"
        self._chosen: SqlServer | None = None

    @property
    def is_continuous(self) -> bool:
        """Whether the shop pipeline publishes a window a second, instead of a run each minute."""
        return bool(self._wants_continuous)

    # --- addresses

    @property
    def sql_server(self) -> SqlServer | None:
        """The server that devstack starts; fetches its software. None if MYSQL_URL names an existing server."""
        if self._existing_mysql is None and self._chosen is None:
            self._chosen = self._choose()
        return self._chosen

    @property
    def follower(self) -> SqlServer:
        """A second MySQL, which `up` starts if the stack was created with *with_follower*."""
        return self._follower

    @property
    def kafka(self) -> KafkaBroker | None:
        """The broker that devstack starts; None if KAFKA_BOOTSTRAP names an existing one."""
        return self._kafka if self._existing_kafka is None else None

    @property
    def airflow(self) -> AirflowServer:
        """Airflow with the connections of the shop pipeline. MySQL and Kafka must have been started before."""
        connections = {
            "mysql_shop": self.mysql_url,
            "kafka_shop": f"kafka://{self.bootstrap}",
            "spark_default": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        }
        settings = {} if SITE_VARIABLE in os.environ else {SITE_VARIABLE: str(self._site)}
        settings |= self._pipelines_folder
        return AirflowServer(self.home.servers / "airflow", connections=connections, settings=settings, home=self.home)

    @property
    def _pipelines_folder(self) -> dict[str, str]:
        """The variable that names the folder with the continuous pipeline; {} if the pipelines of the checkout run."""
        return {PIPELINES_VARIABLE: str(self._pipelines)} if self._pipelines.exists() else {}

    @property
    def mysql_url(self) -> str:
        """MySQL's URL for the pipelines, with a user who may read and replicate."""
        return self._existing_mysql or self._require_server().url

    @property
    def mysql_root_url(self) -> str:
        """MySQL's URL for the demo's own data, with a user who may write; with MYSQL_URL the same as `mysql_url`."""
        return self._existing_mysql or self._require_server().root_url

    @property
    def bootstrap(self) -> str:
        """Kafka's `bootstrap.servers`."""
        return self._existing_kafka or self._kafka.bootstrap

    @property
    def exports(self) -> list[str]:
        """Shell lines with which the command `changefeed` uses these servers, and the same checkpoint as their Airflow.

        All servers must have been started before.
        """
        own_java = None if find_java() else str(fetch_java(self.home).resolve().parent.parent)
        values = {
            "AIRFLOW_CONN_MYSQL_SHOP": self.mysql_url,
            "AIRFLOW_CONN_KAFKA_SHOP": f"kafka://{self.bootstrap}",
            **self.airflow.database_env,
            **self._pipelines_folder,
            **({"JAVA_HOME": own_java} if own_java else {}),
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        if self._existing_mysql is not None:  # do not print its password
            lines[0] = f'export AIRFLOW_CONN_MYSQL_SHOP="${MYSQL_VARIABLE}"'
        return [*lines, f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"']

    # --- start and stop

    def fetch(self, tests: bool = False, consumers: bool = False) -> None:
        """Fetch the missing software that `up` needs; with *tests* also software of the tests, with *consumers* also
        software of `make test-consumers`."""
        with ThreadPoolExecutor(2) as threads:
            kafka = threads.submit(self._fetch_kafka)
            server = threads.submit(self._require_server) if self._existing_mysql is None else None
        kafka.result()
        if server is not None:
            server.result()
        if tests:
            for release in (*JARS, DEBIAN_RELEASE):
                fetch_mariadb(self.home, release)
            for release in ("9.7", *OLD_RELEASES):
                fetch_mysql(self.home, release)
            fetch_kafka(self.home)
            fetch_postgresql(self.home)
            fetch_mariadb_binlog(self.home)
            MARIADB_TESTS.fetch(self.home)
            fetch_promtool(self.home)
            fetch_yarn(self.home)
        if consumers:
            fetch_kafka(self.home)
            fetch_connect(self.home)
            fetch_postgresql(self.home)
            for consumer in CONSUMERS:
                consumer.fetch(self.home)

    def _fetch_kafka(self) -> None:
        """Fetch Java and Spark, which also Airflow's tasks need, and with both of them Kafka."""
        with ThreadPoolExecutor(1) as thread:
            java = thread.submit(fetch_java, self.home)
            fetch_spark(self.home)
        java.result()
        if self.kafka is not None:
            fetch_kafka(self.home)

    def up(self, report: Callable[[str], object] = str) -> None:
        """Fetch missing software, start the servers that do not run, and wait until all are ready.

        *report* is called with the name of each step when it begins.

        Raises FetchError or ServerError. Servers that were started before the error continue to run, for `stop` or
        another `up`.
        """
        with self._hold_lock():
            end_orphans(self.home)
            report("Fetch what is missing of MySQL, Java, Spark and Kafka, side by side, and start the servers")
            with ThreadPoolExecutor(3) as threads:
                starts = [
                    threads.submit(self._start_kafka),
                    threads.submit(self._start_mysql),
                    threads.submit(self._airflow().prepare),
                ]
            for start in starts:
                start.result()
            report("Start Airflow")
            write_site(self._site)
            self._write_pipelines()
            self.airflow.start()

    def _write_pipelines(self) -> None:
        """Write the shop pipeline with continuous runs, or remove that of an earlier demo; `up` of a stack that does
        not say which leaves it."""
        if self._wants_continuous:
            self._pipelines.mkdir(exist_ok=True)
            text = (PROJECT / "include" / "pipelines" / "shop.yaml").read_text(encoding="utf-8")
            (self._pipelines / "shop.yaml").write_text(text.replace(*CONTINUOUS), encoding="utf-8")
        elif self._wants_continuous is False:
            shutil.rmtree(self._pipelines, ignore_errors=True)

    def _start_kafka(self) -> None:
        self._fetch_kafka()
        if self.kafka is not None:
            self.kafka.start()

    def _start_mysql(self) -> None:
        if (server := self.sql_server) is not None:
            server.start()
        if self.with_follower:
            self._follower.start()

    def stop(self) -> list[str]:
        """Stop the demo's servers, and servers of killed test sessions; returns the names of the stopped servers.

        Servers of running test sessions and existing servers are not stopped.
        """
        with self._hold_lock():
            stopped = [state.name for state in self.states() if state.condition is Condition.RUNNING]
            self._airflow().stop()
            with ThreadPoolExecutor(3) as threads:
                for server in (self._mysql, self._mariadb, self._follower, self._kafka):
                    threads.submit(server.stop)
            return stopped + end_orphans(self.home)

    def clean(self, downloads: bool = False) -> None:
        """Remove all data of the demo's servers, and with *downloads* the fetched software too.

        Raises ServerError if one of them still runs.
        """
        with self._hold_lock():
            running = [state.name for state in self.states() if state.condition is Condition.RUNNING]
            if running:
                raise ServerError(
                    f"the data of the servers cannot be removed while these run: {', '.join(running)}. Nothing was "
                    f"removed. "
                    "Run `make stop` first"
                )
            end_orphans(self.home)
            shutil.rmtree(self.home.servers, ignore_errors=True)
            if downloads:
                shutil.rmtree(self.home.downloads, ignore_errors=True)

    def states(self) -> list[ServerState]:
        """The state and address of each server; starts and fetches nothing."""
        mysql, kafka = self._existing_mysql, self._existing_kafka
        states = []
        if mysql is not None:
            states.append(ServerState("MySQL", Condition.EXISTING, f"{_without_password(mysql)} ({MYSQL_VARIABLE})"))
        for server in (self._mysql, self._mariadb):
            if server.running or (server is self._mysql and mysql is None):
                where = f"mysql://127.0.0.1:{server.port}" if server.running else ""
                states.append(ServerState(server.product, _condition(server.running), where))
        if self._follower.running:
            where = f"mysql://127.0.0.1:{self._follower.port}"
            states.append(ServerState("MySQL (follower)", Condition.RUNNING, where))
        if kafka is not None:
            states.append(ServerState("Kafka", Condition.EXISTING, f"{kafka} ({KAFKA_VARIABLE})"))
        if self._kafka.running or kafka is None:
            where = self._kafka.bootstrap if self._kafka.running else ""
            states.append(ServerState("Kafka", _condition(self._kafka.running), where))
        airflow = self._airflow()
        states.append(ServerState("Airflow", _condition(airflow.any_running), airflow.url if airflow.running else ""))
        return states

    def _airflow(self) -> AirflowServer:
        # Without connections, which status and stop do not need.
        return AirflowServer(self.home.servers / "airflow", home=self.home)

    def _require_server(self) -> SqlServer:
        server = self.sql_server
        if server is None:
            raise DevstackError(f"expected a server of devstack, but {MYSQL_VARIABLE} names an existing one")
        return server

    def _choose(self) -> SqlServer:
        try:
            fetch_mysql(self.home)
        except FetchError as error:
            print(f"MySQL cannot be fetched, so MariaDB is used instead. The reason: {error}", flush=True)
            fetch_spark(self.home)  # its Ivy fetches MariaDB
            fetch_mariadb(self.home)
            return self._mariadb
        return self._mysql

    def _hold_lock(self) -> AbstractContextManager[None]:
        return hold_lock(self.home.root / "stack.lock", "waiting for another process that starts or stops the servers")


def _condition(running: bool) -> Condition:
    return Condition.RUNNING if running else Condition.STOPPED


def write_site(path: Path) -> None:
    """Write the site's file of the demo, unless it exists. Only its owner may write it, whatever the umask is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(0o600)
        path.write_text(SITE)


def _existing_mysql() -> str | None:
    url = os.environ.get(MYSQL_VARIABLE)
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "mysql" or not parts.hostname or not parts.username:
        raise DevstackError(
            f"expected {MYSQL_VARIABLE} in the form mysql://user:password@host:3306, found scheme {parts.scheme!r}, "
            f"host {parts.hostname!r} and user {parts.username!r}. Correct it, or unset it to have a server started"
        )
    return url


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"mysql://{parts.username}@{parts.hostname}:{parts.port or 3306}"
