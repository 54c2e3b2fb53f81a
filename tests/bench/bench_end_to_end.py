"""The whole path against a bare loop: bulk at local[2], into Kafka, exactly once; part of `make bench-publish`.

Decoding, shuffle, transactions, commit log and accounts are on; the JVM and Python's workers are warm, by one pass
before. Against it: kafka-python's `send` in a loop, over records of the same run, in the same minutes. CPU seconds of
the job are of all its processes (driver, JVM, workers). CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import kafka
from bench_decode import TABLE, workloads

from changefeed.archive.archive import Archive
from changefeed.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.pipelines.pipeline import KafkaSettings, Pipeline, SourceSettings, SparkSettings
from changefeed.pipelines.pipeline import TopicSettings as Topics
from changefeed.spark.ingest import ingest
from changefeed.spark.session import local_session
from changefeed.window import Window
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import started

ROUNDS = 3
SENT = 20_000
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Of this process and all that descend from it, those that ended among them."""
    children: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
                used[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS
    found, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        found += used.get(pid, 0.0)
        left += children.get(pid, [])
    return found


def end_to_end(bootstrap: str) -> None:
    """Run both in turns, and print both rates and their ratio."""
    home = Home.default()
    path = workloads(home.root / "bench")["bulk"]
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        folder = Path(scratch) / "binlogs"
        folder.mkdir()
        shutil.copy(path, folder / "bulk.000001")
        with started(MysqlServer(Path(scratch) / "mysql", owner=ProcessId.own())) as server:
            server.execute("CREATE DATABASE bench", *(f"CREATE TABLE bench.t{one} {TABLE}" for one in range(20)))
            _rounds(bootstrap, server, folder)


def _rounds(bootstrap: str, server: MysqlServer, folder: Path) -> None:
    name = f"bench{os.getpid()}"
    pipeline = Pipeline(
        name=name,
        source=SourceSettings(connection="mysql"),
        kafka=KafkaSettings(connection="kafka"),
        topics=Topics(template=f"{name}.{{table}}", partitions=1, configs={"segment.bytes": str(64 << 20)}),
        spark=SparkSettings(master="local[2]", slice_bytes=32 << 20, conf={"spark.driver.memory": "2g"}),
        publish_ddl="off",
    )
    endpoints = Endpoints(pipeline, {"mysql": server.url, "kafka": f"kafka://{bootstrap}"}.__getitem__)
    size = (folder / "bulk.000001").stat().st_size
    start, head = BinlogCoordinates("bulk.000001", FIRST_POSITION), BinlogCoordinates("bulk.000001", size)
    window = Window(name, 1, "00000000-0000-0000-0000-000000000001", start, head, "", "", 1)
    rates: dict[str, list[float]] = {"changefeed": [], "send": []}
    costs: dict[str, list[float]] = {"changefeed": [], "send": []}
    with local_session(pipeline) as spark:
        for number in range(ROUNDS + 1):
            wall, cpu = time.perf_counter(), cpu_seconds()
            # An identity of its own: its progress is not another round's.
            manifest = ingest(spark, endpoints, window, identity=f"{name}-{number}", archive=Archive(str(folder)))
            seconds, used = time.perf_counter() - wall, cpu_seconds() - cpu
            if number:
                rates["changefeed"].append(manifest.row_count / seconds)
                costs["changefeed"].append(used / manifest.row_count * 1e6)
                print(f"  round {number}: {seconds:.2f} s, of which {manifest.seconds}", flush=True)
                _send(bootstrap, f"{name}.t0", rates["send"], costs["send"])
    for way, found in rates.items():
        print(
            f"{way:10} rows/s min {min(found):9,.0f} median {statistics.median(found):9,.0f} max {max(found):9,.0f}   "
            f"CPU µs/row {statistics.median(costs[way]):6.2f}"
        )
    print(
        f"end to end, {manifest.row_count:,} rows at local[2]: "
        f"{statistics.median(rates['changefeed']) / statistics.median(rates['send']):.1f} times the loop by median, "
        f"{max(rates['changefeed']) / max(rates['send']):.1f} by best (wanted: at least 12); CPU "
        f"{statistics.median(costs['send']) / statistics.median(costs['changefeed']):.1f} times less a row"
    )


def _send(bootstrap: str, topic: str, rates: list[float], costs: list[float]) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    records = []
    while len(records) < SENT and consumer.position(place) < consumer.end_offsets([place])[place]:
        records += consumer.poll(timeout_ms=500, max_records=SENT - len(records)).get(place, ())
    consumer.close()
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap)
    wall, cpu = time.perf_counter(), time.process_time()
    for record in records:
        producer.send(topic, record.value, record.key, list(record.headers), 0)
    producer.flush()
    rates.append(len(records) / (time.perf_counter() - wall))
    costs.append((time.process_time() - cpu) / len(records) * 1e6)
    producer.close()


if __name__ == "__main__":
    end_to_end(sys.argv[1])
