"""The two Arrow tables of ingest's stages: what decoding makes of slices, and what publishing makes of that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final, cast

import orjson
import pyarrow as pa

from changefeed.batches.batch import Batch
from changefeed.errors import ChangefeedError
from changefeed.reader import SliceReport, Statement
from changefeed.spark.payload_files import PayloadFile, payload_at
from changefeed.transaction_event import TransactionEvent

DECODED_SCHEMA = (
    "kind string, topic string, partition int, origin string, slice long, number long, before long, payload binary, "
    "text string"
)
"""One row a finished batch (kind `batch`; ``before`` is how many messages of its slice and topic-partition stand before
it; ``text``, where it has no ``payload``, in which file that is), and of each slice a row with its report and one with
the messages and bytes of its topic-partitions (kinds `report`, `sizes`), or its error (`error`)."""

PUBLISHED_SCHEMA = "kind string, text string"
"""One row a receipt, report, sizes or error (kinds `receipt`, `report`, `sizes`, `error`), as JSON."""

_DECODED = pa.schema(
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
DecodedRow = tuple[
    str, str | None, int | None, str | None, int | None, int | None, int | None, bytes | None, str | None
]
"""A row of DECODED_SCHEMA."""

BATCH: Final = "batch"
"""The kind of a row that is a finished batch."""

_PAYLOAD: Final = 7
"""Its index in a row."""
_BATCH_ROWS = 16
_BATCH_BYTES = 2 << 20

_PUBLISHED = pa.schema([("kind", pa.string()), ("text", pa.string())])


def batch_row(batch: Batch, before: int, file: PayloadFile | None = None) -> DecodedRow:
    """A finished batch, before which its slice has ``before`` messages for its topic-partition.

    Its payload is written to ``file``, where there is one.
    """
    where = (batch.topic, batch.partition, batch.origin, batch.slice, batch.number)
    payload = batch.payload()
    return BATCH, *where, before, *((payload, None) if file is None else (None, file.write(payload)))


def order_of(row: DecodedRow) -> tuple[str, int, int, int]:
    """Topic, partition, slice and number of a finished batch: batches are published in their order."""
    return cast("tuple[str, int, int, int]", (row[1], row[2], row[4], row[5]))


def text_row(kind: str, text: str, slice_number: int) -> DecodedRow:
    """A report, sizes or an error beside the batches."""
    return kind, None, None, None, slice_number, None, None, None, text


def decoded_batches(rows: Iterable[DecodedRow]) -> Iterator[pa.RecordBatch]:
    """Arrow batches of a few ``rows`` each: a batch of its own costs Spark as much as a megabyte of payload."""
    batch: list[DecodedRow] = []
    size_bytes = 0
    for row in rows:
        batch.append(row)
        size_bytes += len(row[_PAYLOAD] or b"")
        if len(batch) == _BATCH_ROWS or size_bytes >= _BATCH_BYTES:
            yield _decoded_batch(batch)
            batch, size_bytes = [], 0
    if batch:
        yield _decoded_batch(batch)


def _decoded_batch(rows: Sequence[DecodedRow]) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), _DECODED, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(values, type=of.type) for values, of in columns], schema=_DECODED)


def published_batch(kind: str, text: str) -> pa.RecordBatch:
    """A batch with one row of PUBLISHED_SCHEMA."""
    return pa.RecordBatch.from_arrays([pa.array([kind]), pa.array([text])], schema=_PUBLISHED)


def finished_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Batch, int]]:
    """What `batch_row` made rows of, in order: each batch, and the number of messages before it."""
    for rows in batches:
        for row in rows.to_pylist():
            yield finished_batch([row.get(name) for name in _DECODED.names])


def finished_batch(row: Sequence[Any]) -> tuple[Batch, int]:
    """What `batch_row` made ``row`` of: the batch, and the number of messages before it."""
    _, topic, partition, origin, slice_number, number, before, payload, where = row
    if payload is None:
        payload = payload_at(where)
    return Batch.of(topic, partition, origin, slice_number, number, payload), before


def report_text(report: SliceReport) -> str:
    """A slice's report as JSON, for `report_from`."""
    return orjson.dumps(asdict(report)).decode()


def report_from(text: str) -> SliceReport:
    """Read what `report_text` made."""
    values = orjson.loads(text)
    values["statements"] = tuple(Statement(**item) for item in values["statements"])
    values |= {name: tuple(values[name]) for name in ("prepared", "ended")}
    values["transaction_events"] = tuple(map(TransactionEvent.from_json, values["transaction_events"]))
    return SliceReport(**values)


def error_text(error: ChangefeedError) -> str:
    """An error as a value: exceptions cross from a Spark worker as text, and their class would be lost."""
    return orjson.dumps({"class": type(error).__name__, "message": str(error)}).decode()


def error_from(text: str) -> ChangefeedError:
    """The error that `error_text` made a value of; its class where this version knows it."""
    values = orjson.loads(text)
    known = {cls.__name__: cls for cls in _tree(ChangefeedError)}
    return known.get(values["class"], ChangefeedError)(values["message"])


def _tree(cls: type[ChangefeedError]) -> Iterator[type[ChangefeedError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)
