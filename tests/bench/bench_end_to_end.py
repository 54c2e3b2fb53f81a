"""From a live MySQL server into Kafka: the cost of a row by phase, and other programs on the same binlog.

    make bench-end-to-end ARGS="bulk oltp"             parts: bulk, oltp, window (`bench_overhead.py`); none named: all
    make bench-end-to-end ARGS="bulk --rounds 1 --no-local1 --no-debezium --no-send"

In each round each system reads the same range of binlog, from the same server into the same broker, with its own
topics; rounds before, three by default, warm JVMs, workers and caches up. All features of a run are on: shuffle,
transactions, commit log, accounts.

- local[2], local[1]: `ingest` from a process that holds its Spark session. Rows/s are of the phase ingest, which is
  from the first read of the binlog to the last commit; `total` is the complete call. CPU is of driver, JVM and workers.
- Debezium: its MySQL connector, from the first record in Kafka to the last (`debezium.py` says how).
- send: kafka-python's `send` in a loop, over records of the same run.

All read MySQL without TLS, which shares their machine, unless --tls says so.

Last come the costs of single stages (`stages.py`).

CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of it. Wall seconds on a shared machine vary twofold: compare the ratios.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "include"))

import bench_overhead
import kafka
from bench_decode import spread
from debezium import Debezium
from live_workloads import TABLES, Workload, live_server
from process_use import Meter, cpu_by_kind, forget_peaks, peaks
from stages import stages
from warm_ingest import Servers, WarmIngest, pipeline

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server

PARTS = ("bulk", "oltp", "window")
SENT = 20_000


@dataclass(frozen=True)
class Figures:
    """One system's run over ``rows`` rows."""

    rows: int
    seconds: float
    client: float
    broker: float
    server: float
    """CPU seconds each: of the client with all its processes, of the broker, of MySQL."""
    note: str = ""

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds

    @property
    def thrift(self) -> float:
        """Rows per CPU second of all three, comparable even on a busy machine."""
        return self.rows / (self.client + self.broker + self.server)

    @property
    def micros(self) -> tuple[float, float, float]:
        """CPU microseconds a row, of client, broker and MySQL."""
        return self.client / self.rows * 1e6, self.broker / self.rows * 1e6, self.server / self.rows * 1e6


def changefeed(warm: WarmIngest, workload: Workload, mysql: MysqlServer, broker: KafkaBroker) -> Figures:
    """One pass of `ingest`."""
    forget_peaks(warm.pid)
    meter, before = Meter(warm.pid, broker.pid, mysql.pid), cpu_by_kind(warm.pid)
    seconds, manifest = warm.publish(workload)
    used, after = meter.used(), cpu_by_kind(warm.pid)
    spent = ", ".join(f"{who} {cpu - before.get(who, 0.0):.2f}" for who, cpu in sorted(after.items()))
    phases = ", ".join(f"{phase} {value:.2f}" for phase, value in manifest.seconds.items())
    memory = ", ".join(f"{who} {size}" for who, size in sorted(peaks(warm.pid).items()))
    note = f"total {workload.rows / seconds:,.0f} rows/s; seconds: {phases}; CPU s: {spent}; most MB: {memory}"
    return Figures(workload.rows, manifest.seconds["ingest"], *used, note)


def debezium(connector: Debezium, workload: Workload) -> Figures:
    """One run of Debezium."""
    attempt = connector.publish(workload)
    return Figures(workload.rows, attempt.seconds, *attempt.cpu_seconds)


def send(topic: str, mysql: MysqlServer, broker: KafkaBroker) -> Figures:
    """kafka-python's `send` of records of ``topic``, to itself."""
    partition = kafka.TopicPartition(topic, 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed")
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    records = []
    while len(records) < SENT and consumer.position(partition) < end:
        records += consumer.poll(timeout_ms=500, max_records=SENT - len(records)).get(partition, ())
    consumer.close()
    producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    meter, began, cpu = Meter(broker.pid, mysql.pid), time.perf_counter(), time.process_time()
    for record in records:
        producer.send(topic, record.value, record.key, list(record.headers), 0)
    producer.flush()
    figures = Figures(
        len(records), time.perf_counter() - began, time.process_time() - cpu, *meter.used(), f"{len(records):,} records"
    )
    producer.close()
    return figures


def measure(given: argparse.Namespace, part: str) -> None:
    """Run one workload with each system, and print a table."""
    with ExitStack() as stack:
        mysql, workload = stack.enter_context(live_server(part))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=mysql.directory.parent)))
        broker = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=ProcessId.own())))
        ((uuid,),) = mysql.execute("SELECT @@server_uuid")
        url = mysql.url if given.tls else f"{mysql.url}?ssl_mode=disabled"
        servers = Servers(url, uuid, broker.bootstrap)
        systems: dict[str, Callable[[], Figures]] = {}
        for master in ("local[2]",) if given.no_local1 else ("local[2]", "local[1]"):
            settings = pipeline(master, given.partitions, given.slice_mb)
            warm = stack.enter_context(WarmIngest(settings, servers))
            systems[master] = partial(changefeed, warm, workload, mysql, broker)
        if not given.no_debezium:
            connector = stack.enter_context(Debezium(folder / "connect", mysql, broker, given.partitions, given.tls))
            systems["Debezium"] = partial(debezium, connector, workload)
        if not given.no_send:
            systems["send"] = partial(send, settings.topics.template.format(table=TABLES[0]), mysql, broker)
        print(f"{part}: {workload.rows:,} rows, {(workload.head - workload.start) / 1e6:,.0f} MB of binlog", flush=True)
        attempts: dict[str, list[Figures]] = {name: [] for name in systems}
        for number in range(-given.warm_ups, given.rounds):
            for name, system in systems.items():
                figures = system()
                line = f"{figures.rate:>10,.0f} rows/s, load {os.getloadavg()[0]:.1f}  {figures.note}"
                print(f"  {'warm-up' if number < 0 else number + 1:<8}{name:10}{line}", flush=True)
                if number >= 0:
                    attempts[name].append(figures)
        alone = ", ".join(f"{stage} {micros:.2f}" for stage, micros in stages(mysql, broker, workload).items())
    _table(attempts)
    print(f"CPU µs/row of each stage by itself, in one process without Spark: {alone}\n", flush=True)


def _table(attempts: dict[str, list[Figures]]) -> None:
    print(f"\n{'rows/s':10}{'min':>12}{'median':>12}{'max':>12}   CPU µs/row: {'client':>8}{'broker':>8}{'MySQL':>8}")
    for name, figures in attempts.items():
        cpu = map(statistics.median, zip(*(attempt.micros for attempt in figures), strict=True))
        shares = "".join(f"{micros:8.2f}" for micros in cpu)
        print(f"{name:10}{spread(attempt.rate for attempt in figures)}{'':15}{shares}")
    ours, *others = attempts
    for what, each in {"rows/s": attrgetter("rate"), "rows a CPU second": attrgetter("thrift")}.items():
        print(f"\n{ours}, times as many {what} as" if others else "")
        for other in others:
            ratios = (each(one) / each(two) for one, two in zip(attempts[ours], attempts[other], strict=True))
            print(f"{other:10}{spread(ratios, 2)}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure; all without")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--warm-ups", type=int, default=3, help="rounds that are not counted")
    arguments.add_argument("--no-local1", action="store_true", help="leave out local[1]")
    arguments.add_argument("--no-debezium", action="store_true", help="leave out Debezium")
    arguments.add_argument("--no-send", action="store_true", help="leave out the loop of kafka-python")
    arguments.add_argument("--tls", action="store_true", help="read MySQL over TLS, all of them")
    arguments.add_argument("--partitions", type=int, default=1, help="of each topic")
    arguments.add_argument("--slice-mb", type=int, default=32)
    given = arguments.parse_args()
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {os.cpu_count()} cores, {platform.platform()}", flush=True)
    for part in given.parts or PARTS:
        if part == "window":
            bench_overhead.measure(given.rounds)
        else:
            measure(given, part)


if __name__ == "__main__":
    main()
