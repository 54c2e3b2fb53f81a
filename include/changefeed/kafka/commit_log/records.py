"""What the commit log holds: one class for each kind of record.

A record's key is a JSON array: the identity (the pipeline's name, or a backfill's own), the kind, and what tells the
records of that kind apart. The value is JSON, compressed where it is long, or null (a tombstone) for what is forgotten.
The log is compacted by the key's bytes, so a kind never changes how its keys are spelled.

A new kind is one more subclass of `LogRecord`: the log reads, writes and forgets it without being changed.
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
from changefeed.model.window import Mark, Window
from changefeed.records.compression import MOST_OF_A_LOG, inflated

PLAIN_BYTES = 32 << 10
"""A longer value is compressed: a seal of 5,000 tables is 7 MB of JSON, which every reader of the log would read."""

KINDS: dict[str, type[LogRecord]] = {}
"""The class of each kind, by the name that stands in keys."""


class LogRecord:
    """Base of all kinds; a subclass is a frozen dataclass, declared with ``kind="its name in keys"``.

    One without a ``kind`` is the base of others.
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
        """What tells the records of this kind apart, as it stands in their keys behind the kind."""
        raise NotImplementedError

    def to_json(self) -> Any:
        """The value, of types that JSON has."""
        raise NotImplementedError

    @classmethod
    def from_json(cls, parts: Sequence[Any], value: Any, /) -> Self:
        """The record of a key's ``parts`` and its value. Raises ValueError, TypeError, KeyError or IndexError."""
        raise NotImplementedError

    @classmethod
    def key_of(cls, identity: str, *parts: str | int) -> bytes:
        """The key of a record of this kind, also of one that is to be forgotten."""
        return json.dumps([identity, cls.kind, *parts], separators=(",", ":")).encode()

    def key(self, identity: str) -> bytes:
        """This record's key in the log of ``identity``."""
        return self.key_of(identity, *self.parts)

    def value(self) -> bytes:
        """This record's value: JSON, in zlib's frame where it is longer than PLAIN_BYTES."""
        return stored_value(self.to_json())


class Note(LogRecord):
    """Base of kinds that anybody may write, without the lease: no progress, seal or begun window depends on them."""


@dataclass(frozen=True)
class ProgressRecord(LogRecord, kind="progress"):
    """What a topic-partition was given; written in the transaction of the messages that it speaks of."""

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
    """Which number the next message of a topic-partition gets, where messages have numbers.

    It is written in the transaction of the messages before, and a seek does not forget it. ``topic_id`` is Kafka's own
    id of the topic: one that is made again begins with 0.
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
    """The manifest of a window that was published whole."""

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
class SoughtRecord(LogRecord, kind="seek"):
    """A seek, which takes a window's number. It is never forgotten."""

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
    """The pipeline's first checkpoint. It is written before that is stored, and never forgotten."""

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
    """A window of which publishing began and that is not sealed yet.

    ``rules`` are digests of the settings that it was begun with. ``marks`` are how far each topic-partition had been
    given before a failover. ``schema_ids`` are the ids by subject that its schema registry had given by then.
    """

    window: Window
    rules: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    schema_ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.window.number,)

    def to_json(self) -> Any:
        values = {**self.window.to_json(), "rules": dict(self.rules), "marks": [asdict(mark) for mark in self.marks]}
        return values | ({"schema_ids": dict(self.schema_ids)} if self.schema_ids else {})

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        marks = tuple(Mark(**mark) for mark in value["marks"])
        return cls(Window.from_json(value), value["rules"], marks, value.get("schema_ids", {}))


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
"""More than any window is published with: a record that says more is somebody else's."""


@dataclass(frozen=True)
class AttemptRecord(LogRecord, kind="attempt"):
    """The one attempt that may publish; see `fencing`.

    ``tasks`` is the most that this and earlier attempts published with: so many transactional ids were used.
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
class RenamedRecord(LogRecord, kind="renamed"):
    """That the pipeline has another name: ``to``. Nothing is published under the old one any more.

    It is written before anything of the pipeline moves, so a rename that was killed is known by it, too.
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
    """That a run is alive; see `lease`. ``first`` is the offset of its first claim, None in that one itself.

    ``who`` names the run's process and machine, for people. A ``brief`` run is soon done: others wait for it.
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
        return json.dumps([identity, cls.kind, *parts]).encode()  # with spaces, as its stored keys have


@dataclass(frozen=True)
class VerifyRecord(Note, kind="verify"):
    """The last comparison of the topics with the source, or with the follower of that connection id."""

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
class ReliedRecord(LogRecord, kind="relied"):
    """Up to where a snapshot relies on the pipeline's windows: it left out rows whose keys change before ``until``, as
    the windows publish them.

    So no window that begins before ``until``, coordinates of server ``source``, is published by other ``rules``
    (`settings.message_rules`) or without one of ``tables``, and none on another server that lacks the transactions
    ``gtids``. ``snapshot`` is the snapshot's identity.
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
    """A record of the log's topic with its key read: whose record, of which kind, which of that kind, and its value."""

    identity: str
    kind: str
    parts: tuple[Any, ...]
    record: KafkaRecord

    @classmethod
    def of(cls, record: KafkaRecord) -> LogEntry | None:
        """None for a key of another form than changefeed's: compaction keeps keys apart, so it replaced no record."""
        try:
            identity, kind, *parts = orjson.loads(record.key or b"")
        except (ValueError, TypeError):
            return None
        return (
            cls(identity, kind, tuple(parts), record) if isinstance(identity, str) and isinstance(kind, str) else None
        )

    @property
    def number(self) -> int:
        """What the key ends in, where it is the number of a window; raises CheckpointError for another key."""
        try:
            return int(self.parts[0])
        except (ValueError, TypeError, IndexError) as error:
            raise _not_ours(self.record, error) from error

    @property
    def topic_partition(self) -> TopicPartition:
        """What the key ends in, where it is a topic and a partition; raises CheckpointError for another key."""
        try:
            return str(self.parts[0]), int(self.parts[1])
        except (ValueError, TypeError, IndexError) as error:
            raise _not_ours(self.record, error) from error

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing is lost where the record is left out: no progress, seal or window depends on its kind, or it
        is of none of the pipeline's identities."""
        kind, pipeline = KINDS.get(self.kind), pipeline_of_commit_log(self.record.topic)
        is_of_pipeline = pipeline is None or self.identity == pipeline or self.identity.startswith(f"{pipeline}.")
        return not is_of_pipeline or (kind is not None and issubclass(kind, Note | ClaimRecord))

    @property
    def is_tombstone(self) -> bool:
        """Whether it says that an earlier record with its key is forgotten."""
        return self.record.value is None

    def plain(self) -> Any:
        """The value as JSON has it, whatever its kind; None for a tombstone. Raises ValueError, zlib.error."""
        return None if self.record.value is None else orjson.loads(_plain(self.record.value))

    def read(self) -> LogRecord | None:
        """The record as its kind; None for a tombstone, and for a kind that this version does not know.

        Raises CheckpointError for a value that is not of that kind.
        """
        kind = KINDS.get(self.kind)
        if kind is None or self.record.value is None:
            return None
        try:
            return kind.from_json(self.parts, self.plain())
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, zlib.error) as error:
            raise _not_ours(self.record, error) from error

    def read_note(self) -> LogRecord | None:
        """As `read`, and None for a value that is not of that kind: for kinds of which nothing depends."""
        try:
            return self.read()
        except CheckpointError:
            return None


def latest_records(records: Iterable[KafkaRecord]) -> list[KafkaRecord]:
    """The last of ``records`` with each key, in the order of the log; of what is forgotten that it is."""
    latest: dict[bytes | None, KafkaRecord] = {}
    for record in records:
        latest.pop(record.key, None)
        latest[record.key] = record
    return list(latest.values())


def latest_entries(
    records: Iterable[KafkaRecord], keys: LogKeys = NO_KEYS, foreign: list[Foreign] | None = None
) -> list[LogEntry]:
    """The last of ``records`` with each key, without what is forgotten, in the order of the log.

    With ``keys`` of the pipeline those that it did not sign are left out where nothing depends on them, and added to
    ``foreign``, as are records with keys of another form. Raises CheckpointError for one in the place of a record that
    says what is published.
    """
    entries, others = [], []
    for record in latest_records(records):
        entry = LogEntry.of(record)
        if entry is None:
            others.append(Foreign(record, "its key is none of changefeed's"))
        elif fault := keys.fault(record):
            if not entry.is_forgettable:
                raise _forged(record, fault)
            others.append(Foreign(record, fault))
        elif not entry.is_tombstone:
            entries.append(entry)
    if foreign is not None:
        foreign += others
    return entries


@dataclass(frozen=True)
class Foreign:
    """A record of the log's topic that is not the pipeline's, and is left out; ``fault`` says how that is known."""

    record: KafkaRecord
    fault: str

    def __str__(self) -> str:
        return f"{(self.record.key or b'')[:100]!r} at offset {self.record.offset} ({self.fault})"


def _forged(record: KafkaRecord, fault: str) -> CheckpointError:
    pipeline = pipeline_of_commit_log(record.topic)
    return CheckpointError(
        f"record {record.key!r} of commit log {record.topic!r}, at offset {record.offset}, was not written by pipeline "
        f"{pipeline!r}: {fault}. What was in its place is not known, so nothing is published. If commit_log.key is "
        f"new, or was changed, `changefeed sign {pipeline}` signs what is there, once. Otherwise somebody else may "
        "write to the topic: look at its ACLs, and restore it from a copy, or seek to the checkpoint."
    )


def _not_ours(record: KafkaRecord, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"record {record.key!r} of commit log {record.topic!r}, at offset {record.offset}, cannot be read ({error!r}): "
        "only changefeed may write to that topic. Its progress is unknown, so nothing is published."
    )


def stored_value(value: Any) -> bytes:
    """A value, of types that JSON has, as the log keeps it."""
    text = orjson.dumps(value)
    if len(text) > MOST_OF_A_LOG:
        raise CheckpointError(
            f"a record of the commit log would have {len(text):,} bytes, wanted at most {MOST_OF_A_LOG:,}: nothing is "
            "written. Take fewer tables into one pipeline"
        )
    return text if len(text) <= PLAIN_BYTES else zlib.compress(text)


def _plain(value: bytes) -> bytes:
    """The JSON of a value. A frame of zlib's begins with an x, and no JSON does."""
    return inflated(value, MOST_OF_A_LOG) if value.startswith(b"x") else value
