"""The commit log: a compacted topic with the progress of topic-partitions and the sealed windows.

`records` has the kinds of its records, `owned_log` writes them.
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
    LatestEntries,
    LogEntry,
    LogRecord,
    Note,
    OrderRecord,
    ProgressRecord,
    SealRecord,
    SeekLogRecord,
    TakeoverRecord,
    latest_entries,
    latest_records,
)
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_memory import LogMemory, log_memory
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
    """The values of the records of one kind, by key; a record is read when its value is requested.

    A log has a record for each topic-partition and a hundred seals, and its readers need few of them. Raises
    CheckpointError for an unreadable record, also from `get` and from loops over values.
    """

    def __init__(self, entries: Mapping[Key, LogEntry], value_of: Callable[[Any], Value]) -> None:
        self._entries, self._value_of = entries, value_of
        self._read: dict[Key, Value] = {}

    def __getitem__(self, key: Key) -> Value:
        if key not in self._read:
            self._read[key] = self._value_of(self._entries[key].read())
        return self._read[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def stored_bytes(self, key: Key) -> int:
        """The size of the record in the log."""
        return len(self._entries[key].record.value or b"")

    def written_at_ms(self, key: Key) -> int:
        """When the record was written, in Unix milliseconds; `sign` and `rename` write records again."""
        return self._entries[key].record.timestamp_ms


@dataclass(frozen=True)
class CommitLogState:
    """The log's records of one identity: ``entries`` has the latest record of each key, in the order of the log.

    Values are parsed at the first access, which raises CheckpointError for an unreadable record.
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
        """Records of kinds that only a newer version of changefeed knows. They are not changed."""
        return tuple(entry for entry in self.entries if entry.kind not in KINDS)

    def entries_of(self, kind: type[LogRecord]) -> list[LogEntry]:
        """The entries of one kind, in the order of the log."""
        return self._by_kind.get(kind.kind, [])

    def of(self, kind: type[Kind]) -> list[Kind]:
        """All records of one kind; unreadable notes are left out, because nothing depends on them."""
        entries = self.entries_of(kind)
        records = (entry.read_note() if issubclass(kind, Note) else entry.read() for entry in entries)
        return [record for record in records if isinstance(record, kind)]

    def _by_number(self, kind: type[LogRecord], value_of: Callable[[Any], Value]) -> LatestRecords[int, Value]:
        """Records whose key ends in a window's number, by number in rising order."""
        entries = {entry.number: entry for entry in self.entries_of(kind)}
        return LatestRecords(dict(sorted(entries.items())), value_of)

    @cached_property
    def progress(self) -> LatestRecords[TopicPartition, Progress]:
        """The progress of each topic-partition."""
        entries = {entry.topic_partition: entry for entry in self.entries_of(ProgressRecord)}
        return LatestRecords(entries, lambda record: record.progress)

    @cached_property
    def seals(self) -> LatestRecords[int, Manifest]:
        """Manifests of the sealed windows by their numbers, in order."""
        return self._by_number(SealRecord, lambda record: record.manifest)

    @cached_property
    def seeks(self) -> LatestRecords[int, SeekRecord]:
        """Seeks by window number, in order: each seek takes a number of its own."""
        return self._by_number(SeekLogRecord, lambda record: record.seek)

    @cached_property
    def begun(self) -> LatestRecords[int, Window]:
        """Windows by number, in order, that were begun and are not sealed."""
        return self._by_number(BegunRecord, lambda record: record.window)

    @cached_property
    def orders(self) -> LatestRecords[int, BinlogOrder]:
        """The order of transactions in each partly published window, by window number, in order."""
        return self._by_number(OrderRecord, lambda record: record.order)

    def begun_record(self, window: Window) -> BegunRecord | None:
        """The record of ``window``, if exactly this window was begun under its number."""
        return next((record for record in self.of(BegunRecord) if record.window == window), None)

    @cached_property
    def attempt(self) -> str:
        """The attempt that may publish; '' before the first attempt."""
        return next((record.attempt for record in self.of(AttemptRecord)), "")

    def sealed_at_ms(self, window: int) -> int:
        """When the ``window`` of a seal was sealed, in Unix milliseconds; see `Manifest.sealed_at_ms`."""
        return self.seals[window].sealed_at_ms(self.seals.written_at_ms(window))

    @property
    def last_takeover(self) -> int:
        """The number of the continuous run that took over last; -1 before the first one."""
        return next((record.number for record in self.of(TakeoverRecord)), -1)

    @property
    def is_blank(self) -> bool:
        """Whether the log has no records of published windows, but at most records of begun runs."""
        of_runs = (ClaimRecord.kind, AttemptRecord.kind, TakeoverRecord.kind)
        return all(entry.kind in of_runs for entry in self.entries)

    @property
    def latest_number(self) -> int:
        """The highest window number of all records, 0 without any."""
        progress = (progress.window for progress in self.progress.values())
        return max((*self.seals, *self.seeks, *self.begun, *progress), default=0)


EMPTY_STATE = CommitLogState()
"""The state of an empty log."""


@dataclass(frozen=True)
class CommitLog:
    """Reads the log of ``identity`` in ``topic``, which `topics.ensure_topics` creates.

    Only the holder of the lease writes to it, with `owned_log.OwnedLog`; others may write a `Note`.

    ``wait_seconds`` is how long `read` waits for open transactions in the log. It should be more than the publishers'
    transaction timeout, after which the broker aborts them.
    """

    connection: KafkaConnection
    topic: str
    identity: str
    wait_seconds: float = 150.0

    def exists(self) -> bool:
        """Whether the topic exists. Raises BrokerUnavailableError, TopicError."""
        return bool(partition_counts(self.connection, [self.topic]))

    def read(self, *, open_seconds: float | None = None) -> CommitLogState:
        """All committed records up to the current end of the log.

        The end is the high watermark, not the last stable offset. Records of a committed transaction can follow an open
        one; if they were skipped, their messages would be published twice. So `read` waits until all open transactions
        are committed or aborted. With ``open_seconds`` it waits only so long and leaves out the records after an open
        transaction. This is enough for a plan, which is checked again after fencing.

        Records of unknown kinds are logged and left as they are.

        Raises BrokerUnavailableError if a transaction stays open for ``wait_seconds`` or no broker answers, TopicError
        if the topic was removed, CheckpointError as `latest_entries`.
        """
        return self._state(self._own(open_seconds))

    def read_with(self, other: str) -> tuple[CommitLogState, CommitLogState]:
        """The state as from `read`, and the state of identity ``other`` at the same end of the log."""
        latest = self._latest()
        ours, others = ([entry for entry in latest if entry.identity == each] for each in (self.identity, other))
        return self._state(ours), self._state(others)

    def _state(self, entries: Iterable[LogEntry]) -> CommitLogState:
        state = CommitLogState(tuple(entries))
        if state.unknown:
            _warn_of_unknown(self.topic, ", ".join(sorted({entry.kind for entry in state.unknown})))
        return state

    def identities(self) -> list[str]:
        """The identities with records in the log; the latest writer comes last. Raises what `read` raises."""
        return list(dict.fromkeys(entry.identity for entry in reversed(self._latest())))[::-1]

    def read_all(self) -> dict[str, CommitLogState]:
        """The state of each identity, for observers: without waiting for open transactions.

        The latest writer comes last. Raises what `read` raises.
        """
        entries: dict[str, list[LogEntry]] = {}
        for entry in self._latest(open_seconds=1.0):
            entries[entry.identity] = [*entries.pop(entry.identity, ()), entry]
        return {identity: CommitLogState(tuple(of_identity)) for identity, of_identity in entries.items()}

    def _latest(self, open_seconds: float | None = None) -> list[LogEntry]:
        """The latest record of each key, of all identities, without forgotten records, in the order of the log."""
        purpose = f"to read the commit log of {self.identity!r}"
        entries: list[LogEntry] = []
        foreign: list[Foreign] = []

        def read(memory: LogMemory[LatestEntries]) -> None:
            with memory.reader(self.connection, self.topic, purpose) as reader:
                records = reader.to_end(timeout_seconds=self.wait_seconds, open_seconds=open_seconds)
                memory.state.add(latest_records(memory.after_last(records)), self.connection.log_keys)
            entries[:], foreign[:] = memory.state.entries.values(), memory.state.foreign.values()

        log_memory(self.connection, self.topic, "entries", LatestEntries).read(read)
        if foreign:
            _warn_of_foreign(self.topic, len(foreign), str(foreign[0]))
        return entries

    def last_takeover(self) -> int:
        """As `CommitLogState.last_takeover`, also if this process does not have the key of other records."""
        key = TakeoverRecord.key_of(self.identity)
        with partition_reader(self.connection, [(self.topic, 0)], f"to read {self.topic!r}", of_a_log=True) as reader:
            records = reader.to_end(timeout_seconds=self.wait_seconds, open_seconds=1.0)
            found = latest_records(record for record in records if record.key == key)
        return CommitLogState(tuple(latest_entries(found, self.connection.log_keys))).last_takeover

    def foreign(self) -> list[Foreign]:
        """Records that the pipeline did not write; all other methods ignore them. Raises what `read` raises."""
        foreign: list[Foreign] = []
        latest_entries(self.latest_records(), self.connection.log_keys, foreign)
        return foreign

    def latest_records(self) -> list[KafkaRecord]:
        """The last record with each key, of any writer. Raises what `read` raises, without checks of the records."""
        with partition_reader(self.connection, [(self.topic, 0)], f"to read {self.topic!r}", of_a_log=True) as reader:
            return latest_records(reader.to_end(timeout_seconds=self.wait_seconds))

    def _own(self, open_seconds: float | None = None) -> list[LogEntry]:
        return [entry for entry in self._latest(open_seconds) if entry.identity == self.identity]

    def entries(self) -> list[LogEntry]:
        """The records of all identities, in the order of the log. Raises what `read` raises."""
        return self._latest()

    def note(self, record: Note) -> None:
        """Write ``record``, in place of an earlier one with its key. Raises BrokerUnavailableError, TopicError."""
        self._note({record.key(self.identity): record.value()})

    def forget_notes(self, records: Iterable[Note]) -> None:
        """Forget ``records`` that `read` returned. Raises what `note` raises."""
        self._note({record.key(self.identity): None for record in records})

    def _note(self, records: Mapping[bytes, bytes | None]) -> None:
        with RecordWriter(self.connection, self.topic) as writer:
            writer.write(records, f"to keep a note on {self.identity!r} in commit log {self.topic!r}")


@cache
def _warn_of_foreign(topic: str, count: int, first: str) -> None:
    """Log a warning once in a process, because a command reads the log several times."""
    _log.warning(
        "commit log %r has %d records that are not the pipeline's, the first %s. They are left out; nothing of the "
        "pipeline is in their place. Only changefeed is to write to that topic: look at its ACLs.",
        topic,
        count,
        first,
    )


@cache
def _warn_of_unknown(topic: str, kinds: str) -> None:
    """Log a warning once in a process, because a command reads the log several times."""
    _log.warning(
        "commit log %r has records of kinds that this version does not know (%s): a newer changefeed wrote "
        "them. They stay as they are.",
        topic,
        kinds,
    )
