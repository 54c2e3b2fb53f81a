"""Records of topics as JSON lines, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, Start, partition_reader
from changefeed.kafka.topics import partition_counts


def lines(kafka: KafkaConnection, topics: Sequence[str], *, from_beginning: bool, follow: bool) -> Iterator[str]:
    """A JSON line for each committed record of ``topics``, from their first records on or from where they end now.

    Without ``follow`` it stops where the topics end now. A topic that is not made yet has no records. Raises
    BrokerUnavailableError, TopicError.
    """
    counts = partition_counts(kafka, topics)
    partitions = [(topic, partition) for topic in topics for partition in range(counts.get(topic, 0))]
    if not partitions:
        return
    start: Start = "first" if from_beginning else "end"
    with partition_reader(kafka, partitions, "to print records", start=start) as reader:
        if not follow:
            ends = reader.last_stable_offsets()
            yield from map(json_line, reader.to_end(ends, patience_seconds=6 * kafka.timeout_seconds))
        while follow:
            yield from map(json_line, reader.poll(0.5))


def json_line(record: KafkaRecord) -> str:
    """One JSON object: topic, partition, offset, headers, key and value; what is not JSON itself is text."""
    return orjson.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "headers": {name: value.decode("utf-8", "replace") for name, value in record.headers},
            "key": _decoded(record.key),
            "value": _decoded(record.value),
        }
    ).decode()


def _decoded(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.decode("utf-8", "replace")
