"""Growing installations: many tables, many GTIDs, many files, large rows; each at local[2].

Prints seconds by phase, and the most memory that the driver, its JVM and a Python worker had. Arguments name the probes
to run; without any, all are run. Each run is a process of its own; every probe is run twice, first with new topics.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "include"))

from devstack import kafka as devstack_kafka  # noqa: E402 - after the path
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402

YAML = """\
name: {name}
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["{name}.*"]}}
topics: {{partitions: 1, configs: {{max.message.bytes: "100000000"}}}}
checkpoint: {{store: table, connection: state}}
start: latest
spark: {{master: "local[2]"}}
"""

RUN = """\
import json, sys, time
from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.ingest.cut import cut
from changefeed.settings.requests.run import RunBounds
from changefeed.pipeline.plan import plan
from changefeed.ingest.run import run_windows
from changefeed.spark.session import session
from changefeed.pipeline.checkpoint_store import checkpoint_store

began = time.monotonic()
pipeline = load_pipeline(sys.argv[1])
connections = PipelineConnections(pipeline, from_environment)
store = checkpoint_store(connections, None)
planned = plan(connections, store)
seconds, rows = {"plan": time.monotonic() - began}, 0
if not planned.window.is_empty:
    run = cut(connections, planned, RunBounds())
    with session(pipeline, "changefeed.ingest.run") as spark:
        for manifest in run_windows(spark, connections, run, store):
            seconds |= manifest.seconds
            rows += manifest.row_count
    seconds["all"] = time.monotonic() - began
print(json.dumps({"seconds": seconds, "rows": rows}))
"""

WIDE_BYTES = 45 << 20
"""Of a BLOB, which is 60 MB as base64."""


class Installation:
    """One MySQL, one Kafka, and runs of pipelines named after their databases."""

    def __init__(self, folder: Path, mysql: MysqlServer, kafka: KafkaBroker) -> None:
        self.folder, self.mysql = folder, mysql
        self.env = os.environ | {
            "CHANGEFEED_PIPELINES": str(folder),
            "AIRFLOW_CONN_MYSQL": mysql.url,
            "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
            "AIRFLOW_CONN_STATE": f"sqlite:///{folder / 'state.db'}",
            "PYTHONPATH": str(PROJECT / "include"),
        }

    def begin(self, name: str) -> None:
        """A database, its pipeline, and the pipeline's first checkpoint."""
        self.mysql.execute(f"CREATE DATABASE {name}")
        (self.folder / f"{name}.yaml").write_text(YAML.format(name=name))
        self.run(name, show=False)

    def run(self, name: str, *, show: bool = True) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", RUN, name], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        peaks: dict[str, int] = {}
        watching = threading.Thread(target=watch, args=(process, peaks), daemon=True)
        watching.start()
        out, err = process.communicate()
        watching.join()
        if process.returncode:
            print(f"{name}: exit {process.returncode}: {err.strip().splitlines()[-1][:400]}", flush=True)
        elif show:
            done = json.loads(out.splitlines()[-1])
            phases = ", ".join(f"{phase} {value:.1f}" for phase, value in done["seconds"].items())
            memory = ", ".join(f"{who} {size >> 20}" for who, size in sorted(peaks.items()))
            print(f"{name}: {done['rows']:,} rows; seconds: {phases}; MB: {memory}", flush=True)


def watch(process: subprocess.Popen[str], peaks: dict[str, int]) -> None:
    """Note the most memory of the driver, of its JVM and of a Python worker until the driver ends."""
    driver = psutil.Process(process.pid)
    while process.poll() is None:
        for each in (driver, *_children(driver)):
            try:
                who = "driver" if each.pid == driver.pid else "JVM" if each.name() == "java" else "worker"
                peaks[who] = max(peaks.get(who, 0), each.memory_info().rss)
            except psutil.Error:
                continue  # it ended
        time.sleep(0.1)


def _children(driver: psutil.Process) -> list[psutil.Process]:
    try:
        return driver.children(recursive=True)
    except psutil.Error:
        return []


def create(site: Installation, name: str, tables: int) -> None:
    with site.mysql.connect(database=name) as connection, connection.cursor() as cursor:
        for number in range(tables):
            cursor.execute(
                f"CREATE TABLE orders_of_customer_{number:05} (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, status "
                "ENUM('new','paid','sent'), price DECIMAL(12,2), note VARCHAR(200), details JSON, changed DATETIME(6))"
            )


def insert(site: Installation, name: str, tables: int, rows: int = 1) -> None:
    site.mysql.execute(
        *[
            f"INSERT INTO orders_of_customer_{number:05} (status, price, note) VALUES "
            + ", ".join(["('new', 1.5, 'a note')"] * rows)
            for number in range(tables)
        ],
        database=name,
    )


def many_tables(site: Installation, name: str) -> Iterator[None]:
    """5,000 tables with ten rows in one."""
    create(site, name, 5000)
    for _ in range(3):
        insert(site, name, 1, 10)
        yield


def many_busy_tables(site: Installation, name: str) -> Iterator[None]:
    """1,000 tables with a row each."""
    create(site, name, 1000)
    for _ in range(2):
        insert(site, name, 1000)
        yield


def many_gtids(site: Installation, name: str) -> Iterator[None]:
    """A GTID set of 86 KB: transactions of 2,100 servers."""
    create(site, name, 1)
    with site.mysql.connect(database=name) as connection, connection.cursor() as cursor:
        for _ in range(2100):
            cursor.execute(f"SET GTID_NEXT = '{uuid.uuid4()}:1'")
            cursor.execute("COMMIT")
        cursor.execute("SET GTID_NEXT = AUTOMATIC")
    for _ in range(2):
        insert(site, name, 1)
        yield


def many_files(site: Installation, name: str) -> Iterator[None]:
    """500 binlog files with a row each."""
    create(site, name, 1)
    for _ in range(2):
        for _ in range(500):
            insert(site, name, 1)
            site.mysql.execute("FLUSH BINARY LOGS")
        yield


def large_row(site: Installation, name: str) -> Iterator[None]:
    """A row of 60 MB, and 24 of them."""
    site.mysql.execute("CREATE TABLE wide (id INT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)", database=name)
    numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {WIDE_BYTES >> 10})"
    insert = f"INSERT INTO wide (data) {numbers} SELECT GROUP_CONCAT(RANDOM_BYTES(1024) SEPARATOR '') FROM n"
    settings = ("SET SESSION group_concat_max_len = 1 << 30", "SET SESSION cte_max_recursion_depth = 1000000")
    for rows in (1, 24):
        site.mysql.execute(*settings, *[insert] * rows, database=name)
        yield


PROBES: dict[str, Callable[[Installation, str], Iterator[None]]] = {
    "tables": many_tables,
    "busy": many_busy_tables,
    "files": many_files,
    "row": large_row,
    "gtids": many_gtids,  # the last: the server keeps them
}


def main() -> int:
    expected = sys.argv[1:] or list(PROBES)
    folder = Home.default().test / f"{os.getpid()}-scale"
    folder.mkdir(parents=True)
    owner = ProcessId.own()
    devstack_kafka.HEAP = "1536m"  # each of its threads keeps a buffer of the largest request
    options = {"binlog_row_metadata": "FULL", "max_allowed_packet": "256M", "sync_binlog": 0}
    with (
        run_server(MysqlServer(folder / "mysql", options=options, owner=owner)) as mysql,
        run_server(KafkaBroker(folder / "kafka", owner=owner)) as kafka,
    ):
        site = Installation(folder, mysql, kafka)
        for probe in expected:
            print((PROBES[probe].__doc__ or "").splitlines()[0], flush=True)
            name = f"scale_{probe}"
            site.begin(name)
            for _ in PROBES[probe](site, name):
                site.run(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
