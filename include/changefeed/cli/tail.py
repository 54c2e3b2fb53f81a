"""Prints records of topics as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.formats.avro_reader import RegisteredRecords
from changefeed.formats.reader import SchemaText
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, Start, partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

_WINDOWS = 1000
"""The number of windows whose topics are read, so that a log of years costs no more."""


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
    shown = RecordLines(schemas)
    with partition_reader(kafka, partitions, "to print records", start=start) as reader:
        if not follow:
            ends = reader.last_stable_offsets()
            yield from map(shown.line, reader.to_end(ends, timeout_seconds=6 * kafka.timeout_seconds))
        while follow:
            yield from map(shown.line, reader.poll(0.5))


def published_topics(state: CommitLogState) -> list[str]:
    """The topics of the last windows and of unfinished ones. A seek forgets the progress, but not the windows."""
    sealed = [receipt.topic for number in list(state.seals)[-_WINDOWS:] for receipt in state.seals[number].topics]
    return list(dict.fromkeys([*(topic for topic, _ in state.progress), *sealed]))


def dropped_tables(pipeline: Pipeline, kafka: KafkaConnection, names: Sequence[str]) -> dict[str, str]:
    """The topics of those of ``names`` (DATABASE.TABLE) that the pipeline captured: its patterns match the name, and
    the topic exists."""
    routes = compile_routes(pipeline)
    topics = {}
    for name in names:
        database, _, table = name.partition(".")
        if (route := routes.of(database, table)) is not None:
            topics[name] = route.topic
    existing = partition_counts(kafka, list(topics.values())) if topics else {}
    return {name: topic for name, topic in topics.items() if topic in existing}


@dataclass
class RecordLines:
    """Formats records as lines; each of ``schemas`` is read once."""

    schemas: SchemaText | None = None
    _records: RegisteredRecords | None = None

    def line(self, record: KafkaRecord) -> str:
        """One JSON object: topic, partition, offset, headers, key and value.

        A key or value is shown

        - decoded, if its schema is in the registry;
        - as its payload, if it contains its schema;
        - as JSON or text otherwise, and if it is not text, as hexadecimal digits after 0x.
        """
        return orjson.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "headers": {name: _text(value) for name, value in record.headers},
                "key": self._decode_json(record.key),
                "value": self._decode_json(record.value),
            }
        ).decode()

    def _decode_json(self, data: bytes | None) -> Any:
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
