"""A window far larger than the memory that publishes it: Spark spills, Python workers stay small."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import psutil
import pytest
from integration.command import NOTHING_NEW, Command
from integration.kafka_pipeline import read

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server

pytestmark = pytest.mark.extended

HEAP_MB = 512  # the minimum of Spark
WORKER_MB = 640
"""Enough for libraries, the decoder and a full queue to Kafka, and less than all messages."""
STATEMENTS, ROWS, CHUNKS = 40, 500, 24
BYTES = STATEMENTS * ROWS * CHUNKS * 1024
"""The size of the random data; the binlog has little else."""


@contextmanager
def peaks() -> Iterator[dict[int, int]]:
    """By process id, the maximum memory in bytes of each Python worker that was started in the block."""
    found: dict[int, int] = {}
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            for process in psutil.Process().children(recursive=True):
                try:
                    if {"pyspark.daemon", "changefeed.spark.daemon"} & set(process.cmdline()):
                        found[process.pid] = max(found.get(process.pid, 0), process.memory_info().rss)
                except psutil.Error:
                    continue  # it ended

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()


def sent_bytes(server: MysqlServer) -> int:
    """The number of bytes that the server has sent to all clients."""
    ((_, sent),) = server.execute("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
    return int(sent)


@pytest.mark.timeout(900)
def test_window_larger_than_the_heap_arrives_complete(
    tmp_path: Path, kafka_broker: KafkaBroker, unique_name: str, server_id: int
) -> None:
    """490 MB of random bytes, 655 MB as messages, which cannot be compressed."""
    options = {"binlog_row_metadata": "FULL", "sync_binlog": 0, "innodb_flush_log_at_trx_commit": 0}
    with run_server(MysqlServer(tmp_path / "mysql", options=options, owner=ProcessId.own(), quick=True)) as server:
        server.execute(f"CREATE DATABASE {unique_name}")
        changefeed = Command(tmp_path, unique_name, unique_name, server, kafka_broker, server_id)
        changefeed.write(spark=f"{{master: 'local[2]', conf: {{spark.driver.memory: {HEAP_MB}m}}}}")
        file = changefeed.pipelines / f"{unique_name}.yaml"  # one worker publishes all of it
        file.write_text(file.read_text().replace("topics: {partitions: 2}", "topics: {partitions: 1}"))
        assert changefeed("run", unique_name).exit_code == NOTHING_NEW
        server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, data MEDIUMBLOB)",
            "INSERT INTO t (data) VALUES ('')",
            database=unique_name,
        )
        assert changefeed("run", unique_name).exit_code == 0  # learns the schemas, which reads the window once more
        row = ", ".join(["RANDOM_BYTES(1024)"] * CHUNKS)
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS}) "
        server.execute(
            *[f"INSERT INTO t (data) {numbers} SELECT CONCAT({row}) FROM n"] * STATEMENTS,
            database=unique_name,
        )
        before = sent_bytes(server)
        with peaks() as workers:
            ran = changefeed("run", unique_name)
        sent = sent_bytes(server) - before
        assert ran.exit_code == 0, ran.err[-3000:]
        assert f"{STATEMENTS * ROWS:,} rows" in ran.out
        assert sent < 1.3 * BYTES, "the server sent what the scout read once, and tasks decoded what it kept"
        assert workers
        assert max(workers.values()) < WORKER_MB << 20
        expected = dict(server.execute("SELECT id, SHA2(data, 256) FROM t", database=unique_name))
    got = {}
    for record in read(kafka_broker.bootstrap, f"{unique_name}.t", check_crcs=False):
        value = orjson.loads(record.value)
        if value.get("after"):
            assert value["after"]["id"] not in got, "twice"
            got[value["after"]["id"]] = hashlib.sha256(base64.b64decode(value["after"]["data"])).hexdigest()
    assert got == expected
