"""The commit log: the compacted topic that says what has been published, and which windows are sealed.

`records` has the kinds of records that it holds, `owned_log` is how they are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeVar

from changefeed.kafka.commit_log.records import (
    KINDS,
    AttemptRecord,
    BegunRecord,
    ClaimRecord,
    Foreign,
    LogEntry,
    LogRecord,
    Note,
    OrderRecord,
    ProgressRecord,
    SealRecord,
    SoughtRecord,
    latest_entries,
    latest_records,
)
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.record_writer import RecordWriter
from changefeed.kafka.topics import partition_counts
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord
from changefeed.model.window import Window

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=LogRecord)
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", covariant=True)


class LatestRecords(Mapping[Key, Value]):
    """What records of one kind say, by what tells them apart; each is read when it is asked for.

    A log has a record a topic-partition and a hundred seals, and its readers want a few of them. Raises CheckpointError
    for one that cannot be read, also of `get` and `in` loops over values.
    """

    def __init__(self, entries: Mapping[Key, LogEntry], said: Callable[[Any], Value]) -> None:
        self._entries, self._said = entries, said
        self._read: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        if key not in self._read:
            self._read[key] = self._said(self._entries[key].read())
        return self._read[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def stored_bytes(self, key: Key) -> int:
        """How much of the log the record takes."""
        return len(self._entries[key].record.value or b"")


@dataclass(frozen=True)
class CommitLogState:
    """What the log says of one identity: ``entries``, each the latest of its key, in the order of the log.

    Values are read when they are asked for; all that ask raise CheckpointError for one that cannot be read.
    """

    entries: tuple[LogEntry, ...] = ()

    @cached_property
    def _by_kind(self) -> dict[str, list[LogEntry]]:
        entries: dict[str, list[LogEntry]] = {}
        for entry in self.entries:
            entries.setdefault(entry.kind, []).append(entry)
        return entries

    @property
    def unknown(self) -> tuple[LogEntry, ...]:
        """Records of kinds that only a newer version of changefeed knows. They are left as they are."""
        return tuple(entry for entry in self.entries if entry.kind not in KINDS)

    def of(self, kind: type[Kind]) -> list[Kind]:
        """All records of one kind; notes that cannot be read are left out, as nothing depends on them."""
        entries = self._by_kind.get(kind.kind, ())
        records = (entry.read_note() if issubclass(kind, Note) else entry.read() for entry in entries)
        return [record for record in records if isinstance(record, kind)]

    def _numbered(self, kind: type[LogRecord], said: Callable[[Any], Value]) -> LatestRecords[int, Value]:
        """Records whose key ends in a window's number, in the order of those."""
        entries = {entry.number: entry for entry in self._by_kind.get(kind.kind, ())}
        return LatestRecords(dict(sorted(entries.items())), said)

    @cached_property
    def progress(self) -> LatestRecords[TopicPartition, Progress]:
        """What each topic-partition was given."""
        entries = {entry.topic_partition: entry for entry in self._by_kind.get(ProgressRecord.kind, ())}
        return LatestRecords(entries, lambda record: record.progress)

    @cached_property
    def seals(self) -> LatestRecords[int, Manifest]:
        """Manifests of the sealed windows by their numbers, in order."""
        return self._numbered(SealRecord, lambda record: record.manifest)

    @cached_property
    def seeks(self) -> LatestRecords[int, SeekRecord]:
        """Seeks by the window numbers that they took, in order."""
        return self._numbered(SoughtRecord, lambda record: record.seek)

    @cached_property
    def begun(self) -> LatestRecords[int, Window]:
        """Windows by number, in order, of which publishing began and that are not sealed."""
        return self._numbered(BegunRecord, lambda record: record.window)

    @cached_property
    def orders(self) -> LatestRecords[int, BinlogOrder]:
        """By number, in order, the transactions of windows of which a part is in Kafka."""
        return self._numbered(OrderRecord, lambda record: record.order)

    def begun_record(self, window: Window) -> BegunRecord | None:
        """The record of ``window``, if it is exactly this one that was begun under its number."""
        return next((record for record in self.of(BegunRecord) if record.window == window), None)

    @cached_property
    def attempt(self) -> str:
        """The attempt that may publish, '' before the first."""
        return next((record.attempt for record in self.of(AttemptRecord)), "")

    @property
    def is_blank(self) -> bool:
        """Whether it says nothing of what was published: no more than that runs began."""
        return all(entry.kind in (ClaimRecord.kind, AttemptRecord.kind) for entry in self.entries)

    @property
    def latest_number(self) -> int:
        """The highest window number that any record speaks of, 0 where there is none."""
        progress = (progress.window for progress in self.progress.values())
        return max((*self.seals, *self.seeks, *self.begun, *progress), default=0)


NOTHING_KNOWN = CommitLogState()
"""What an empty log says."""


@dataclass(frozen=True)
class CommitLog:
    """Reads the log of ``identity`` in ``topic``, which `topics.ensure_topics` made.

    Only who holds the lease writes to it, by `owned_log.OwnedLog`; others leave a `Note` at most.

    ``wait_seconds`` is how long `read` waits for transactions that are open in the log; it should be more than
    the publishers' transaction timeout, after which the broker aborts them.
    """

    connection: KafkaConnection
    topic: str
    identity: str
    wait_seconds: float = 150.0

    def exists(self) -> bool:
        """Whether the topic is there. Raises BrokerUnavailableError, TopicError."""
        return bool(partition_counts(self.connection, [self.topic]))

    def read(self, *, open_seconds: float | None = None) -> CommitLogState:
        """Everything committed up to the end that the log has now.

        The end is the high watermark, not the last stable offset: records of a transaction that is already
        committed can lie behind one that is still open, and passing over them would publish their messages twice.
        So it waits until the open ones are committed or aborted; with ``open_seconds`` only for so long, and leaves
        out what lies behind them: enough for a plan, which is checked again behind the fence.

        Records of unknown kinds are reported, not interpreted and not lost: nothing here writes or forgets them.

        Raises BrokerUnavailableError when they stay open for ``wait_seconds`` or no broker answers, TopicError where
        the topic is gone, CheckpointError as `latest_entries`.
        """
        return self._state(self._own(open_seconds))

    def read_beside(self, other: str) -> tuple[CommitLogState, CommitLogState]:
        """As `read`, and what the log says of the identity ``other`` at the same end."""
        latest = self._latest()
        ours, others = ([entry for entry in latest if entry.identity == each] for each in (self.identity, other))
        return self._state(ours), self._state(others)

    def _state(self, entries: Iterable[LogEntry]) -> CommitLogState:
        state = CommitLogState(tuple(entries))
        if state.unknown:
            _warn_of_unknown(self.topic, ", ".join(sorted({entry.kind for entry in state.unknown})))
        return state

    def identities(self) -> list[str]:
        """Whose records the log holds: the one that wrote last comes last. Raises as `read` does."""
        return list(dict.fromkeys(entry.identity for entry in reversed(self._latest())))[::-1]

    def read_all(self) -> dict[str, CommitLogState]:
        """What the log says of each identity, without waiting for transactions that are open; for who looks on.

        The one that wrote last comes last. Raises as `read` does.
        """
        entries: dict[str, list[LogEntry]] = {}
        for entry in self._latest(open_seconds=1.0):
            entries[entry.identity] = [*entries.pop(entry.identity, ()), entry]
        return {identity: CommitLogState(tuple(of_identity)) for identity, of_identity in entries.items()}

    def _latest(self, open_seconds: float | None = None) -> list[LogEntry]:
        """The last record of each key that is not forgotten, of all identities, in the order of the log."""
        wanted = f"to read the commit log of {self.identity!r}"
        with partition_reader(self.connection, [(self.topic, 0)], wanted, of_a_log=True) as reader:
            records = reader.to_end(patience_seconds=self.wait_seconds, open_seconds=open_seconds)
            foreign: list[Foreign] = []
            entries = latest_entries(records, self.connection.log_keys, foreign)
        if foreign:
            _warn_of_foreign(self.topic, len(foreign), str(foreign[0]))
        return entries

    def foreign(self) -> list[Foreign]:
        """Records of the topic that are not the pipeline's, and are left out. Raises as `read` does."""
        foreign: list[Foreign] = []
        latest_entries(self.latest_records(), self.connection.log_keys, foreign)
        return foreign

    def latest_records(self) -> list[KafkaRecord]:
        """The last record with each key, whoever wrote it. Raises as `read`, but for what a record says."""
        with partition_reader(self.connection, [(self.topic, 0)], f"to read {self.topic!r}", of_a_log=True) as reader:
            return latest_records(reader.to_end(patience_seconds=self.wait_seconds))

    def _own(self, open_seconds: float | None = None) -> list[LogEntry]:
        return [entry for entry in self._latest(open_seconds) if entry.identity == self.identity]

    def entries(self) -> list[LogEntry]:
        """What the log holds of all identities, as it stands there, in order. Raises as `read` does."""
        return self._latest()

    def note(self, record: Note) -> None:
        """Write ``record``, in place of an earlier one with its key. Raises BrokerUnavailableError, TopicError."""
        self._note({record.key(self.identity): record.value()})

    def forget_notes(self, records: Iterable[Note]) -> None:
        """Forget ``records``, as `read` gave them. Raises as `note`."""
        self._note({record.key(self.identity): None for record in records})

    def _note(self, records: Mapping[bytes, bytes | None]) -> None:
        with RecordWriter(self.connection, self.topic) as writer:
            writer.write(records, f"to keep a note on {self.identity!r} in commit log {self.topic!r}")


@cache
def _warn_of_foreign(topic: str, count: int, first: str) -> None:
    """Once in a process: a command reads the log several times."""
    _log.warning(
        "commit log %r has %d records that are not the pipeline's, the first %s. They are left out; nothing of the "
        "pipeline is in their place. Only changefeed is to write to that topic: look at its ACLs.",
        topic,
        count,
        first,
    )


@cache
def _warn_of_unknown(topic: str, kinds: str) -> None:
    """Once in a process: a command reads the log several times."""
    _log.warning(
        "commit log %r has records of kinds that this version does not know (%s): a newer changefeed wrote "
        "them. They stay as they are.",
        topic,
        kinds,
    )
