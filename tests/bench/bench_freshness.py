"""The time from a commit in MySQL until a read_committed consumer has its record: a continuous run, Debezium, Maxwell.

    make bench-freshness ARGS="--seconds 60 --rates 1 100 --systems continuous"

One system at a time reads a table of one server and writes into one broker. A writer commits the given number of rows a
second; a consumer with the isolation level read_committed notes when it gets each record. The first seconds, in which a
system starts, are not counted.

- continuous: `changefeed run` with `windows: {every: 1s}` at a local Spark with two cores; also with `every: 0s`
- debezium: its MySQL connector in Kafka Connect, with its default poll interval
- maxwell: with its defaults. It is measured only with `--maxwell FOLDER`, the folder of a release or of a build of its
  sources, with `bin` and `lib`: Maven Central has no release that runs with this MySQL

Prints a line for each system and rate: seconds from the commit to the consumer (median, 99th percentile, maximum), and
the CPU seconds a second of the system's processes, of the broker and of MySQL. The writer and the consumer share the
machine. At rate 0 nothing is written, and it is checked that the system writes nothing to Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "include"), str(Path(__file__).parent)]

import kafka  # noqa: E402 - after the path
from debezium import login  # noqa: E402
from kafka.admin import KafkaAdminClient, NewTopic  # noqa: E402
from process_use import cpu_by_kind, cpu_seconds  # noqa: E402

from devstack.connect import ConnectWorker  # noqa: E402
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402

DATABASE = "freshness"
SERVERS = ("broker", "MySQL")
COMMITS_A_SECOND = 20
"""A writer commits at most this often, with several rows if the rate is higher."""
READY_SECONDS = 180.0
SETTLE_SECONDS = 10.0
"""The writer's first seconds, which are not counted."""
YAML = """\
name: {name}
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["{database}.{name}"]}}
topics: {{template: "{{table}}"}}
checkpoint: {{store: kafka}}
start: latest
publish_ddl: "off"
windows: {{every: {every}, run_for: 1h}}
spark: {{master: "local[2]"}}
"""
DEBEZIUM = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "snapshot.mode": "no_data",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "include.schema.changes": "false",
    "database.server.id": "640002",
    "database.ssl.mode": "preferred",
    "database.include.list": DATABASE,
    "topic.prefix": "debezium",
}


@dataclass(frozen=True)
class Servers:
    """What all systems share."""

    folder: Path
    mysql: MysqlServer
    kafka: KafkaBroker
    maxwell: Path | None


@dataclass(frozen=True)
class Figures:
    """Seconds from commit to consumer of the rows that were counted, sorted, and CPU seconds a second by process."""

    seconds: list[float]
    cpu: Mapping[str, float]

    def at(self, share: float) -> float:
        """The time within which this share of the rows was there."""
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]

    def describe(self) -> str:
        """The figures as a line of the table."""
        shares = "".join(f"{self.at(share):9.2f}" if self.seconds else f"{'-':>9}" for share in (0.5, 0.99, 1.0))
        own = sum(used for who, used in self.cpu.items() if who not in SERVERS)
        return f"{shares}{own:10.3f}   " + ", ".join(f"{who} {used:.3f}" for who, used in self.cpu.items())


@contextmanager
def continuous(servers: Servers, name: str, every: str) -> Iterator[int]:
    """A continuous run of a pipeline over table ``name``; its pid."""
    pipelines = servers.folder / name
    pipelines.mkdir()
    (pipelines / f"{name}.yaml").write_text(YAML.format(name=name, database=DATABASE, every=every))
    env = os.environ | {
        "CHANGEFEED_PIPELINES": str(pipelines),
        "AIRFLOW_CONN_MYSQL": servers.mysql.url,
        "AIRFLOW_CONN_KAFKA": f"kafka://{servers.kafka.bootstrap}",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with run_command(servers, name, [sys.executable, "-m", "changefeed.cli.main", "run", name], env) as pid:
        yield pid


@contextmanager
def run_command(servers: Servers, name: str, command: list[str], env: Mapping[str, str]) -> Iterator[int]:
    """Run ``command`` in a session of its own, with a log ``name``; its pid. The session is killed in the end."""
    with (servers.folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def create_topic(servers: Servers, topic: str) -> None:
    """Create ``topic``, for a system that does not."""
    admin = KafkaAdminClient(bootstrap_servers=servers.kafka.bootstrap)
    admin.create_topics([NewTopic(topic, 1, 1)])
    admin.close()


@contextmanager
def maxwell(servers: Servers, name: str, _every: str) -> Iterator[int]:
    """Maxwell, for one table; its pid. It keeps its state in the database `maxwell`."""
    create_topic(servers, name)
    server = urlsplit(servers.mysql.root_url)
    options = {
        "producer": "kafka",
        "kafka.bootstrap.servers": servers.kafka.bootstrap,
        "kafka_topic": name,
        "kafka_version": "3.7.1",
        "host": server.hostname,
        "port": server.port,
        "user": server.username,
        "password": server.password,
        "filter": f"exclude: *.*, include: {DATABASE}.{name}",
        "ssl": "PREFERRED",
        "client_id": name,
        "replica_server_id": "640003",
    }
    command = [f"{servers.maxwell}/bin/maxwell", *(f"--{option}={value}" for option, value in options.items())]
    with run_command(servers, name, command, os.environ) as pid:
        yield pid


@contextmanager
def debezium(servers: Servers, name: str, _every: str) -> Iterator[int]:
    """Debezium's connector, for all tables; the pid of its worker."""
    create_topic(servers, SYSTEMS["debezium"][2].format(name=name))
    worker = ConnectWorker(servers.folder / name, servers.kafka.bootstrap, properties={}, heap="1g")
    worker.start()
    try:
        worker.add_stopped(name, DEBEZIUM | login(servers.mysql))
        worker.resume(name)
        yield worker.pid or 0
    finally:
        worker.stop()


SYSTEMS: Mapping[str, tuple[Callable[..., Any], str, str]] = {
    "continuous": (continuous, "1s", "{name}"),
    "continuous-0s": (continuous, "0s", "{name}"),
    "debezium": (debezium, "", "debezium." + DATABASE + ".{name}"),
    "maxwell": (maxwell, "", "{name}"),
}
"""Function, `windows.every`, and the topic of a table."""


class Writer(threading.Thread):
    """Commits ``rate`` rows a second; ``committed`` has the time of the commit of the last row of each transaction."""

    def __init__(self, mysql: MysqlServer, table: str, rate: int) -> None:
        super().__init__(daemon=True)
        self.committed: dict[int, float] = {}
        self._mysql, self._table, self._ended = mysql, table, threading.Event()
        self._commits = min(rate, COMMITS_A_SECOND)
        self._rows = rate // max(1, self._commits)

    def run(self) -> None:
        """Write until `stop`."""
        row, due = 0, time.monotonic()
        if not self._commits:
            return
        with self._mysql.connect(database=DATABASE) as connection, connection.cursor() as cursor:
            while not self._ended.wait(max(0.0, due - time.monotonic())):
                values = ", ".join(f"({row + each}, 'a text of some length')" for each in range(self._rows))
                row += self._rows
                cursor.execute(f"INSERT INTO {self._table} VALUES {values}")
                self.committed[row - 1] = time.time()
                due += 1 / self._commits

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()


class Reader(threading.Thread):
    """Notes in ``seen`` when the record of each row arrived."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[int, float] = {}
        self._ended = threading.Event()
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            metadata_max_age_ms=1000,
        )
        self._consumer.subscribe([topic])

    def run(self) -> None:
        """Read until `stop`."""
        while not self._ended.is_set():
            polled, now = self._consumer.poll(timeout_ms=200), time.time()
            for records in polled.values():
                for record in records:
                    value = json.loads(record.value)
                    row = (value.get("data") or value.get("payload", value)["after"])["id"]
                    self.seen.setdefault(row, now)
        self._consumer.close()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self.join()


def cpu_of(pid: int, servers: Servers) -> dict[str, float]:
    """CPU seconds of the system's processes and of the servers until now."""
    own = dict(sorted(cpu_by_kind(pid).items()))
    return own | {"broker": cpu_seconds(servers.kafka.pid or 0), "MySQL": cpu_seconds(servers.mysql.pid or 0)}


def end_offsets(bootstrap: str) -> dict[kafka.TopicPartition, int]:
    """The end of each partition, also of records of open transactions, without the topics of Kafka and Connect."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    names = [name for name in consumer.topics() if not name.startswith(("__", "connect"))]
    partitions = [kafka.TopicPartition(name, each) for name in names for each in consumer.partitions_for_topic(name)]
    ends: dict[kafka.TopicPartition, int] = consumer.end_offsets(partitions)
    consumer.close()
    return ends


def measure(servers: Servers, system: str, rate: int, seconds: float) -> Figures:
    """Run ``system`` for ``seconds`` with ``rate`` rows a second. SystemExit if a row did not arrive."""
    start, every, topic = SYSTEMS[system]
    name = f"{system}_{rate}".replace("-", "_")
    servers.mysql.execute(f"CREATE TABLE {DATABASE}.{name} (id INT PRIMARY KEY, text VARCHAR(100))")
    writer, reader = Writer(servers.mysql, name, rate), Reader(servers.kafka.bootstrap, topic.format(name=name))
    with start(servers, name, every) as pid:
        reader.start()
        probe = -1
        deadline = time.monotonic() + READY_SECONDS
        while not reader.seen:  # rows before the system's start are not in its topics
            servers.mysql.execute(f"INSERT INTO {DATABASE}.{name} VALUES ({probe}, '')")
            probe -= 1
            time.sleep(1)
            if time.monotonic() > deadline:
                raise SystemExit(f"{system} published nothing; see {servers.folder}")
        writer.start()
        time.sleep(SETTLE_SECONDS)
        ends = end_offsets(servers.kafka.bootstrap) if not rate else {}
        since, before = time.time(), cpu_of(pid, servers)
        time.sleep(seconds)
        cpu, until = (
            {who: max(0.0, used - before.get(who, 0.0)) / seconds for who, used in cpu_of(pid, servers).items()},
            time.time(),
        )
        if ends and (grown := {at for at, end in end_offsets(servers.kafka.bootstrap).items() if end != ends.get(at)}):
            raise SystemExit(f"{system} wrote to {grown} while nothing changed")
        writer.stop()
        counted = {row: at for row, at in writer.committed.items() if since <= at < until}
        deadline = time.monotonic() + 60
        while counted.keys() - reader.seen.keys() and time.monotonic() < deadline:
            time.sleep(0.2)
    reader.stop()
    if missing := counted.keys() - reader.seen.keys():
        raise SystemExit(f"{system}: {len(missing)} of {len(counted)} commits did not arrive")
    return Figures(sorted(reader.seen[row] - at for row, at in counted.items()), cpu)


def main() -> None:
    """Start the servers, measure each system at each rate, and print a table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seconds", type=float, default=180)
    arguments.add_argument("--rates", nargs="+", type=int, default=[0, 1, 100, 5000], help="rows a second")
    arguments.add_argument("--systems", nargs="+", choices=SYSTEMS)
    arguments.add_argument("--maxwell", type=Path, metavar="FOLDER", help="a release of Maxwell, which is not fetched")
    parsed = arguments.parse_args()
    systems = parsed.systems or [name for name in SYSTEMS if name != "maxwell" or parsed.maxwell]
    if "maxwell" in systems and not parsed.maxwell:
        arguments.error("maxwell needs --maxwell FOLDER")
    subprocess.run([sys.executable, "-m", "changefeed.native"], check=True)
    home = Home.default()
    home.test.mkdir(parents=True, exist_ok=True)
    print(f"{'':16}rows/s    p50 s    p99 s    max s   CPU s/s", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home.test)))
        mysql = stack.enter_context(run_server(MysqlServer(folder / "mysql", owner=ProcessId.own())))
        broker = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=ProcessId.own())))
        mysql.execute(f"CREATE DATABASE {DATABASE}")
        servers = Servers(folder, mysql, broker, parsed.maxwell)
        for rate in parsed.rates:
            for system in systems:
                print(f"{system:16}{rate:6}{measure(servers, system, rate, parsed.seconds).describe()}", flush=True)


if __name__ == "__main__":
    main()
