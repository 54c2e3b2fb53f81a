"""The schema topic: it has a pipeline's schema history, in one record; older records are compacted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.errors import BadRecordError, CheckpointError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.log_memory import LogMemory, log_memory
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.topics import TopicSettings, partition_counts

_OPEN_SECONDS = 60.0
"""How long a read waits for a transaction that a killed process left open, in seconds; the brokers abort it earlier."""


def schema_history_settings(replication_factor: int = -1) -> TopicSettings:
    """The settings of the schema topic: one partition, compacted; a record has all tables, so large records are
    allowed."""
    configs = {"cleanup.policy": "compact", "max.message.bytes": str(32 << 20), "segment.bytes": str(64 << 20)}
    return TopicSettings(1, replication_factor, configs)


@dataclass
class _Latest:
    """The last saved history."""

    record: KafkaRecord | None = None


@dataclass(frozen=True)
class SchemaLog:
    """Reads and writes the history of ``identity`` in ``topic``, which `topics.ensure_topics` creates."""

    connection: KafkaConnection
    topic: str
    identity: str

    def is_empty(self) -> bool:
        """Whether no history was saved yet. Raises BrokerUnavailableError, TopicError."""
        return self.load_text() is None

    def load_text(self) -> bytes | None:
        """The JSON of the last saved history; None before the first.

        Raises BrokerUnavailableError, TopicError, and CheckpointError for a record that the pipeline did not sign.
        """
        record = self._last()
        if record and (fault := self.connection.log_keys.fault(record)):
            raise CheckpointError(
                f"the schema history in topic {self.topic!r} at offset {record.offset} was not written by pipeline "
                f"{self.identity!r}: {fault}. Nothing was published. If commit_log.key is new, or was changed, "
                f"`changefeed sign {self.identity}` signs what is there; otherwise somebody else may write to the "
                "topic: look at its ACLs, delete the topic, and the next run learns the schemas from the server again."
            )
        return record.value if record else None

    def _last(self) -> KafkaRecord | None:
        if not partition_counts(self.connection, [self.topic]):
            return None
        memory = log_memory(self.connection, self.topic, f"schemas of {self.identity!r}", _Latest)
        memory.read(self._read_last)
        return memory.state.record

    def _read_last(self, memory: LogMemory[_Latest]) -> None:
        with memory.reader(self.connection, self.topic, f"to read the schema history of {self.identity!r}") as reader:
            if memory.last is None:
                memory.last = memory.state.record = reader.last(self._key, timeout_seconds=_OPEN_SECONDS)
                return
            for record in memory.after_last(reader.to_end(timeout_seconds=_OPEN_SECONDS)):
                if record.key == self._key:
                    memory.state.record = record

    def sign(self, writer: FencedWriter, keys: LogKeys) -> bool:
        """Sign the last history, by writing it again with ``writer``, if none of ``keys`` signed it; return whether it
        was written.

        Raises what `save` raises.
        """
        record = self._last()
        if record is None or record.value is None or not keys.fault(record):
            return False
        purpose = f"to sign the schema history of {self.identity!r} in {self.topic!r}"
        writer.write(self.topic, {self._key: record.value}, purpose, compression="zstd")
        return True

    def load(self) -> dict[str, Any] | None:
        """The last saved history, in the JSON form of `ddl.history`; None before the first.

        Raises BrokerUnavailableError, TopicError, and CheckpointError for a record that is not JSON.
        """
        latest = self.load_text()
        try:
            return None if latest is None else dict(orjson.loads(latest))
        except orjson.JSONDecodeError as error:
            raise CheckpointError(
                f"the schema history in topic {self.topic!r} cannot be read ({error}): only changefeed may write "
                "there. Delete the topic, and the next run learns the schemas from the server again."
            ) from error

    def save(self, history: Mapping[str, Any], writer: FencedWriter) -> None:
        """Replace the history; ``writer`` is the lease's writer.

        Raises FencedError if another process has taken the lease, BrokerUnavailableError, and TopicError for a history
        that is larger than the topic accepts.
        """
        purpose = f"to save the schema history of {self.identity!r} in {self.topic!r}"
        try:
            writer.write(self.topic, {self._key: orjson.dumps(dict(history))}, purpose, compression="zstd")
        except BadRecordError as error:
            raise TopicError(f"the schema history was not taken by topic {self.topic!r}: {error}") from error

    @property
    def _key(self) -> bytes:
        return orjson.dumps([self.identity, "schemas"])
