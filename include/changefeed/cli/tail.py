"""Records of topics as JSON lines, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.formats.avro_reader import RegisteredRecords
from changefeed.formats.reader import SchemaText
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, Start, partition_reader
from changefeed.kafka.topics import partition_counts


def lines(
    kafka: KafkaConnection, topics: Sequence[str], schemas: SchemaText | None, *, from_beginning: bool, follow: bool
) -> Iterator[str]:
    """A JSON line for each committed record of ``topics``, from their first records on or from where they end now.

    Without ``follow`` it stops where the topics end now. A topic that is not made yet has no records. ``schemas`` are
    those of binary records. Raises BrokerUnavailableError, TopicError, and as `Registry` where there is one.
    """
    counts = partition_counts(kafka, topics)
    partitions = [(topic, partition) for topic in topics for partition in range(counts.get(topic, 0))]
    if not partitions:
        return
    start: Start = "first" if from_beginning else "end"
    shown = ShownRecords(schemas)
    with partition_reader(kafka, partitions, "to print records", start=start) as reader:
        if not follow:
            ends = reader.last_stable_offsets()
            yield from map(shown.line, reader.to_end(ends, patience_seconds=6 * kafka.timeout_seconds))
        while follow:
            yield from map(shown.line, reader.poll(0.5))


@dataclass
class ShownRecords:
    """Makes lines of records; each of ``schemas`` is asked for once."""

    schemas: SchemaText | None = None
    _records: RegisteredRecords | None = None

    def line(self, record: KafkaRecord) -> str:
        """One JSON object: topic, partition, offset, headers, key and value.

        Records of a registry's schemas are decoded, of those that bring their schema along the payload is shown, what
        is not JSON is text, and what is no text hexadecimal digits behind 0x.
        """
        return orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "headers": {name: _text(value) for name, value in record.headers},
                "key": self._shown(record.key),
                "value": self._shown(record.value),
            }
        ).decode()

    def _shown(self, data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._avro(data)
        return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found

    def _avro(self, data: bytes) -> Any:
        if self.schemas is None:
            return _text(data)
        self._records = self._records or RegisteredRecords(self.schemas)
        try:
            return self._records(data)
        except ValueError:
            return _text(data)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
