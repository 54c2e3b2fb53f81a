"""The two Arrow tables between the stages of ingest: slices in, what decoding and publishing make of them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Final

import lz4.block
import orjson
import pyarrow as pa

from changefeed.block import Block
from changefeed.errors import ChangefeedError
from changefeed.reader import SliceReport, Statement
from changefeed.transaction_event import TransactionEvent
from changefeed.window import Slice

SLICE_SCHEMA = "number long, file string, start long, end long, gtid string"

DECODED_SCHEMA = (
    "kind string, topic string, partition int, origin string, slice long, block long, before long, payload binary, "
    "text string"
)
"""One row a block (kind `block`; ``before`` is how many messages of its slice and topic-partition stand before it), and
of each slice a row with its report and one with the messages and bytes of its topic-partitions (kinds `report`,
`sizes`), or its error (`error`)."""

PUBLISHED_SCHEMA = "kind string, text string"
"""One row a receipt, report, sizes or error (kinds `receipt`, `report`, `sizes`, `error`), as JSON."""

_SLICES = pa.schema(
    [("number", pa.int64()), ("file", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("gtid", pa.string())]
)
_DECODED = pa.schema(
    [
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("origin", pa.string()),
        ("slice", pa.int64()),
        ("block", pa.int64()),
        ("before", pa.int64()),
        ("payload", pa.binary()),
        ("text", pa.string()),
    ]
)
DecodedRow = tuple[
    str, str | None, int | None, str | None, int | None, int | None, int | None, bytes | None, str | None
]
"""A row of DECODED_SCHEMA."""

_PAYLOAD: Final = 7
"""Its index in a row."""
_BATCH_ROWS = 16
_BATCH_BYTES = 2 << 20
_ACCELERATION = 4
"""Of lz4: a third faster than its default, and 5 % larger."""

_PUBLISHED = pa.schema([("kind", pa.string()), ("text", pa.string())])


def slice_batch(slices: Iterable[Slice]) -> pa.RecordBatch:
    """A batch of SLICE_SCHEMA, for `slices_of`."""
    return pa.RecordBatch.from_pylist([asdict(piece) for piece in slices], schema=_SLICES)


def slices_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Slice]:
    """The slices that batches of SLICE_SCHEMA hold."""
    for batch in batches:
        for row in batch.to_pylist():
            yield Slice(row["number"], row["file"], row["start"], row["end"], row["gtid"])


def block_row(block: Block, before: int) -> DecodedRow:
    """A block. Its payload is compressed: Spark copies it several times on its way to publishing."""
    payload = lz4.block.compress(block.payload, mode="fast", acceleration=_ACCELERATION)
    return "block", block.topic, block.partition, block.origin, block.slice, block.number, before, payload, None


def text_row(kind: str, text: str, slice_number: int) -> DecodedRow:
    """A report, sizes or an error beside the blocks."""
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


def blocks_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Block, int]]:
    """The blocks of rows that `block_row` made, in their order, each with the number of messages before it."""
    for batch in batches:
        for row in batch.to_pylist():
            payload = lz4.block.decompress(row["payload"])
            block = Block(row["topic"], row["partition"], row["origin"], row["slice"], row["block"], payload)
            yield block, row["before"]


def report_text(report: SliceReport) -> str:
    """A slice's report as JSON, for `report_from`."""
    return orjson.dumps(asdict(report)).decode()


def report_from(text: str) -> SliceReport:
    """Read what `report_text` made."""
    values = orjson.loads(text)
    values["statements"] = tuple(Statement(**item) for item in values["statements"])
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
