"""Rows that the kernel left for functions as Arrow columns, without a Python object for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed.binlog.kernel import plain_rows
from changefeed.binlog.kernel.memory import Bytes, Ends, Words
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import UnfinishedTable
from changefeed.formats.notation import JSON
from changefeed.transforms.batches import NUMBER, values_array
from changefeed.transforms.plain_rows import SEPARATOR

_OPS = pa.array(["c", "u", "d", "r"])
_CODES = np.array([ord(op) for op in _OPS.to_pylist()])
_NUMBERS = plain_rows.INTEGER | plain_rows.NUMBER
_TEXTS = plain_rows.TEXT | plain_rows.ESCAPED


class NotByColumns(Exception):
    """These rows are no columns, or their messages cannot be written from columns: each has to become an object."""


@dataclass(frozen=True)
class PlainColumns:
    """Rows as a batch for functions, and what messages need of them besides.

    ``facts`` are `plain_rows.FACTS` words a row, whose texts stand in ``source``.
    """

    batch: pa.RecordBatch
    facts: NDArray[np.int64]
    source: Bytes
    server_uuid: str
    file: str


class PlainTable:
    """Reads the rows of one table; ``topic`` is what functions are told of where they go."""

    def __init__(self, unfinished: UnfinishedTable, topic: str, has_event: bool) -> None:
        schema = unfinished.schema
        self._schema, self._topic, self._has_event = schema, topic, has_event
        self._columns = [column.name for column in schema.columns]
        names = [JSON.column(column).value for column in schema.columns]
        self._names = np.frombuffer(b"".join(names), np.uint8).copy()
        self._name_ends: Ends = np.cumsum([len(name) for name in names]).astype(np.uint32)

    def read(self, output: Output) -> PlainColumns:
        """All messages of ``output``; raises NotByColumns for rows that lack columns."""
        count, columns = len(output.positions), len(self._columns)
        file, server_uuid = _origin(next(output.messages(0, 1)).value or b"", output)
        facts = np.zeros(count * plain_rows.FACTS, np.int64)
        cells = np.zeros(4 * columns * count, np.int64)
        names = (self._names, self._name_ends, np.frombuffer(file, np.uint8).copy())
        if plain_rows.scan(output.data, output.ends, int(self._has_event), *names, facts, cells):
            raise NotByColumns("rows lack columns")
        by_row = facts.reshape(count, plain_rows.FACTS)
        starts, sizes = cells.reshape(2, 2, columns, count)
        ops = np.argmax(by_row[:, plain_rows.OP, None] == _CODES, axis=1)
        images = [
            self._image(output.data, starts[image], sizes[image], absent)
            for image, absent in enumerate((np.isin(ops, (0, 3)), ops == 2))
        ]
        batch = pa.RecordBatch.from_pydict(
            {
                NUMBER: pa.array(np.arange(count)),
                "op": _OPS.take(pa.array(ops)),
                "database": pa.repeat(self._schema.database, count),
                "table": pa.repeat(self._schema.table, count),
                "topic": pa.repeat(self._topic, count),
                "timestamp": pa.array(by_row[:, plain_rows.SECONDS]).cast(pa.timestamp("s", "UTC")),
                "gtid": _gtids(output.data, by_row),
                "file": pa.repeat(file.decode(), count),
                "position": pa.array(by_row[:, plain_rows.POSITION]),
                "row": pa.array(by_row[:, plain_rows.ROW]),
                "before": images[0],
                "after": images[1],
            }
        )
        return PlainColumns(batch, by_row, output.data, server_uuid, file.decode())

    def _image(
        self, data: Bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64], absent: NDArray[np.bool_]
    ) -> pa.StructArray:
        values = [column_of(data, starts[column], sizes[column]) for column in range(len(self._columns))]
        return pa.StructArray.from_arrays(values, self._columns, mask=pa.array(absent))


def _origin(value: bytes, output: Output) -> tuple[bytes, str]:
    """The binlog file of a row, and the server's UUID."""
    _, file, _ = value.split(SEPARATOR, 2)
    return file, next(output.messages(0, 1)).event_id.partition(b"/")[0].decode()


def _gtids(data: Bytes, facts: NDArray[np.int64]) -> pa.Array:
    starts, sizes = facts[:, plain_rows.GTID].copy(), facts[:, plain_rows.GTID_SIZE].copy()
    starts[sizes == 0] = plain_rows.NULL
    return _texts(data, starts, sizes, 0)


def column_of(data: Bytes, starts: Words, sizes: Words) -> pa.Array:
    """The values at ``starts`` by what they are, as `values_array` makes them of objects."""
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
    except (pa.ArrowInvalid, NotByColumns):
        pass  # numbers of more digits, or escapes beyond ASCII
    return values_array(
        [
            None if start == plain_rows.NULL else orjson.loads(data[start : start + size].tobytes())
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
    )


def _integers(texts: pa.Array) -> pa.Array:
    try:
        return pc.cast(texts, pa.int64())
    except pa.ArrowInvalid:
        return pc.cast(texts, pa.uint64())


def _texts(data: Bytes, starts: Words, sizes: Words, around: int) -> pa.Array:
    valid = starts != plain_rows.NULL
    out = np.empty(int(sizes[valid].sum()), np.uint8)
    offsets = np.empty(len(starts) + 1, np.uint32)
    if plain_rows.texts(data, starts, sizes, around, out, offsets):
        raise NotByColumns("escapes beyond ASCII")
    there = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        pa.string(), len(starts), [there, pa.py_buffer(offsets), pa.py_buffer(out)], len(starts) - int(valid.sum())
    )
