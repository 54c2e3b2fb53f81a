"""Messages of Spark's tasks to the driver and to each other: finished batches, slice reports, receipts and failures.

In RDDs these objects are pickled. In Spark's shuffle, and from a Connect server, they are rows of Arrow tables: the
payload of a batch as bytes, everything else as JSON, because a driver must not unpickle data from a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self

import orjson

from changefeed.errors import ChangefeedError
from changefeed.kafka.progress import TopicPartition
from changefeed.model.manifest import TopicPartitionReceipt
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import TransactionEvent
from changefeed.records.batch import Batch
from changefeed.spark.stages.payload_files import FilePart, PayloadFile

if TYPE_CHECKING:  # a local master needs no Arrow, and each of its drivers and workers would pay 0.1 CPU seconds
    import pyarrow as pa

_KINDS: dict[str, type[TaskMessage]] = {}


class TaskMessage:
    """Base of messages from a task to the driver; a subclass is a frozen dataclass of JSON values."""

    def __init_subclass__(cls) -> None:
        _KINDS[cls.__name__] = cls

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        """The message with the JSON ``values``."""
        return cls(**values)


@dataclass(frozen=True)
class Failure(TaskMessage):
    """A ChangefeedError of a task. Spark itself would pass an exception as text, without its class."""

    name: str
    message: str
    tables: tuple[str, ...] = ()
    """The tables to which alone the error belongs, as in `ChangefeedError.tables`."""
    function: str = ""

    @classmethod
    def of(cls, error: ChangefeedError) -> Self:
        """The message of ``error``."""
        return cls(type(error).__name__, str(error), error.tables, error.function)

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        return cls(values["name"], values["message"], tuple(values["tables"]), values["function"])

    @property
    def error(self) -> ChangefeedError:
        """The error, with its original class if this version has it, else ChangefeedError."""
        known = {each.__name__: each for each in _with_subclasses(ChangefeedError)}
        return known.get(self.name, ChangefeedError)(self.message).of_tables(*self.tables, function=self.function)


@dataclass(frozen=True)
class PartitionCount:
    """The number of messages of slice ``slice`` for a topic-partition, and the bytes of their batches."""

    slice: int
    topic: str
    partition: int
    messages: int
    size_bytes: int


@dataclass(frozen=True)
class DecodedSlice(TaskMessage):
    """The report of a completely decoded slice, and its counts."""

    report: SliceReport
    counts: tuple[PartitionCount, ...]

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        report = values["report"]
        report["statements"] = tuple(Statement(**item) for item in report["statements"])
        report |= {name: tuple(report[name]) for name in ("prepared", "ended", "unordered")}
        report["order"] = tuple(map(tuple, report["order"]))
        report["transaction_events"] = tuple(map(TransactionEvent.from_json, report["transaction_events"]))
        return cls(SliceReport(**report), counts_from_json(values["counts"]))


def counts_from_json(values: Iterable[Any]) -> tuple[PartitionCount, ...]:
    """The counts of a slice or chunk from JSON values."""
    return tuple(PartitionCount(**count) for count in values)


@dataclass(frozen=True)
class PublishedPartition(TaskMessage):
    """The receipt of a task for one topic-partition."""

    receipt: TopicPartitionReceipt

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        return cls(TopicPartitionReceipt(**values["receipt"]))


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A finished batch between decoding and publishing; ``payload`` is its bytes, or the part of a file that has them.

    ``before`` is the number of messages of its slice and topic-partition in earlier batches.
    """

    topic: str
    partition: int
    origin: str
    slice: int
    number: int
    before: int
    payload: bytes | FilePart

    @classmethod
    def of(cls, batch: Batch, before: int, file: PayloadFile | None = None) -> StoredBatch:
        """``batch``, with its payload written to ``file`` if that is not None."""
        payload = batch.payload()
        where = (batch.topic, batch.partition, batch.origin, batch.slice, batch.number)
        return cls(*where, before, payload if file is None else file.write(payload))

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic-partition to which it is published."""
        return self.topic, self.partition

    @property
    def order(self) -> tuple[str, int, int, int]:
        """The sort key by which batches of a window are published: topic, partition, slice and number."""
        return self.topic, self.partition, self.slice, self.number

    def read(self) -> bytes:
        """The payload. Raises OSError if its file is missing, too short or damaged."""
        return self.payload.read() if isinstance(self.payload, FilePart) else self.payload

    def batch(self) -> Batch:
        """The batch. Raises what `read` raises."""
        return Batch.of(self.topic, self.partition, self.origin, self.slice, self.number, self.read())


MESSAGE_SCHEMA = "kind string, text string"
"""A row for each message: the name of its class, and its fields as JSON."""

STORED_SCHEMA = (
    "kind string, topic string, partition int, origin string, slice long, number long, before long, payload binary, "
    "text string"
)
"""A row for each batch, with kind IS_BATCH and no text, or for each message, with only kind and text."""

IS_BATCH = StoredBatch.__name__
BATCH_COLUMNS = tuple(StoredBatch.__dataclass_fields__)
"""The columns of a batch in STORED_SCHEMA."""

_TOGETHER_ROWS = 16
_TOGETHER_BYTES = 2 << 20


def message_batches(messages: Iterable[TaskMessage]) -> Iterator[pa.RecordBatch]:
    """An Arrow batch of MESSAGE_SCHEMA for each of ``messages``."""
    import pyarrow as pa

    schema = pa.schema([("kind", pa.string()), ("text", pa.string())])
    for message in messages:
        kind, text = _kind_and_text(message)
        yield pa.RecordBatch.from_arrays([pa.array([kind]), pa.array([text])], schema=schema)


def messages_of(rows: Iterable[Any]) -> list[TaskMessage]:
    """The messages of collected rows of MESSAGE_SCHEMA."""
    return [_KINDS[row.kind].from_json(orjson.loads(row.text)) for row in rows]


def stored_batches(items: Iterable[StoredBatch | TaskMessage]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of STORED_SCHEMA with a few ``items`` each, because an Arrow batch costs Spark as much as a
    megabyte."""
    together: list[StoredBatch | TaskMessage] = []
    size_bytes = 0
    for item in items:
        together.append(item)
        size_bytes += len(item.payload) if isinstance(item, StoredBatch) and isinstance(item.payload, bytes) else 0
        if len(together) == _TOGETHER_ROWS or size_bytes >= _TOGETHER_BYTES:
            yield _stored_batch(together)
            together, size_bytes = [], 0
    if together:
        yield _stored_batch(together)


def batches_of(batches: Iterable[pa.RecordBatch]) -> Iterator[StoredBatch]:
    """The stored batches in Arrow batches with BATCH_COLUMNS."""
    for rows in batches:
        for row in rows.select(list(BATCH_COLUMNS)).to_pylist():
            yield StoredBatch(**row)


def _stored_batch(items: Sequence[StoredBatch | TaskMessage]) -> pa.RecordBatch:
    import pyarrow as pa

    schema = _stored_schema()
    columns = zip(zip(*map(_stored_row, items), strict=True), schema, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, type=of.type) for values, of in columns], schema=schema)


@cache
def _stored_schema() -> pa.Schema:
    """STORED_SCHEMA in Arrow."""
    import pyarrow as pa

    return pa.schema(
        [
            ("kind", pa.string()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("origin", pa.string()),
            ("slice", pa.int64()),
            ("number", pa.int64()),
            ("before", pa.int64()),
            ("payload", pa.binary()),
            ("text", pa.string()),
        ]
    )


def _stored_row(item: StoredBatch | TaskMessage) -> tuple[Any, ...]:
    if isinstance(item, StoredBatch):
        return IS_BATCH, *(getattr(item, name) for name in BATCH_COLUMNS), None
    kind, text = _kind_and_text(item)
    return kind, *(None for _ in BATCH_COLUMNS), text


def _kind_and_text(message: TaskMessage) -> tuple[str, str]:
    return type(message).__name__, orjson.dumps(message).decode()


def _with_subclasses(cls: type[ChangefeedError]) -> Iterator[type[ChangefeedError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _with_subclasses(child)
