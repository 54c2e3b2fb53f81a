"""Debezium's MySQL connector in Kafka Connect standalone, at the same binlog as changefeed.

It is tuned for a backlog, as its documentation and Connect's advise: large batches and queues, no pause between polls,
a producer with large lz4 batches and a little linger, JSON without schemas, no schema changes, no snapshot of rows. All
other settings are the defaults.

An attempt: stop the connector, set its offset to the start of the workload, and resume it. The measured time is from
the first record in Kafka to the last, by the topics' end offsets, which are read every 50 ms: the start of its task,
which reads the schemas, is not included. CPU seconds are of the same time. The worker's JVM stays up between attempts,
so it is warm after the first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import kafka
from kafka.admin import KafkaAdminClient, NewTopic
from live_workloads import DATABASE, TABLES, Workload
from process_use import Meter

from devstack.connect import ConnectWorker
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

HEAP = "2g"
WORKER = {
    "producer.compression.type": "lz4",
    "producer.batch.size": 1 << 20,
    "producer.linger.ms": 50,
    "producer.buffer.memory": 128 << 20,
    "producer.max.request.size": 8 << 20,
    "offset.flush.interval.ms": 10_000,
}
CONNECTOR = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "snapshot.mode": "recovery",  # the offset is given, and the schemas are read from the server
    "snapshot.locking.mode": "none",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "include.schema.changes": "false",
    "max.batch.size": "16384",
    "max.queue.size": "65536",
    "poll.interval.ms": "1",
}
POLL_SECONDS = 0.05
QUIET_SECONDS, STALL_SECONDS = 2.0, 120.0


def login(mysql: MysqlServer) -> dict[str, str]:
    """A connector's settings of the server that it reads."""
    url = urlsplit(mysql.root_url)
    return {
        "database.hostname": str(url.hostname),
        "database.port": str(url.port),
        "database.user": str(url.username),
        "database.password": str(url.password),
        "driver.allowPublicKeyRetrieval": "true",
    }


@dataclass(frozen=True)
class Attempt:
    """One workload, from its first record in Kafka to its last, and the CPU seconds of each process of a `Meter`."""

    seconds: float
    cpu_seconds: tuple[float, ...]


class Debezium:
    """The connector of one workload, with its topics; use as a context manager, which ends the worker."""

    def __init__(self, folder: Path, mysql: MysqlServer, broker: KafkaBroker, partitions: int, tls: bool) -> None:
        self._tls = tls
        self._mysql, self._broker, self._name = mysql, broker, "debezium"
        self._worker = ConnectWorker(folder, broker.bootstrap, properties=WORKER, heap=HEAP)
        topics = [f"{self._name}.{DATABASE}.{table}" for table in TABLES]
        self._partitions = [kafka.TopicPartition(topic, number) for topic in topics for number in range(partitions)]
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics])
        admin.close()

    def __enter__(self) -> Debezium:
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=self._broker.bootstrap)
        self._worker.start()
        self._worker.add_stopped(self._name, self._settings())
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.stop()
        self._consumer.close()

    def publish(self, workload: Workload) -> Attempt:
        """Publish ``workload`` once more. SystemExit unless it makes exactly the expected number of records."""
        before = self._records()
        offset = {"file": workload.file, "pos": workload.start, "gtids": workload.start_gtids}
        self._worker.set_offset(self._name, {"server": self._name}, offset)
        self._worker.resume(self._name)
        self._wait_for(before + 1)
        meter, began = Meter(self._worker.pid, self._broker.pid, self._mysql.pid), time.perf_counter()
        self._wait_for(before + workload.messages)
        attempt = Attempt(time.perf_counter() - began, meter.used())
        self._worker.stop_connector(self._name)
        if (records := self._records() - before) != workload.messages:
            raise SystemExit(f"Debezium: {workload.name} is {workload.messages} messages, and {records} are in Kafka")
        return attempt

    def _settings(self) -> dict[str, str]:
        return (
            CONNECTOR
            | login(self._mysql)
            | {
                "database.server.id": "640001",
                "database.ssl.mode": "preferred" if self._tls else "disabled",
                "database.include.list": DATABASE,
                "topic.prefix": self._name,
            }
        )

    def _records(self) -> int:
        return sum(self._consumer.end_offsets(self._partitions).values())

    def _wait_for(self, records: int) -> None:
        last, changed = self._records(), time.monotonic()
        while last < records:
            time.sleep(POLL_SECONDS)
            if time.monotonic() - changed > QUIET_SECONDS:
                self._worker.check(self._name)
            if (now := self._records()) != last:
                last, changed = now, time.monotonic()
            elif time.monotonic() - changed > STALL_SECONDS:
                raise SystemExit(f"Debezium has written {last} records of {records}, and no more for {STALL_SECONDS} s")
