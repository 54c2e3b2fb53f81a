"""A snapshot of a million rows, against mysqldump and Debezium's: `make bench-snapshot`.

The tables of the workload bulk (`live_workloads.py`): 1,000,000 rows of 11 columns in 20 tables. In each round each
system reads the same server into the same broker; two rounds before, by default, warm JVMs, workers and caches up.

- local[2]: `changefeed snapshot` from a process that holds its Spark session: cutting, reading, publishing, commit log.
- mysqldump: --single-transaction, to a file.
- Debezium: its MySQL connector's snapshot in Connect standalone, from the first record in Kafka to the last, each time
  as a new connector; snapshot.locking.mode=none, and large batches and fetches as `debezium.py` has them.

CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of it. Wall seconds on a shared machine vary twofold: compare the ratios.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "include"))

import kafka
from bench_decode import spread
from debezium import CONNECTOR, HEAP, WORKER
from kafka.admin import KafkaAdminClient, NewTopic
from live_workloads import DATABASE, TABLES, live_server
from process_use import Meter, forget_peaks, peaks
from warm_ingest import Servers, WarmProcess, pipeline

from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot.planning import plan_snapshot
from changefeed.snapshot.run import run_snapshot
from changefeed.spark.session import start_session
from changefeed.spark.target import LocalSpark
from changefeed.state.table_store import TableCheckpointStore
from devstack.connect import ConnectWorker
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server

PARTITIONS = 4
POLL_SECONDS, STALL_SECONDS = 0.05, 300.0


@dataclass(frozen=True)
class Attempt:
    """One system's run: seconds, and CPU seconds of client, broker and MySQL."""

    seconds: float
    cpu: tuple[float, ...]
    note: str = ""


class WarmSnapshot(WarmProcess):
    """A driver with a Spark session; each `publish` is a new snapshot, into the same topics."""

    def __init__(self, pipeline: Pipeline, servers: Servers, state: Path) -> None:
        super().__init__(_serve, pipeline, servers, state)

    def publish(self, run: int) -> tuple[float, int, int]:
        """Seconds of the call, rows and rounds. SystemExit if it fails."""
        self._pipe.send(run)
        seconds, rows, rounds = self._pipe.recv()
        if not rounds:
            raise SystemExit("the snapshot failed")
        return float(seconds), int(rows), int(rounds)


def _serve(pipe: Connection, pipeline: Pipeline, servers: Servers, state: Path) -> None:
    connections, store = PipelineConnections(pipeline, servers.lookup), TableCheckpointStore(f"sqlite:///{state}")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # or Spark looks for another, and warns of what it takes
    with start_session(pipeline) as spark:
        while (run := pipe.recv()) is not None:
            began, rounds, rows = time.perf_counter(), 0, 0
            try:
                identity = snapshot_identity(pipeline.name, f"bench{run}")
                plan = plan_snapshot(connections, store, SnapshotRequest(pipeline=pipeline.name), identity)
                for progress in run_snapshot(LocalSpark(spark), connections, plan):
                    rounds, rows = rounds + 1, sum(table.rows - table.left_out for table in progress.tables)
            except Exception:
                traceback.print_exc()
                rounds = 0
            pipe.send((time.perf_counter() - began, rows, rounds))


def changefeed(warm: WarmSnapshot, run: int, rows: int, mysql: MysqlServer, broker: KafkaBroker) -> Attempt:
    """One snapshot of all tables. SystemExit unless it has all of their rows."""
    forget_peaks(warm.pid)
    meter = Meter(warm.pid, broker.pid, mysql.pid)
    seconds, found, rounds = warm.publish(run)
    if found != rows:
        raise SystemExit(f"the tables have {rows} rows, and {found} were published")
    memory = ", ".join(f"{who} {size}" for who, size in sorted(peaks(warm.pid).items()))
    return Attempt(seconds, meter.used(), f"{rounds} rounds; most MB: {memory}")


def mysqldump(mysql: MysqlServer, broker: KafkaBroker, path: Path) -> Attempt:
    """One dump of all tables."""
    options = ["--single-transaction", "--set-gtid-purged=OFF", DATABASE]
    meter, before, began = Meter(broker.pid, mysql.pid), _ended_children(), time.perf_counter()
    with path.open("wb") as file:
        subprocess.run([*mysql.client("mysqldump"), *options], stdout=file, check=True)
    cpu = (_ended_children() - before, *meter.used())
    return Attempt(time.perf_counter() - began, cpu, f"{path.stat().st_size >> 20} MB")


def _ended_children() -> float:
    """CPU seconds of the children of this process that ended: not of servers and drivers, which are still running."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class DebeziumSnapshots:
    """A Connect worker; each `publish` is a new connector, into its own topics."""

    def __init__(self, folder: Path, mysql: MysqlServer, broker: KafkaBroker) -> None:
        self._mysql, self._broker = mysql, broker
        self._worker = ConnectWorker(folder, broker.bootstrap, properties=WORKER, heap=HEAP)

    def __enter__(self) -> DebeziumSnapshots:
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=self._broker.bootstrap)
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._consumer.close()

    def publish(self, run: int, rows: int) -> Attempt:
        """One snapshot. SystemExit unless it makes as many records as rows."""
        name = f"debezium{run}"
        topics = [f"{name}.{DATABASE}.{table}" for table in TABLES]
        admin = KafkaAdminClient(bootstrap_servers=self._broker.bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics])
        partitions = [kafka.TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        self._worker.add_stopped(name, self._settings(name, run))
        self._worker.resume(name)
        self._wait_for(name, partitions, 1)
        meter, began = Meter(self._worker.pid, self._broker.pid, self._mysql.pid), time.perf_counter()
        self._wait_for(name, partitions, rows)
        attempt = Attempt(time.perf_counter() - began, meter.used())
        self._worker.stop_connector(name)
        admin.delete_topics(topics)
        admin.close()
        return attempt

    def _settings(self, name: str, run: int) -> dict[str, str]:
        host, _, port = self._mysql.root_url.rpartition("@")[2].partition("/")[0].partition(":")
        user, _, password = self._mysql.root_url.partition("://")[2].rpartition("@")[0].partition(":")
        return CONNECTOR | {
            "snapshot.mode": "initial_only",
            "snapshot.fetch.size": "10240",
            "database.hostname": host,
            "database.port": port,
            "database.user": user,
            "database.password": password,
            "database.server.id": str(650_001 + run),
            "database.include.list": DATABASE,
            "topic.prefix": name,
        }

    def _wait_for(self, name: str, partitions: list[kafka.TopicPartition], records: int) -> None:
        last, changed = -1, time.monotonic()
        while last < records:
            now = sum(self._consumer.end_offsets(partitions).values())
            if now != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS:
                raise SystemExit(f"Debezium has written {last} records of {records}, and no more")
            self._worker.check(name)
            time.sleep(POLL_SECONDS)


def show(attempts: dict[str, list[Attempt]], rows: int) -> None:
    """Rows a second of each, and the ratios of ours to theirs in the same round."""
    print(f"{'rows/s':24}{'min':>12}{'median':>12}{'max':>12}")
    for who, of in attempts.items():
        print(f"{who:24}{spread(rows / attempt.seconds for attempt in of)}")
        micros = zip(*(attempt.cpu for attempt in of), strict=True)
        spent = ", ".join(
            f"{name} {min(each) / rows * 1e6:.2f}"
            for name, each in zip(("client", "broker", "MySQL"), micros, strict=True)
        )
        print(f"    CPU us a row, least: {spent}; {of[-1].note}")
    (ours, *others) = attempts
    for who in others:
        pairs = zip(attempts[ours], attempts[who], strict=True)
        print(f"{'ratio to ' + who:24}{spread((their.seconds / our.seconds for our, their in pairs), 2)}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--warm-up", type=int, default=2)
    arguments.add_argument("--no-debezium", action="store_true")
    given = arguments.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        mysql, _ = stack.enter_context(live_server("bulk"))
        broker = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=ProcessId.own())))
        with mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT @@server_uuid")
            uuid = str(cursor.fetchone()[0])
            rows = 0
            for table in TABLES:
                cursor.execute(f"SELECT COUNT(*) FROM {DATABASE}.{table}")
                rows += int(cursor.fetchone()[0])
        of = pipeline("local[2]", PARTITIONS, 64).model_copy(update={"start": "snapshot"})
        servers = Servers(mysql.root_url, uuid, broker.bootstrap)
        warm = stack.enter_context(WarmSnapshot(of, servers, folder / "state.db"))
        run = 0
        attempts: dict[str, Callable[[], Attempt]] = {
            "changefeed local[2]": lambda: changefeed(warm, run, rows, mysql, broker),
            "mysqldump": lambda: mysqldump(mysql, broker, folder / "dump.sql"),
        }
        if not given.no_debezium:
            connector = stack.enter_context(DebeziumSnapshots(folder / "connect", mysql, broker))
            attempts["Debezium"] = lambda: connector.publish(run, rows)
        found: dict[str, list[Attempt]] = {who: [] for who in attempts}
        for run in range(given.warm_up + given.rounds):
            for who, attempt in attempts.items():
                done = attempt()
                print(f"round {run}: {who} {rows / done.seconds:,.0f} rows/s; {done.note}", flush=True)
                if run >= given.warm_up:
                    found[who].append(done)
        show(found, rows)


if __name__ == "__main__":
    main()
