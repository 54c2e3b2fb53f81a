"""The checkpoint topic: a pipeline's checkpoint and a copy of its schema history, each in one compacted record.

It is not part of the commit log for two reasons: readers of the commit log wait for the open transactions of backfills,
and if one of the two topics is lost, the other one shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import orjson

from changefeed.errors import BadRecordError, CheckpointError, FencedError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.log_retention import check_first_offsets
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.topics import TopicSettings, ensure_topics, partition_counts
from changefeed.model.topic_name import checkpoint_topic

_TRANSACTION_SECONDS = 60.0
"""Transaction timeout of a write in seconds; the connection's timeout if that is shorter."""

_SIGN_ATTEMPTS = 5

CHECKPOINT, SCHEMAS = "checkpoint", "schemas"
"""The kinds of records."""

Records = Mapping[str, str | None]
"""The text of each kind of record; None deletes the record."""


def checkpoint_settings(replication_factor: int = -1) -> TopicSettings:
    """The settings of the checkpoint topic: one partition, compacted early, with large records allowed, because the
    copy of a schema history has all tables."""
    configs = {
        "cleanup.policy": "compact",
        "max.message.bytes": str(32 << 20),
        "segment.bytes": str(64 << 20),
        "segment.ms": str(3600 * 1000),
        "min.cleanable.dirty.ratio": "0.1",
        "delete.retention.ms": str(3600 * 1000),
        "message.timestamp.type": "LogAppendTime",
    }
    return TopicSettings(1, replication_factor, configs)


def record_key(pipeline: str, kind: str) -> bytes:
    """The key of a pipeline's record of that ``kind``."""
    return orjson.dumps([pipeline, kind])


@dataclass(frozen=True)
class CheckpointLog:
    """Reads and writes the checkpoint topic of ``pipeline``."""

    connection: KafkaConnection
    pipeline: str

    @property
    def topic(self) -> str:
        """The topic's name."""
        return checkpoint_topic(self.pipeline)

    def exists(self) -> bool:
        """Whether the topic exists. Raises BrokerUnavailableError, TopicError."""
        return bool(partition_counts(self.connection, [self.topic]))

    def load(self, kind: str) -> str | None:
        """The text of the last record of that ``kind``; None if there is none.

        It waits for a write in progress. Raises BrokerUnavailableError, TopicError, and CheckpointError if Kafka
        deleted records, or for a record that the pipeline did not sign.
        """
        record = self._last(kind)
        if record is not None and (fault := self.connection.log_keys.fault(record)):
            raise CheckpointError(
                f"the {kind} record of topic {self.topic!r}, at offset {record.offset}, was not written by pipeline "
                f"{self.pipeline!r}: {fault}. Nothing was published. If commit_log.key is new, or was changed, "
                f"`changefeed sign {self.pipeline}` signs what is there; otherwise somebody else may write to the "
                f"topic: look at its ACLs, delete the topic, and `changefeed recover {self.pipeline}` takes the "
                "checkpoint from the commit log."
            )
        return None if record is None or record.value is None else record.value.decode(errors="replace")

    def _last(self, kind: str) -> KafkaRecord | None:
        if not self.exists():
            return None
        purpose = f"to read the {kind} of {self.pipeline!r}"
        with partition_reader(self.connection, [(self.topic, 0)], purpose, start="end", of_a_log=True) as reader:
            check_first_offsets(reader.first_offsets())
            return reader.last(record_key(self.pipeline, kind), timeout_seconds=2 * _TRANSACTION_SECONDS)

    @contextmanager
    def open_writer(self, settings: TopicSettings, *, create: bool) -> Iterator[Callable[[Records], None]]:
        """Yield a function that writes records, all or none, unless another process began to write in the meantime.

        So all that the block reads before it calls the function is still valid when the records are written. With
        ``create`` a missing topic is created with ``settings``. Raises FencedError if another process began to write
        (nothing is written), BrokerUnavailableError, TopicError; after the last two it is unknown whether the records
        are written.
        """
        ensure_topics(self.connection, {self.topic: settings}, create=create)
        identity = f"{self.pipeline}.checkpoint"
        with closing(FencedWriter(self.connection, identity, [self.topic], _TRANSACTION_SECONDS)) as writer:
            writer.take_over()
            yield lambda records: self._write(writer, records)

    def _write(self, writer: FencedWriter, records: Records) -> None:
        values = {
            record_key(self.pipeline, kind): None if text is None else text.encode() for kind, text in records.items()
        }
        purpose = f"to write the {' and the '.join(records)} of {self.pipeline!r} to {self.topic!r}"
        try:
            writer.write(self.topic, values, purpose, compression="zstd", stage="in_checkpoint_write")
        except BadRecordError as error:
            raise TopicError(f"{self.topic!r} did not take what was written: {error}") from error

    def sign(self, keys: LogKeys) -> None:
        """Sign the records that none of ``keys`` signed, by writing them again. Raises what `open_writer` raises."""
        for _ in range(_SIGN_ATTEMPTS - 1):
            with suppress(FencedError):  # the task of a continuous run has written meanwhile
                return self._sign(keys)
        return self._sign(keys)

    def _sign(self, keys: LogKeys) -> None:
        if not self.exists():
            return
        with self.open_writer(checkpoint_settings(), create=False) as write:
            records = {kind: self._last(kind) for kind in (CHECKPOINT, SCHEMAS)}
            unsigned = {kind: record for kind, record in records.items() if record and keys.fault(record)}
            if unsigned:
                write({kind: record.value.decode() if record.value else None for kind, record in unsigned.items()})
