"""Reads topics with kafka-python and read_committed, independently of changefeed's own code."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition


@dataclass(frozen=True)
class Record:
    """A committed record, with its key and value parsed as JSON."""

    topic: str
    partition: int
    offset: int
    event_id: str
    key: Any
    value: Any


def read_topics(bootstrap: str, topics: Iterable[str]) -> Iterator[Record]:
    """All committed records of *topics* up to the current end offsets, in order within each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None, auto_offset_reset="earliest"
    )
    try:
        partitions = [
            TopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for batch in consumer.poll(timeout_ms=500).values():
                for record in batch:
                    yield _record(record)
    finally:
        consumer.close()


def rebuilt_rows(records: Iterable[Record]) -> dict[str, dict[str, dict[str, Any]]]:
    """The rows, by topic and key, that result from applying all changes in order."""
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for record in records:
        rows = tables.setdefault(record.topic, {})
        key = json.dumps(record.key, sort_keys=True)
        if record.value is None or record.value["op"] == "d":
            rows.pop(key, None)
        else:
            rows[key] = record.value["after"]
    return tables


def _record(record: Any) -> Record:
    headers = dict(record.headers)
    return Record(
        record.topic,
        record.partition,
        record.offset,
        headers.get("changefeed.id", b"").decode(),
        None if record.key is None else json.loads(record.key),
        None if record.value is None else json.loads(record.value),
    )
