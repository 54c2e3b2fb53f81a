"""Prints records of topics as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import orjson

from changefeed.formats.reader import SchemaText
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, Start, partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.operations.record_values import RecordValues, text_of


def read_lines(
    kafka: KafkaConnection, topics: Sequence[str], schemas: SchemaText | None, *, from_beginning: bool, follow: bool
) -> Iterator[str]:
    """Yield a JSON line for each committed record of ``topics``, from their first records or from their current ends.

    Without ``follow`` it stops at the current ends of the topics. A missing topic has no records. ``schemas`` decode
    binary records. Raises BrokerUnavailableError, TopicError, and the errors of `Registry`.
    """
    counts = partition_counts(kafka, topics)
    partitions = [(topic, partition) for topic in topics for partition in range(counts.get(topic, 0))]
    if not partitions:
        return
    start: Start = "first" if from_beginning else "end"
    shown = RecordLines(RecordValues(schemas))
    with partition_reader(kafka, partitions, "to print records", start=start) as reader:
        if not follow:
            ends = reader.last_stable_offsets()
            yield from map(shown.line, reader.to_end(ends, timeout_seconds=6 * kafka.timeout_seconds))
        while follow:
            yield from map(shown.line, reader.poll(0.5))


@dataclass(frozen=True)
class RecordLines:
    """Formats records as lines."""

    values: RecordValues = field(default_factory=RecordValues)

    def line(self, record: KafkaRecord) -> str:
        """One JSON object: topic, partition, offset, headers, and key and value as `RecordValues.decode` returns
        them."""
        return orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "headers": {name: text_of(value) for name, value in record.headers},
                "key": self.values.decode(record.key),
                "value": self.values.decode(record.value),
            }
        ).decode()
