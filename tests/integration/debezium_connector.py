"""What Debezium's MySQL connector, in Kafka Connect, makes of a range of a server's binlog."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kafka

from devstack.connect import ConnectWorker
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

LAST_TABLE = "zz_last"
"""A row of it is the last of the range: when that is in Kafka, all is read."""
_SETTINGS = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "tasks.max": "1",
    "snapshot.mode": "recovery",  # the offset is given, and the schemas are read from the server
    "snapshot.locking.mode": "none",
    "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
    "include.schema.changes": "false",
    "poll.interval.ms": "5",
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "1",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
}
_SECONDS = 300.0


@dataclass(frozen=True)
class Record:
    """A record as Kafka has it; ``headers`` by name."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


@dataclass(frozen=True)
class BinlogRange:
    """The binlog of ``database`` from an offset on, in Debezium's terms; its end is the row of LAST_TABLE."""

    database: str
    file: str
    position: int
    gtids: str


def records_of(
    folder: Path,
    mysql: MysqlServer,
    broker: KafkaBroker,
    binlog_range: BinlogRange,
    connectors: Mapping[str, Mapping[str, str]],
) -> dict[str, list[Record]]:
    """The records that each connector makes of ``binlog_range``, in the order of each topic.

    ``connectors`` are settings by topic prefix, which no other topic has. One worker runs all connectors.
    """
    _expect_unused(broker, connectors)
    worker = ConnectWorker(folder, broker.bootstrap, heap="512m")
    worker.start()
    try:
        offset = {"file": binlog_range.file, "pos": binlog_range.position, "gtids": binlog_range.gtids}
        for number, (name, settings) in enumerate(connectors.items()):
            worker.add_stopped(name, _settings(mysql, binlog_range.database, name, number) | settings)
            worker.set_offset(name, {"server": name}, offset)
            worker.resume(name)
        return {
            name: _read(worker, broker, name, f"{name}.{binlog_range.database}.{LAST_TABLE}") for name in connectors
        }
    finally:
        worker.stop()


def _settings(mysql: MysqlServer, database: str, name: str, number: int) -> dict[str, str]:
    url = urlsplit(mysql.root_url)
    return _SETTINGS | {
        "database.hostname": str(url.hostname),
        "database.port": str(url.port),
        "database.user": str(url.username),
        "database.password": str(url.password),
        "database.server.id": str(640_100 + number),
        "database.include.list": database,
        "topic.prefix": name,
    }


def _expect_unused(broker: KafkaBroker, prefixes: Iterable[str]) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        used = sorted(topic for topic in consumer.topics() if topic.split(".")[0] in set(prefixes))
    finally:
        consumer.close()
    assert not used, f"topics of another test have the prefix of a connector: {used}"


def _read(worker: ConnectWorker, broker: KafkaBroker, name: str, last_topic: str) -> list[Record]:
    """All records of the connector's topics; they have one partition each."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        deadline = time.monotonic() + _SECONDS
        while last_topic not in consumer.topics():
            worker.check(name)
            assert time.monotonic() < deadline, f"connector {name} has not come to {last_topic} in {_SECONDS:.0f} s"
            time.sleep(0.2)
        worker.stop_connector(name)
        topics = sorted(topic for topic in consumer.topics() if topic.startswith(f"{name}."))
        partitions = [kafka.TopicPartition(topic, 0) for topic in topics]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        deadline = time.monotonic() + _SECONDS
        records: list[Record] = []
        while left := {p.topic: end for p, end in ends.items() if consumer.position(p) < end}:
            for batch in consumer.poll(timeout_ms=1000).values():
                records += (_record(message) for message in batch)
            assert time.monotonic() < deadline, (
                f"{len(records)} records were read in {_SECONDS:.0f} s, not up to {left}"
            )
        return records
    finally:
        consumer.close()


def _record(message: Any) -> Record:
    return Record(message.topic, message.key, message.value, dict(message.headers))
