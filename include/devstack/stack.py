"""The servers of the demo, together: those that are started here, and those that exist already.

MYSQL_URL (`mysql://user:password@host:port`, a user who may create a database and replicate) and
KAFKA_BOOTSTRAP (`host:port`) name existing servers; devstack then neither fetches nor starts its own.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
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
from devstack.home import Home
from devstack.java import fetch_java, find_java
from devstack.kafka import KafkaBroker, fetch_kafka
from devstack.lock import exclusive
from devstack.mariadb import DEBIAN_RELEASE, JARS, MariadbServer, fetch_mariadb
from devstack.mysql import OLD_RELEASES, MysqlServer, fetch_mysql
from devstack.mysqltest import MARIADB_TESTS, fetch_mariadb_binlog
from devstack.postgresql import fetch_postgresql
from devstack.reaper import end_orphans
from devstack.sql_server import Options, SqlServer

MYSQL_VARIABLE = "MYSQL_URL"
KAFKA_VARIABLE = "KAFKA_BOOTSTRAP"

FOLLOWER_OPTIONS: Options = {
    "skip-log-bin": "ON",
    "gtid-mode": "OFF",
    "enforce-gtid-consistency": "OFF",
    "server-id": 2,
    "innodb-buffer-pool-size": "32M",
}


class Condition(StrEnum):
    """Of a server."""

    RUNNING = "running"
    STOPPED = "stopped"
    EXISTING = "existing"  # named by an environment variable: not ours to start or stop


@dataclass(frozen=True)
class ServerState:
    """One line of `status`; *where* is empty unless there is something to connect to."""

    name: str
    condition: Condition
    where: str


class Stack:
    """MySQL (or MariaDB where MySQL cannot be fetched), Kafka and Airflow below `<home>/servers`.

    Any process may make one: it finds what another has started.
    """

    def __init__(self, home: Home | None = None, *, with_follower: bool = False) -> None:
        self.with_follower = with_follower
        self.home = home or Home.default()
        self._existing_mysql = _existing_mysql()
        self._existing_kafka = os.environ.get(KAFKA_VARIABLE) or None
        servers = self.home.servers
        self._mysql = MysqlServer(servers / "mysql", home=self.home)
        self._mariadb = MariadbServer(servers / "mariadb", home=self.home)
        self._follower = MysqlServer(servers / "mysql-2", options=FOLLOWER_OPTIONS, home=self.home)
        self._kafka = KafkaBroker(servers / "kafka", home=self.home)
        self._chosen: SqlServer | None = None

    # --- where things are

    @property
    def sql_server(self) -> SqlServer | None:
        """The server that is started here, its software fetched first; None if MYSQL_URL names one."""
        if self._existing_mysql is None and self._chosen is None:
            self._chosen = self._choose()
        return self._chosen

    @property
    def follower(self) -> SqlServer:
        """A second MySQL, started where the stack was made with one."""
        return self._follower

    @property
    def kafka(self) -> KafkaBroker | None:
        """The broker that is started here; None if KAFKA_BOOTSTRAP names one."""
        return self._kafka if self._existing_kafka is None else None

    @property
    def airflow(self) -> AirflowServer:
        """Airflow with the connections of the shop pipeline; ask for it when MySQL and Kafka have been started."""
        connections = {
            "mysql_shop": self.mysql_url,
            "kafka_shop": f"kafka://{self.bootstrap}",
            "spark_default": json.dumps({"conn_type": "spark", "host": "local[*]"}),
        }
        return AirflowServer(self.home.servers / "airflow", connections=connections, home=self.home)

    @property
    def mysql_url(self) -> str:
        """URL for the pipelines: a user who may read and replicate."""
        return self._existing_mysql or self._started().url

    @property
    def mysql_root_url(self) -> str:
        """URL for the demo's own data: a user who may write; with MYSQL_URL the same as `mysql_url`."""
        return self._existing_mysql or self._started().root_url

    @property
    def bootstrap(self) -> str:
        """Kafka's `bootstrap.servers`."""
        return self._existing_kafka or self._kafka.bootstrap

    @property
    def exports(self) -> list[str]:
        """Lines for a shell in which the command `changefeed` then works on these servers and moves the same checkpoint
        as their Airflow; ask for them when all has been started."""
        own_java = None if find_java() else str(fetch_java(self.home).resolve().parent.parent)
        values = {
            "AIRFLOW_CONN_MYSQL_SHOP": self.mysql_url,
            "AIRFLOW_CONN_KAFKA_SHOP": f"kafka://{self.bootstrap}",
            **self.airflow.database_env,
            **({"JAVA_HOME": own_java} if own_java else {}),
        }
        lines = [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
        if self._existing_mysql is not None:  # its password is its owner's secret
            lines[0] = f'export AIRFLOW_CONN_MYSQL_SHOP="${MYSQL_VARIABLE}"'
        return [*lines, f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"']

    # --- its life

    def fetch(self, tests: bool = False, consumers: bool = False) -> None:
        """Fetch all software that `up` needs and that is not there yet; with *tests*, what the tests need too, and with
        *consumers*, what `make test-consumers` does."""
        fetch_java(self.home)
        if self.kafka is not None:
            fetch_kafka(self.home)
        if self._existing_mysql is None:
            self._started()
        if tests:
            for release in (*JARS, DEBIAN_RELEASE):
                fetch_mariadb(self.home, release)
            for release in ("9.7", *OLD_RELEASES):
                fetch_mysql(self.home, release)
            fetch_kafka(self.home)
            fetch_mariadb_binlog(self.home)
            MARIADB_TESTS.fetch(self.home)
        if consumers:
            fetch_kafka(self.home)
            fetch_connect(self.home)
            fetch_postgresql(self.home)
            for consumer in CONSUMERS:
                consumer.fetch(self.home)

    def up(self) -> None:
        """Fetch and start what does not run, and wait until all answer.

        Raises FetchError or ServerError; what has been started by then runs on, for `stop` or another `up`.
        """
        with self._alone():
            end_orphans(self.home)
            self.fetch()
            with ThreadPoolExecutor(2) as threads:
                follower = self._follower if self.with_follower else None
                servers = (self.sql_server, follower, self.kafka)
                starts = [threads.submit(server.start) for server in servers if server is not None]
            for start in starts:
                start.result()
            self.airflow.start()

    def stop(self) -> list[str]:
        """Stop the demo's servers, and end what dead test sessions left behind; the names of what was stopped.

        Nothing else is touched: no server of a living test session, and none that was there before.
        """
        with self._alone():
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
        with self._alone():
            running = [state.name for state in self.states() if state.condition is Condition.RUNNING]
            if running:
                raise ServerError(
                    f"the data of the servers were to be removed, but these still run: {', '.join(running)}. "
                    "Run `make stop` first"
                )
            end_orphans(self.home)
            shutil.rmtree(self.home.servers, ignore_errors=True)
            if downloads:
                shutil.rmtree(self.home.downloads, ignore_errors=True)

    def states(self) -> list[ServerState]:
        """What runs and where; starts and fetches nothing."""
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
        # Without connections: enough to look at it and to stop it.
        return AirflowServer(self.home.servers / "airflow", home=self.home)

    def _started(self) -> SqlServer:
        server = self.sql_server
        if server is None:
            raise DevstackError(f"a server of devstack was asked for, but {MYSQL_VARIABLE} names an existing one")
        return server

    def _choose(self) -> SqlServer:
        try:
            fetch_mysql(self.home)
        except FetchError as error:
            print(f"MySQL cannot be had here, so MariaDB takes its place. The reason: {error}", flush=True)
            fetch_mariadb(self.home)
            return self._mariadb
        return self._mysql

    def _alone(self) -> AbstractContextManager[None]:
        return exclusive(self.home.root / "stack.lock", "the servers are being started or stopped elsewhere; waiting")


def _condition(running: bool) -> Condition:
    return Condition.RUNNING if running else Condition.STOPPED


def _existing_mysql() -> str | None:
    url = os.environ.get(MYSQL_VARIABLE)
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "mysql" or not parts.hostname or not parts.username:
        raise DevstackError(
            f"{MYSQL_VARIABLE} must look like mysql://user:password@host:3306, found scheme {parts.scheme!r}, "
            f"host {parts.hostname!r} and user {parts.username!r}. Correct it, or unset it to have a server started"
        )
    return url


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return f"mysql://{parts.username}@{parts.hostname}:{parts.port or 3306}"
