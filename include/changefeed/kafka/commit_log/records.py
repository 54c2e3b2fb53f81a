"""The records of the commit log: one class for each kind.

A record's key is a JSON array: the identity (the name of the pipeline, or the identity of a backfill), the kind, and
parts that distinguish the records of that kind. The value is JSON, compressed if it is long, or null (a tombstone),
which forgets the record. Kafka compacts the log by the bytes of the key, so a kind must never change the spelling of
its keys.

For a new kind add a subclass of `LogRecord`; nothing else has to change to read, write and forget its records.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

import orjson

from changefeed.errors import CheckpointError
from changefeed.kafka.log_keys import NO_KEYS, LogKeys
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord
from changefeed.model.topic_name import pipeline_of_commit_log
from changefeed.model.window import HighWaterMark, Window
from changefeed.records.compression import MOST_OF_A_LOG, inflate

PLAIN_BYTES = 32 << 10
"""Size in bytes above which a value is compressed. A seal of 5,000 tables is 7 MB of JSON, and every reader of the log
reads it."""

_COMPRESSED = b"x"
"""The first byte of a zlib frame; JSON never begins with it."""

KINDS: dict[str, type[LogRecord]] = {}
"""The class of each kind, by its name in keys."""


class LogRecord:
    """Base of all kinds; a subclass is a frozen dataclass, declared with ``kind="its name in keys"``.

    A subclass without ``kind`` is abstract.
    """

    kind: ClassVar[str]

    def __init_subclass__(cls, *, kind: str = "") -> None:
        if not kind:
            return
        if kind in KINDS:
            raise TypeError(f"two classes are of kind {kind!r}: {KINDS[kind].__name__} and {cls.__name__}")
        cls.kind = kind
        KINDS[kind] = cls

    @property
    def parts(self) -> tuple[str | int, ...]:
        """The part of the key after the kind, which distinguishes the records of this kind."""
        raise NotImplementedError

    def to_json(self) -> Any:
        """The value, made of JSON types."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        """The record of a key's ``parts`` and its value. Raises ValueError, TypeError, KeyError or IndexError."""
        raise NotImplementedError

    @classmethod
    def key_of(cls, identity: str, *parts: str | int) -> bytes:
        """The key of a record of this kind, also for its tombstone."""
        return json.dumps([identity, cls.kind, *parts], separators=(",", ":")).encode()

    def key(self, identity: str) -> bytes:
        """This record's key in the log of ``identity``."""
        return self.key_of(identity, *self.parts)

    def value(self) -> bytes:
        """The value of this record: JSON, compressed with zlib if it is longer than PLAIN_BYTES."""
        return stored_value(self.to_json())


class Note(LogRecord):
    """Base of kinds that any process may write without the lease, because no progress, seal or begun window depends on
    them."""


@dataclass(frozen=True)
class ProgressRecord(LogRecord, kind="progress"):
    """The progress of a topic-partition; written in the transaction of its messages."""

    topic: str
    partition: int
    progress: Progress

    @property
    def parts(self) -> tuple[str | int, ...]:
        return self.topic, self.partition

    def to_json(self) -> Any:
        return self.progress.to_json()

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(str(parts[0]), int(parts[1]), Progress.from_json(value))


@dataclass(frozen=True)
class NumberRecord(LogRecord, kind="number"):
    """The number of the next message of a topic-partition, for formats with numbered messages.

    It is written in the transaction of the messages before that number, and a seek does not forget it. ``topic_id`` is
    Kafka's id of the topic, because the numbers of a topic that is created again begin with 0.
    """

    topic: str
    partition: int
    next: int
    topic_id: str = ""

    @property
    def parts(self) -> tuple[str | int, ...]:
        return self.topic, self.partition

    def to_json(self) -> Any:
        return {"next": self.next, "topic_id": self.topic_id}

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(str(parts[0]), int(parts[1]), int(value["next"]), str(value["topic_id"]))


@dataclass(frozen=True)
class SealRecord(LogRecord, kind="seal"):
    """The manifest of a window that was published completely."""

    manifest: Manifest

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.manifest.window.number,)

    def to_json(self) -> Any:
        return self.manifest.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(Manifest.from_json(value))


@dataclass(frozen=True)
class SeekLogRecord(LogRecord, kind="seek"):
    """A seek, which has a number of its own in the sequence of windows. The record is never forgotten."""

    seek: SeekRecord

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.seek.number,)

    def to_json(self) -> Any:
        return self.seek.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(SeekRecord.from_json(value))


@dataclass(frozen=True)
class FirstRecord(LogRecord, kind="first"):
    """The pipeline's first checkpoint. The record is written before the checkpoint is stored, and is never
    forgotten."""

    checkpoint: Checkpoint

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return self.checkpoint.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(Checkpoint.from_json(value))


@dataclass(frozen=True)
class BegunRecord(LogRecord, kind="begun"):
    """A window that was begun and is not sealed yet.

    ``rules`` are digests of the settings that it was begun with. ``high_water_marks`` has the last message published to
    each topic-partition before a failover. ``schema_ids`` are the registry's ids by subject at that time.
    """

    window: Window
    rules: Mapping[str, str] = field(default_factory=dict)
    high_water_marks: tuple[HighWaterMark, ...] = ()
    schema_ids: Mapping[str, int] = field(default_factory=dict)
    parked: tuple[str, ...] = ()
    """The tables that are left out of the window."""

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.window.number,)

    def to_json(self) -> Any:
        values = {
            **self.window.to_json(),
            "rules": dict(self.rules),
            "marks": [asdict(high_water_mark) for high_water_mark in self.high_water_marks],
        }
        values |= {"schema_ids": dict(self.schema_ids)} if self.schema_ids else {}
        return values | ({"parked": list(self.parked)} if self.parked else {})

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        high_water_marks = tuple(HighWaterMark(**high_water_mark) for high_water_mark in value["marks"])
        window, ids = Window.from_json(value), value.get("schema_ids", {})
        return cls(window, value["rules"], high_water_marks, ids, tuple(value.get("parked", ())))


@dataclass(frozen=True)
class ParkedRecord(LogRecord, kind="parked"):
    """A captured table that windows leave out: its changes from ``at`` on are not published.

    ``at``, FILE:POSITION, is a commit boundary of server ``source``, after the transactions ``gtids``. ``reason`` is
    the first sentence of the error for which it was parked at ``since_ms``, and ``function`` the name of the function
    that failed, if one did. While the record exists, no window has changes of the table.
    """

    table: str
    source: str
    at: str
    gtids: str
    reason: str
    since_ms: int
    function: str = ""

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.table,)

    def to_json(self) -> Any:
        values = asdict(self)
        del values["table"]
        if not self.function:
            del values["function"]
        return values

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        source, at, gtids, reason = (str(value[name]) for name in ("source", "at", "gtids", "reason"))
        return cls(str(parts[0]), source, at, gtids, reason, int(value["since_ms"]), str(value.get("function", "")))


@dataclass(frozen=True)
class CompleteTablesRecord(LogRecord, kind="complete_tables"):
    """The captured tables whose rows are all in Kafka; see `pipeline.complete_tables`. Written with each seal.

    ``missing`` has the captured tables that need a snapshot, each with the time in ms after which the snapshot must
    have begun. ``at_ms`` is the time at which the record was written.
    """

    tables: tuple[str, ...]
    missing: Mapping[str, int]
    at_ms: int

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {"tables": list(self.tables), "missing": dict(self.missing), "at_ms": self.at_ms}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        missing = {str(table): int(since_ms) for table, since_ms in value["missing"].items()}
        return cls(tuple(map(str, value["tables"])), missing, int(value["at_ms"]))


@dataclass(frozen=True)
class OrderRecord(LogRecord, kind="order"):
    """The transactions of a begun window in the order of its server's binlog, for a failover in the middle of it.

    It is written with the first messages of the window, in the same Kafka transaction, and forgotten with the window.
    """

    window: int
    order: BinlogOrder

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.window,)

    def to_json(self) -> Any:
        return self.order.to_json()

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(int(parts[0]), BinlogOrder.from_json(value))


_MOST_TASKS = 100_000
"""More tasks than any run has: a record with a larger number was not written by changefeed."""


@dataclass(frozen=True)
class AttemptRecord(LogRecord, kind="attempt"):
    """The one attempt that may publish; see `fencing`.

    ``tasks`` is the largest number of tasks of this and earlier attempts, and so the number of used transactional ids.
    """

    attempt: str
    tasks: int = 1

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {"attempt": self.attempt, "tasks": self.tasks}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        tasks = int(value["tasks"])
        if not 1 <= tasks <= _MOST_TASKS:  # all of them are fenced, one by one
            raise ValueError(f"an attempt of {tasks} tasks")
        return cls(str(value["attempt"]), tasks)


@dataclass(frozen=True)
class TakeoverRecord(Note, kind="takeover"):
    """The continuous run that took over last, by the number of its lease; see `ingest.handover`."""

    number: int

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return {"number": self.number}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(int(value["number"]))


@dataclass(frozen=True)
class RenamedRecord(LogRecord, kind="renamed"):
    """The pipeline was renamed to ``to``. Nothing is published under the old name any more.

    It is written before the rename changes anything else, so it also shows a rename that was killed.
    """

    to: str

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return self.to

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(str(value))


@dataclass(frozen=True)
class ClaimRecord(LogRecord, kind="lease"):
    """The claim of a live run, which the run repeats; see `lease`. ``first`` is the offset of its first claim, None in
    that claim.

    ``who`` names the run's process and machine, for messages. Other runs wait for a ``brief`` run, which takes seconds.
    """

    attempt: str
    first: int | None
    who: str
    brief: bool = False

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.attempt,)

    def to_json(self) -> Any:
        return {"first": self.first, "who": self.who} | ({"brief": True} if self.brief else {})

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        first = None if value["first"] is None else int(value["first"])
        return cls(str(parts[0]), first, str(value["who"]), bool(value.get("brief", False)))

    @classmethod
    def key_of(cls, identity: str, *parts: str | int) -> bytes:
        return json.dumps([identity, cls.kind, *parts]).encode()  # with spaces, like the keys that are stored already


@dataclass(frozen=True)
class VerifyRecord(Note, kind="verify"):
    """The last result of `verify`; ``follower`` is the connection id of the compared follower, '' for the source."""

    follower: str
    report: Mapping[str, Any]

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.follower,)

    def to_json(self) -> Any:
        return dict(self.report)

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(str(parts[0]), dict(value))


@dataclass(frozen=True)
class DiscardRecord(Note, kind="discard"):
    """Dead letters that ``who`` had deleted: ``letters`` of ``tables``, ``up_to`` an offset by partition. The record is
    never forgotten."""

    at_ms: int
    who: str
    why: str
    up_to: Mapping[int, int]
    letters: int
    tables: tuple[str, ...]

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.at_ms,)

    def to_json(self) -> Any:
        values = asdict(self)
        return values | {"up_to": {str(partition): offset for partition, offset in self.up_to.items()}}

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        up_to = {int(partition): int(offset) for partition, offset in value["up_to"].items()}
        who, why, tables = str(value["who"]), str(value["why"]), tuple(map(str, value["tables"]))
        return cls(int(value["at_ms"]), who, why, up_to, int(value["letters"]), tables)


@dataclass(frozen=True)
class DependencyRecord(LogRecord, kind="relied"):
    """The end ``until`` of the windows that a snapshot depends on. The snapshot skipped rows whose keys change before
    ``until``, because these windows publish the changes.

    ``until`` are coordinates of server ``source``; ``snapshot`` is the snapshot's identity. A window that begins before
    ``until`` must be published by the same ``rules`` (`settings.message_rules`) and with all of ``tables``. A window on
    another server must have the transactions ``gtids`` before it.
    """

    snapshot: str
    source: str
    until: str
    rules: Mapping[str, str]
    tables: tuple[str, ...]
    gtids: str

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.snapshot,)

    def to_json(self) -> Any:
        return {
            "source": self.source,
            "until": self.until,
            "rules": dict(self.rules),
            "tables": list(self.tables),
            "gtids": self.gtids,
        }

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        return cls(
            str(parts[0]), value["source"], value["until"], value["rules"], tuple(value["tables"]), value["gtids"]
        )


@dataclass(frozen=True)
class LogEntry:
    """A record of the log's topic with its parsed key: identity, kind and parts."""

    identity: str
    kind: str
    parts: tuple[Any, ...]
    record: KafkaRecord

    @classmethod
    def of(cls, record: KafkaRecord) -> LogEntry | None:
        """The entry of a record; None for a key that has not the form of changefeed's keys."""
        try:
            identity, kind, *parts = orjson.loads(record.key or b"")
        except (ValueError, TypeError):
            return None
        return (
            cls(identity, kind, tuple(parts), record) if isinstance(identity, str) and isinstance(kind, str) else None
        )

    @property
    def number(self) -> int:
        """The window number at the end of the key; raises CheckpointError for another key."""
        try:
            return int(self.parts[0])
        except (ValueError, TypeError, IndexError) as error:
            raise _unreadable_error(self.record, error) from error

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition at the end of the key; raises CheckpointError for another key."""
        try:
            return str(self.parts[0]), int(self.parts[1])
        except (ValueError, TypeError, IndexError) as error:
            raise _unreadable_error(self.record, error) from error

    @property
    def is_forgettable(self) -> bool:
        """Whether the record may be ignored: no progress, seal or window depends on its kind, or its identity is not
        one of the pipeline's."""
        kind, pipeline = KINDS.get(self.kind), pipeline_of_commit_log(self.record.topic)
        is_of_pipeline = pipeline is None or self.identity == pipeline or self.identity.startswith(f"{pipeline}.")
        return not is_of_pipeline or (kind is not None and issubclass(kind, Note | ClaimRecord))

    @property
    def is_note(self) -> bool:
        """Whether nothing depends on its kind."""
        kind = KINDS.get(self.kind)
        return kind is not None and issubclass(kind, Note)

    @property
    def is_tombstone(self) -> bool:
        """Whether it forgets an earlier record with its key."""
        return self.record.value is None

    def plain(self) -> Any:
        """The parsed JSON of the value, of any kind; None for a tombstone. Raises ValueError, zlib.error."""
        return None if self.record.value is None else orjson.loads(_plain(self.record.value))

    def stored_again(self, value: Any) -> bytes:
        """The stored bytes of ``value`` in place of `plain`, compressed if the record is."""
        is_compressed = (self.record.value or b"").startswith(_COMPRESSED)
        return compressed_value(value) if is_compressed else stored_value(value)

    def read(self) -> LogRecord | None:
        """The record as an object of its kind; None for a tombstone, and for a kind that this version does not know.

        Raises CheckpointError for a value that is not of that kind.
        """
        kind = KINDS.get(self.kind)
        if kind is None or self.record.value is None:
            return None
        try:
            return kind.from_json(self.parts, self.plain())
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error) as error:
            raise _unreadable_error(self.record, error) from error

    def read_note(self) -> LogRecord | None:
        """The record as from `read`, but None for an invalid value: for kinds that nothing depends on."""
        try:
            return self.read()
        except CheckpointError:
            return None


def latest_records(records: Iterable[KafkaRecord]) -> list[KafkaRecord]:
    """The last of ``records`` with each key, in the order of the log, tombstones included."""
    latest: dict[bytes | None, KafkaRecord] = {}
    for record in records:
        latest.pop(record.key, None)
        latest[record.key] = record
    return list(latest.values())


@dataclass(frozen=True)
class Foreign:
    """A record of the log's topic that the pipeline did not write; ``fault`` is the reason."""

    record: KafkaRecord
    fault: str

    def __str__(self) -> str:
        return f"{(self.record.key or b'')[:100]!r} at offset {self.record.offset} ({self.fault})"


def latest_entries(
    records: Iterable[KafkaRecord], keys: LogKeys = NO_KEYS, foreign: list[Foreign] | None = None
) -> list[LogEntry]:
    """The last of ``records`` with each key, without tombstones, in the order of the log.

    With ``keys`` of the pipeline, records that it did not sign are left out and added to ``foreign``, as are records
    with keys of another form. Raises CheckpointError if such a record replaced a record that the progress depends on.
    """
    latest = LatestEntries()
    latest.add(latest_records(records), keys)
    if foreign is not None:
        foreign += latest.foreign.values()
    return list(latest.entries.values())


@dataclass
class LatestEntries:
    """The last record of each key, without tombstones, in the order of the log, and of the ``foreign`` ones apart."""

    entries: dict[bytes | None, LogEntry] = field(default_factory=dict)
    foreign: dict[bytes | None, Foreign] = field(default_factory=dict)

    def add(self, records: Iterable[KafkaRecord], keys: LogKeys) -> None:
        """Add later ``records``, one of each key. Raises what `latest_entries` raises."""
        for record in records:
            self.entries.pop(record.key, None)
            self.foreign.pop(record.key, None)
            entry = LogEntry.of(record)
            if entry is None:
                self.foreign[record.key] = Foreign(record, "its key is none of changefeed's")
            elif fault := keys.fault(record):
                if not entry.is_forgettable:
                    raise _forged_error(record, fault)
                self.foreign[record.key] = Foreign(record, fault)
            elif not entry.is_tombstone:
                self.entries[record.key] = entry


def _forged_error(record: KafkaRecord, fault: str) -> CheckpointError:
    pipeline = pipeline_of_commit_log(record.topic)
    return CheckpointError(
        f"record {record.key!r} of commit log {record.topic!r}, at offset {record.offset}, was not written by pipeline "
        f"{pipeline!r}: {fault}. What was in its place is not known, so nothing is published. If commit_log.key is "
        f"new, or was changed, `changefeed sign {pipeline}` signs what is there, once. Otherwise somebody else may "
        "write to the topic: look at its ACLs, and restore it from a copy, or seek to the checkpoint."
    )


def _unreadable_error(record: KafkaRecord, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"record {record.key!r} of commit log {record.topic!r}, at offset {record.offset}, cannot be read ({error!r}): "
        "only changefeed may write to that topic. Its progress is unknown, so nothing is published."
    )


def stored_value(value: Any) -> bytes:
    """The stored bytes of a value of JSON types."""
    text = orjson.dumps(value)
    if len(text) > MOST_OF_A_LOG:
        raise CheckpointError(
            f"a record of the commit log would have {len(text):,} bytes, expected at most {MOST_OF_A_LOG:,}: nothing "
            "is written. Capture fewer tables in one pipeline"
        )
    return text if len(text) <= PLAIN_BYTES else zlib.compress(text)


def compressed_value(value: Any) -> bytes:
    """As `stored_value`, but compressed at any length."""
    stored = stored_value(value)
    return stored if stored.startswith(_COMPRESSED) else zlib.compress(stored)


def _plain(value: bytes) -> bytes:
    """The JSON text of a stored value."""
    return inflate(value, MOST_OF_A_LOG) if value.startswith(_COMPRESSED) else value
