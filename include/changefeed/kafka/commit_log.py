"""The commit log: the compacted topic that says what has been published, and which windows are sealed.

`log_record` has the kinds of records that it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from changefeed.errors import ChangefeedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_record import (
    AttemptRecord,
    BegunRecord,
    FailoverRecord,
    LogEntry,
    LogRecord,
    ProgressRecord,
    SealRecord,
    SoughtRecord,
    latest_entries,
)
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import partition_counts
from changefeed.manifest import Manifest
from changefeed.seek import SeekRecord
from changefeed.window import Window

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=LogRecord)


@dataclass(frozen=True)
class CommitLogState:
    """What the log says of one identity.

    ``unknown`` are records of kinds that only a newer version of changefeed knows. They are left as they are.
    """

    records: tuple[LogRecord, ...] = ()
    unknown: tuple[LogEntry, ...] = ()

    @classmethod
    def of_entries(cls, entries: Iterable[LogEntry]) -> CommitLogState:
        """Read the entries of one identity, each the latest of its key. Raises CheckpointError for unreadable ones."""
        read = [(entry, entry.read()) for entry in entries]
        return cls(
            tuple(record for _, record in read if record is not None),
            tuple(entry for entry, record in read if record is None),
        )

    def of(self, kind: type[Kind]) -> list[Kind]:
        """All records of one kind."""
        return [record for record in self.records if isinstance(record, kind)]

    @cached_property
    def progress(self) -> dict[TopicPartition, Progress]:
        """What each topic-partition was given."""
        return {(record.topic, record.partition): record.progress for record in self.of(ProgressRecord)}

    @cached_property
    def seals(self) -> dict[int, Manifest]:
        """Manifests of the sealed windows by their numbers, in order."""
        return dict(sorted((record.manifest.window.number, record.manifest) for record in self.of(SealRecord)))

    @cached_property
    def seeks(self) -> dict[int, SeekRecord]:
        """Seeks by the window numbers that they took, in order."""
        return dict(sorted((record.seek.number, record.seek) for record in self.of(SoughtRecord)))

    @cached_property
    def begun(self) -> dict[int, Window]:
        """Windows by number, in order, of which publishing began and that are not sealed."""
        return dict(sorted((record.window.number, record.window) for record in self.of(BegunRecord)))

    @cached_property
    def attempt(self) -> str:
        """The attempt that may publish, '' before the first."""
        return next((record.attempt for record in self.of(AttemptRecord)), "")

    @property
    def latest_number(self) -> int:
        """The highest window number that any record speaks of, 0 where there is none."""
        progress = (progress.window for progress in self.progress.values())
        return max((*self.seals, *self.seeks, *self.begun, *progress), default=0)


@dataclass(frozen=True)
class CommitLog:
    """Reads and writes the log of ``identity`` in ``topic``, which `topics.ensure_topics` made.

    ``wait_seconds`` is how long `read` waits for transactions that are open in the log; it should be more than
    the publishers' transaction timeout, after which the broker aborts them.

    All that write raise BrokerUnavailableError or TopicError; then it is unknown whether the records were written.
    Writing the same record again is harmless.
    """

    connection: KafkaConnection
    topic: str
    identity: str
    wait_seconds: float = 150.0

    def exists(self) -> bool:
        """Whether the topic is there. Raises BrokerUnavailableError, TopicError."""
        return bool(partition_counts(self.connection, [self.topic]))

    def read(self) -> CommitLogState:
        """Everything committed up to the end that the log has now.

        The end is the high watermark, not the last stable offset: records of a transaction that is already
        committed can lie behind one that is still open, and passing over them would publish their messages twice.
        So it waits until the open ones are committed or aborted.

        Records of unknown kinds are reported, not interpreted and not lost: nothing here writes or forgets them.

        Raises BrokerUnavailableError when they stay open for ``wait_seconds`` or no broker answers, TopicError where
        the topic is gone, CheckpointError for a record that cannot be read.
        """
        state = CommitLogState.of_entries(self._own())
        if state.unknown:
            _log.warning(
                "commit log %r has records of kinds that this version does not know (%s): a newer changefeed wrote "
                "them. They stay as they are.",
                self.topic,
                ", ".join(sorted({entry.kind for entry in state.unknown})),
            )
        return state

    def identities(self) -> list[str]:
        """Whose records the log holds: the one that wrote last comes last. Raises as `read` does."""
        return list(dict.fromkeys(entry.identity for entry in reversed(self._latest())))[::-1]

    def _latest(self) -> list[LogEntry]:
        """The last record of each key that is not forgotten, of all identities, in the order of the log."""
        wanted = f"to read the commit log of {self.identity!r}"
        with partition_reader(self.connection, [(self.topic, 0)], wanted) as reader:
            return latest_entries(reader.to_end(patience_seconds=self.wait_seconds))

    def _own(self) -> list[LogEntry]:
        return [entry for entry in self._latest() if entry.identity == self.identity]

    def seal(self, manifest: Manifest, keep: int = 100, sealed: Iterable[int] = ()) -> None:
        """Write the manifest of a window, and tombstones for all but the last ``keep`` of the windows ``sealed``.

        Seals of higher numbers are left by a state store that was restored from an older backup since: they are
        forgotten too, so that the highest one is where the pipeline stands.
        """
        window = manifest.window.number
        numbers = sorted({window, *(number for number in sealed if number < window)})
        old = [*numbers[: max(0, len(numbers) - keep)], *(number for number in sealed if number > window)]
        seal = SealRecord(manifest)
        records: dict[bytes, bytes | None] = {seal.key(self.identity): seal.value()}
        records |= {SealRecord.key_of(self.identity, number): None for number in old if number != window}
        records |= {BegunRecord.key_of(self.identity, number): None for number in (window, *old)}
        self._write(records, f"to seal window {window}")

    def keep(self, record: LogRecord) -> None:
        """Write ``record``, in place of an earlier one with its key."""
        self._write({record.key(self.identity): record.value()}, f"to keep a record of kind {record.kind!r}")

    def forget(self, topics: Iterable[str], state: CommitLogState | None = None) -> int:
        """Write tombstones for the progress of ``topics``; return how many. For dead tables, and after a seek."""
        names = set(topics)
        gone = [record for record in (state or self.read()).of(ProgressRecord) if record.topic in names]
        return self._forget(gone, f"to forget {sorted(names)}")

    def forget_begun(self, state: CommitLogState, window: int) -> int:
        """Forget windows begun and failovers up to ``window``, which is committed; return how many records."""
        gone: list[LogRecord] = [record for record in state.of(BegunRecord) if record.window.number <= window]
        gone += [record for record in state.of(FailoverRecord) if record.window < window]
        return self._forget(gone, f"to forget windows up to {window}")

    def forget_everything(self) -> int:
        """Forget all records of this identity, of unknown kinds too; return how many.

        For a backfill that nobody will try again. Its attempt is forgotten first: a task of it that comes late then
        finds that it may not publish, rather than that nothing was published yet.
        """
        entries = sorted(self._own(), key=lambda entry: entry.kind != AttemptRecord.kind)
        self._write({entry.record.key or b"": None for entry in entries}, "to forget everything")
        return len(entries)

    def _forget(self, records: Iterable[LogRecord], wanted: str) -> int:
        keys = [record.key(self.identity) for record in records]
        self._write(dict.fromkeys(keys), wanted)
        return len(keys)

    def _write(self, records: Mapping[bytes, bytes | None], wanted: str) -> None:
        if not records:
            return
        milliseconds = int(self.connection.timeout_seconds * 1000)
        # Not idempotent: that costs half a second at the first record, and the same record twice is no harm here.
        producer = self.connection.producer(
            acks="all", max_in_flight_requests_per_connection=1, message_timeout_ms=milliseconds, linger_ms=0
        )
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _record: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            for key, value in records.items():
                producer.produce(self.topic, value=value, key=key, partition=0, on_delivery=delivered)
            left = producer.flush(self.connection.timeout_seconds + 1)
        except KafkaException as error:
            raise self.connection.refused(error, self._wanted(wanted)) from error
        finally:
            producer.purge()
        if failed:
            raise self._refused(failed[0], wanted)
        if left:
            raise self._refused(KafkaError(KafkaError._MSG_TIMED_OUT), wanted)

    def _refused(self, error: KafkaError, wanted: str) -> ChangefeedError:
        return self.connection.refused(KafkaException(error), self._wanted(wanted))

    def _wanted(self, wanted: str) -> str:
        return f"{wanted} of {self.identity!r} in commit log {self.topic!r}"
