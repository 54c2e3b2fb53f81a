"""The format in which the kernel passes rows to functions, and its reader.

A row has its before and after image as JSON objects, and facts of its event (coordinates, times, GTID). The reader
makes it an object for a row function, or a row of an Arrow batch for a batch function.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed.binlog.kernel import plain_rows
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import UnfinishedTable
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import JSON, Notation
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.table_schema import TableSchema
from changefeed.native.memory import Bytes, Ends, Words
from changefeed.transforms.arrow_changes import (
    MEMBERS,
    NUMBER,
    ArrowChanges,
    Fail,
    ObjectChanges,
    image_of,
    in_arrow,
    values_array,
)
from changefeed.transforms.change import Change, Coordinates

SEPARATOR = b"\x1e"
"""ASCII's record separator; JSON text never contains it unescaped."""

_FIELDS = (
    *(Slot.FILE, Slot.POSITION, Slot.ROW, Slot.SERVER_ID, Slot.TS_SECONDS, Slot.TS_MICROS),
    *(Slot.THREAD, Slot.STATEMENT_ROW),
)
_EVENT_FIELDS = (Slot.EVENT_TYPE, Slot.EVENT_SIZE, Slot.EVENT_END, Slot.EVENT_FLAGS, Slot.XID)
"""Slots with facts of the event; few formats use them."""
_OF_EVENT = frozenset({*_EVENT_FIELDS, Slot.XID_TEXT})
"""The slots of formats that are filled from `_EVENT_FIELDS`."""
_IMAGES = (Slot.BEFORE, Slot.AFTER)
KNOWN = frozenset(
    {
        *(*_FIELDS, *_OF_EVENT, *_IMAGES),
        *(Slot.KEY, Slot.KEY_BEFORE, Slot.KEY_AFTER, Slot.CHANGED, Slot.SEPARATOR),  # from the images
        Slot.SEQUENCE,  # from the coordinates
        Slot.EVENT_FIRST_ROW,  # each row counts as the first of its event
        *(Slot.TS_MILLIS, Slot.TS_NANOS, Slot.TIME),  # from the microseconds and seconds
        *(Slot.GTID, Slot.GTID_TEXT, Slot.EVENT_ID),  # from the message
        *(Slot.QUERY, Slot.SNAPSHOT),  # empty for all rows
        *(Slot.COMMIT_INFO, Slot.COMMIT_INFO_OFFSET, Slot.PARTITION_INFO),  # not filled
    }
)
"""The slots that rows of functions can fill. The statement's text is missing because it may have values that functions
hide."""


@dataclass(frozen=True)
class PlainFormat:
    """The kernel's format for rows whose functions' results become messages in ``format``.

    Values have the style of ``format``, so unchanged values are the same in its messages.
    """

    format: RowFormat
    notation: Notation = JSON

    @property
    def style(self) -> Style:
        """The style of ``format``."""
        return self.format.style

    @property
    def needs_definitions(self) -> bool:
        """Whether ``format`` needs table definitions."""
        return self.format.needs_definitions

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """None, because the key is made from the functions' results."""
        return None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One message for each change; an update that changes the key is one update."""
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        """The fields that `read` parses."""
        parts: list[bytes | Slot] = [op.encode()]
        fields = (*_FIELDS, *_EVENT_FIELDS) if self.has_event(table) else _FIELDS
        for slot in (*fields, *_IMAGES):
            parts += (SEPARATOR, slot)
        return tuple(parts)

    def has_event(self, table: TableSchema) -> bool:
        """Whether messages of ``table`` have facts of the event's header or of an XA transaction.

        Raises ValueError for a format with a slot that rows of functions cannot fill.
        """
        slots = {slot for slot in self._slots(table) if isinstance(slot, Slot)}
        if unknown := slots - KNOWN:
            raise ValueError(f"rows of functions have no {', '.join(sorted(unknown))}, which their format wants")
        return not slots.isdisjoint(_OF_EVENT)

    def _slots(self, table: TableSchema) -> Iterator[bytes | Slot]:
        yield from self.format.key(table) or ()
        for made in self.format.messages(table).values():
            for message in made:
                yield from self.format.value(table, message.op) if message.op else ()
                for _, template in message.headers:
                    yield from template


_OPS = ("c", "u", "d", "r")  # not an Arrow array, because pyarrow loads pandas for it
_CODES = np.array([ord(op) for op in _OPS])
_NO_BEFORE, _NO_AFTER = ("c", "r"), ("d",)
_NUMBERS = plain_rows.INTEGER | plain_rows.NUMBER
_TEXTS = plain_rows.TEXT | plain_rows.ESCAPED


class PlainTable:
    """Reads the rows of one table; ``topic`` is the topic that functions see."""

    def __init__(self, unfinished: UnfinishedTable, topic: str, has_event: bool) -> None:
        schema = unfinished.schema
        self.schema, self.topic, self._has_event = schema, topic, has_event
        self.key = tuple(schema.columns[number].name for number in schema.primary_key)
        self.columns = [column.name for column in schema.columns]
        names = [JSON.column(column).value for column in schema.columns]
        self._names = np.frombuffer(b"".join(names), np.uint8).copy()
        self._name_ends: Ends = np.cumsum([len(name) for name in names]).astype(np.uint32)

    def read(self, output: Output) -> PlainRows:
        """The rows in the messages of ``output``, which are all from one binlog file."""
        count, columns = len(output.positions), len(self.columns)
        first = next(output.messages(0, 1))
        _, file, _ = (first.value or b"").split(SEPARATOR, 2)
        facts = np.zeros(count * plain_rows.FACTS, np.int64)
        cells = np.zeros(4 * columns * count, np.int64)
        names = (self._names, self._name_ends, np.frombuffer(file, np.uint8).copy())
        if plain_rows.scan(output.data, output.ends, int(self._has_event), *names, facts, cells):
            raise AssertionError(f"the kernel wrote rows of {self.schema.database}.{self.schema.table} in another way")
        by_row = facts.reshape(count, plain_rows.FACTS)
        starts, sizes = cells.reshape(2, 2, columns, count)
        server_uuid = first.event_id.partition(b"/")[0].decode()
        return PlainRows(self, output, by_row, starts, sizes, file.decode(), server_uuid)


@dataclass(frozen=True)
class PlainRows:
    """Rows of one table.

    - ``facts`` has `plain_rows.FACTS` words for each row; texts of facts are in ``output``.
    - ``starts`` and ``sizes`` are the addresses and sizes of the values in ``output``, by image, column and row.
    """

    table: PlainTable
    output: Output
    facts: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    file: str
    server_uuid: str

    def objects(self, numbers: Sequence[int] | None = None) -> ObjectChanges:
        """The rows ``numbers``, by default all, as the changes that row functions get."""
        chosen = np.arange(len(self.facts)) if numbers is None else np.array(numbers, np.int64)
        data, table = self.output.data.tobytes(), self.table
        ends = self.output.ends.reshape(-1, 4)
        fact_columns = [plain_rows.SECONDS, plain_rows.POSITION, plain_rows.ROW, plain_rows.GTID, plain_rows.GTID_SIZE]
        changes: list[Change] = []
        for (begin, end), (seconds, position, row, gtid, gtid_size) in zip(
            ends[chosen, :2].tolist(), self.facts[chosen][:, fact_columns].tolist(), strict=True
        ):
            head, before, after = data[begin:end].rsplit(SEPARATOR, 2)
            op: Any = chr(head[0])
            changes.append(
                Change(
                    op,
                    table.schema.database,
                    table.schema.table,
                    None if op in _NO_BEFORE else orjson.loads(before),
                    None if op in _NO_AFTER else orjson.loads(after),
                    table.key,
                    table.topic,
                    datetime.fromtimestamp(seconds, UTC),
                    data[gtid : gtid + gtid_size].decode() or None,
                    Coordinates(self.file, position, row),
                )
            )
        return ObjectChanges(chosen, changes)

    def batches(self, fail: Fail) -> Iterator[ArrowChanges]:
        """All rows as the batches that batch functions get: one for each series of images with the same columns.

        ``fail`` is called for rows without an Arrow type.
        """
        for first, last in self.alike():
            yield from in_arrow(np.arange(first, last), self.table.key, partial(self._batch, first), fail)

    @property
    def ops(self) -> Words:
        """The op of each row, in the kernel's coding."""
        found: Words = np.argmax(self.facts[:, plain_rows.OP, None] == _CODES, axis=1)
        return found

    def columns(self, image: int, rows: slice | Words) -> dict[str, pa.Array]:
        """The columns by name of ``rows``, which all have the same columns: of the before (0) or after (1)
        ``image``."""
        starts, sizes = self.starts[image][:, rows], self.sizes[image][:, rows]
        there = (starts != plain_rows.ABSENT).all(axis=1)
        return {
            name: column_of(self.output.data, np.ascontiguousarray(starts[number]), np.ascontiguousarray(sizes[number]))
            for number, name in enumerate(self.table.columns)
            if there[number]
        }

    def alike(self) -> Iterator[tuple[int, int]]:
        """Series of rows whose images have the same columns: the first row of each, and the row after its last one."""
        count = len(self.facts)
        absent = self.starts == plain_rows.ABSENT
        if not absent.any():
            yield 0, count
            return
        ops = self.ops
        there = (~np.isin(ops, (0, 3)), ops != 2)
        first = 0
        known: list[bytes | None] = [None, None]
        for row in range(count):
            own = [absent[image, :, row].tobytes() if there[image][row] else None for image in (0, 1)]
            if any(None not in pair and pair[0] != pair[1] for pair in zip(known, own, strict=True)):
                yield first, row
                first, known = row, [None, None]
            known = [before if before is not None else new for before, new in zip(known, own, strict=True)]
        yield first, count

    def _batch(self, begin: int, first: int, last: int) -> pa.RecordBatch:
        """The batch of rows from ``begin`` + ``first`` to before ``begin`` + ``last``, which have the same columns."""
        first, last = begin + first, begin + last
        count, facts, schema = last - first, self.facts[first:last], self.table.schema
        ops = self.ops[first:last]
        absent = np.isin(ops, (0, 3)), ops == 2
        columns = [{} if absent[image].all() else self.columns(image, slice(first, last)) for image in (0, 1)]
        names = next((list(each) for each in (columns[1], columns[0]) if each), [])
        for image in (0, 1):
            if absent[image].all():
                columns[image] = {name: pa.nulls(count, pa.string()) for name in names}
        return pa.RecordBatch.from_pydict(
            {
                NUMBER: pa.array(np.arange(count)),
                "op": pa.array(_OPS).take(pa.array(ops)),
                "database": pa.repeat(schema.database, count),
                "table": pa.repeat(schema.table, count),
                "topic": pa.repeat(self.table.topic, count),
                MEMBERS: pa.nulls(count, pa.string()),
                "timestamp": pa.array(facts[:, plain_rows.SECONDS]).cast(pa.timestamp("s", "UTC")),
                "gtid": _gtids(self.output.data, facts),
                "file": pa.repeat(self.file, count),
                "position": pa.array(facts[:, plain_rows.POSITION]),
                "row": pa.array(facts[:, plain_rows.ROW]),
                "before": image_of(columns[0], absent[0]),
                "after": image_of(columns[1], absent[1]),
            }
        )


class _EscapedBeyondAscii(Exception):
    """A text has an escape of a character beyond ASCII."""


def _gtids(data: Bytes, facts: NDArray[np.int64]) -> pa.Array:
    starts, sizes = facts[:, plain_rows.GTID].copy(), facts[:, plain_rows.GTID_SIZE].copy()
    starts[sizes == 0] = plain_rows.NULL
    return _texts(data, starts, sizes, 0)


def column_of(data: Bytes, starts: Words, sizes: Words) -> pa.Array:
    """The values at ``starts`` as an Arrow array, equal to the array that `values_array` makes of objects."""
    kinds = plain_rows.classes(data, starts, sizes)
    if kinds == 0:
        return pa.nulls(len(starts), pa.string())
    try:
        if kinds | _TEXTS == _TEXTS:
            return _texts(data, starts, sizes, 1)
        if kinds == plain_rows.INTEGER:
            return _integers(_texts(data, starts, sizes, 0))
        if kinds | _NUMBERS == _NUMBERS:
            return pc.cast(_texts(data, starts, sizes, 0), pa.float64())
        if kinds == plain_rows.FLAG:
            return pc.cast(_texts(data, starts, sizes, 0), pa.bool_())
    except (pa.ArrowInvalid, _EscapedBeyondAscii):
        pass  # such values, for example large numbers, are parsed as objects
    return values_array(
        [
            None if start < 0 else orjson.loads(data[start : start + size].tobytes())
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
    )


def _integers(texts: pa.Array) -> pa.Array:
    try:
        return pc.cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return pc.cast(texts, pa.uint64())


def _texts(data: Bytes, starts: Words, sizes: Words, around: int) -> pa.Array:
    valid = starts >= 0
    out = np.empty(int(sizes[valid].sum()), np.uint8)
    offsets = np.empty(len(starts) + 1, np.uint32)
    if plain_rows.texts(data, starts, sizes, around, out, offsets):
        raise _EscapedBeyondAscii
    there = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.string(), len(starts), [there, pa.py_buffer(offsets), pa.py_buffer(out)], len(starts) - int(valid.sum())
    )
