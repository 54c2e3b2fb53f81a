"""Messages out of Arrow columns: what functions of batches returned, written by the kernel's row programs."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed import column_types
from changefeed.binlog.event_texts import EventTexts
from changefeed.binlog.kernel import layout, plain_rows
from changefeed.binlog.kernel.column_rows import HEADER, put_column_rows
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.binlog.output import Output
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.codecs import BoundColumn
from changefeed.binlog.programs.program import ProgramBuilder
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.block import Arrays
from changefeed.formats.connect_schema import BITS, Type
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import Binary
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import NO_SNAPSHOT, OPS
from changefeed.pipelines.column_rules import ColumnRules
from changefeed.table_schema import TableSchema
from changefeed.transforms.plain_columns import NotByColumns, PlainColumns
from changefeed.transforms.rendering import left_schema
from changefeed.transforms.sequences import make_room_for_parts

_AS_GIVEN = Style({Kind.BIT: Encoding.CONNECT})
"""How the values below are written: as JSON writes them."""
_MARGIN = np.zeros(64, np.uint8)
"""Behind the values, as kernels read words."""


class _Value(StrEnum):
    """What a column's values are."""

    TEXT = "text"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    DOUBLE = "double"
    SINGLE = "single"
    FLAG = "flag"
    BYTES = "bytes"
    """In base64."""

    def bound(self, name: str) -> BoundColumn:
        """A column of a binlog whose values are such."""
        wire, meta = _WIRE[self]
        charset = "binary" if self is _Value.BYTES else "utf8mb4"
        return BoundColumn(name, wire, meta, self is _Value.UNSIGNED, charset, None, "")


_WIRE: Mapping[_Value, tuple[int, int]] = {
    _Value.TEXT: (column_types.BLOB.number, 4),
    _Value.SIGNED: (column_types.LONGLONG.number, 0),
    _Value.UNSIGNED: (column_types.LONGLONG.number, 0),
    _Value.DOUBLE: (column_types.DOUBLE.number, 0),
    _Value.SINGLE: (column_types.FLOAT.number, 0),
    _Value.FLAG: (column_types.BIT.number, 1),
    _Value.BYTES: (column_types.BLOB.number, 4),
}
"""The type of a column in a binlog, and its metadata."""
_DATA_TYPES: Mapping[_Value, str] = {
    _Value.TEXT: "longtext",
    _Value.SIGNED: "bigint",
    _Value.UNSIGNED: "bigint",
    _Value.DOUBLE: "double",
    _Value.FLAG: "bit",
}
"""The type of a column that a function made."""
_IN_BINARY: Mapping[Type, Mapping[_Value, _Value]] = {
    Type.STRING: {_Value.TEXT: _Value.TEXT},
    Type.BYTES: {_Value.TEXT: _Value.BYTES},
    Type.INT16: {_Value.SIGNED: _Value.SIGNED, _Value.UNSIGNED: _Value.UNSIGNED},
    Type.INT32: {_Value.SIGNED: _Value.SIGNED, _Value.UNSIGNED: _Value.UNSIGNED},
    Type.INT64: {_Value.SIGNED: _Value.SIGNED, _Value.UNSIGNED: _Value.UNSIGNED},
    Type.FLOAT32: {_Value.DOUBLE: _Value.SINGLE},
    Type.FLOAT64: {_Value.DOUBLE: _Value.DOUBLE},
    Type.BOOLEAN: {_Value.FLAG: _Value.FLAG},
}
"""What a binary notation makes of such values, by the type that it writes them as."""


@dataclass(frozen=True)
class Results:
    """What functions made of rows: one row each of some of those, whose numbers are ``numbers``, in their order.

    ``ops`` are the ops as the kernel numbers them.
    """

    numbers: Words
    ops: Words
    before: pa.StructArray
    after: pa.StructArray
    topics: pa.Array


class ColumnMessages:
    """Writes the messages of one table; the columns are those that functions left."""

    def __init__(self, unfinished: UnfinishedTable, format: RowFormat, rules: ColumnRules, suffix: str) -> None:
        self._unfinished, self._rules, self._suffix = unfinished, rules, suffix
        self._format = format
        self._binary = format.notation.binary
        self._memory = ProgramMemory()
        self._state = np.zeros(layout.STATE_WORDS, np.int64)
        self._texts = EventTexts(self._state, [format.notation])
        self._scratch = np.zeros(layout.SCRATCH_WORDS, np.int64)
        self._output = Output()
        self._tables: dict[object, int] = {}

    def written(
        self, results: Results, given: PlainColumns, partitions: Callable[[str], int], topics: Topics
    ) -> Iterator[tuple[Arrays, Words]]:
        """The messages of ``results``, and the groups that they go to.

        Raises NotByColumns for values that only Python writes, ValueError for a topic that none may be sent to,
        SettingsError for a mask that does not fit.
        """
        rows = len(results.numbers)
        if rows == 0:
            return
        images = _Images(results)
        schema = self._schema(images)
        kinds = [self._kind(schema, number, images.kind(column.name)) for number, column in enumerate(schema.columns)]
        cells, data = images.laid_out([column.name for column in schema.columns], kinds)
        facts = given.facts[results.numbers].copy()
        if self._binary is not None and facts[:, plain_rows.XID_SIZE].any():
            raise NotByColumns("an xid is written in binary")
        names = results.topics.dictionary_encode()
        headers = [self._table(schema, kinds, name, partitions, topics) for name in names.dictionary.to_pylist()]
        facts[:, plain_rows.TABLE] = np.array(headers)[names.indices.to_numpy()]
        self._texts.set_origin(given.server_uuid, given.file, given.file)
        yield from self._run(data, given.source, facts.reshape(-1), results.ops, cells)

    def _schema(self, images: _Images) -> TableSchema:
        """The table as functions left it: the same for all rows, or NotByColumns."""
        schema = self._unfinished.schema
        key = [schema.columns[number].name for number in schema.primary_key]
        schemas = {
            left_schema(schema, names, key, lambda name: _DATA_TYPES[images.kind(name) or _Value.TEXT])
            for names in images.names_by_op()
        }
        if len(schemas) > 1:
            raise NotByColumns("rows have different columns")
        return schemas.pop()

    def _kind(self, schema: TableSchema, number: int, kind: _Value | None) -> _Value:
        if self._binary is None or number in self._rules.of(schema):
            return kind or _Value.TEXT
        return _in_binary(self._binary, schema, number, kind)

    def _table(
        self,
        schema: TableSchema,
        kinds: Sequence[_Value],
        name: str,
        partitions: Callable[[str], int],
        topics: Topics,
    ) -> int:
        topic = name + self._suffix
        count = partitions(topic)
        group = topics.group_of(topic, count)
        key = (schema, tuple(kinds), topic, count, group)
        known = self._tables.get(key)
        if known is None:
            columns = tuple(kind.bound(column.name) for kind, column in zip(kinds, schema.columns, strict=True))
            route = replace(
                self._unfinished.route, topic=topic, partitions=count, rows=None, skipped=frozenset(), table_field=None
            )
            builder = ProgramBuilder(self._memory, self._format, self._rules, NO_SNAPSHOT, _AS_GIVEN)
            known = self._tables[key] = builder.table(BoundTable(schema, columns), route, group, 0, rewrite=False)
        return known

    def _run(
        self, data: Bytes, source: Bytes, facts: Words, ops: Words, cells: Words
    ) -> Iterator[tuple[Arrays, Words]]:
        state = self._state
        state[[layout.AT, layout.OUT, layout.MESSAGES, layout.ROW_AT]] = 0
        state[layout.INNER] = 1  # where an event ends is a word of the state
        while True:
            code = put_column_rows(self._workspace(data), source, facts, ops, cells)
            count = int(state[layout.MESSAGES])
            if code < 0:
                raise NotByColumns(f"the kernel refused a row: {code}")
            if count:
                made = self._output.selected(np.arange(count))
                make_room_for_parts(made.sequences)
                yield made.piece(0, count), made.groups
                state[[layout.OUT, layout.MESSAGES]] = 0
            elif code == layout.ROOM:
                self._output.grow()
            if code == 0:
                return

    def _workspace(self, data: Bytes) -> Workspace:
        output, nothing = self._output, self._scratch[:0]
        return Workspace(
            data=data,
            state=self._state,
            words=self._memory.words,
            literals=self._memory.bytes,
            tables=nothing,
            texts=self._texts.bytes,
            query=self._texts.query,
            scratch=self._scratch,
            bytes_scratch=np.zeros(2048, np.uint8),
            counts=nothing,
            orders=nothing,
            runs=nothing,
            out=output.data,
            positions=output.positions,
            sequences=output.sequences,
            groups=output.groups,
            ends=output.ends,
            seconds=output.seconds,
            commit_infos=nothing,  # the end of their transaction is not known here
            nulls=output.nulls,
        )


class _Images:
    """The before and after images of rows, column by column."""

    def __init__(self, results: Results) -> None:
        self._ops = results.ops
        self._columns: list[dict[str, pa.Array]] = []
        for image in (results.before, results.after):
            there = image.null_count < len(image)
            names = [field.name for field in image.type]
            self._columns.append(dict(zip(names, image.flatten(), strict=True)) if there else {})
        self._kinds: dict[str, _Value | None] = {}
        for name, values in (pair for columns in self._columns for pair in columns.items()):
            kind, known = _kind_of(values), self._kinds.get(name)
            if known is not None and kind is not None and known is not kind:
                raise NotByColumns(f"column {name!r} has values of two types")
            self._kinds[name] = known or kind

    def kind(self, name: str) -> _Value | None:
        """What the values of a column are; None where all are null."""
        return self._kinds.get(name)

    def names_by_op(self) -> Iterator[tuple[str, ...]]:
        """The columns that rows of each op have, in the order in which messages have them."""
        before, after = self._columns
        for op in np.unique(self._ops).tolist():
            images = {"d": (before,), "u": (after, before)}.get(OPS[op], (after,))
            yield tuple(dict.fromkeys(name for image in images for name in image))

    def laid_out(self, names: Sequence[str], kinds: Sequence[_Value]) -> tuple[Words, Bytes]:
        """The cells of ``names``, as `put_column_rows` wants them, and the bytes that they are in."""
        rows = len(self._ops)
        cells = np.full((2, 2, len(names), rows), layout.ABSENT, np.int64)
        parts: list[NDArray[np.uint8]] = [np.zeros(HEADER, np.uint8)]
        at = HEADER
        for image, columns in enumerate(self._columns):
            for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
                values = columns.get(name)
                if values is None:
                    continue
                data, starts, sizes = _laid_out(values, kind)
                is_there = values.is_valid().to_numpy(zero_copy_only=False)
                cells[0, image, number] = np.where(is_there, starts + at, layout.NULL)
                cells[1, image, number] = sizes
                parts.append(data)
                at += len(data)
        return cells.reshape(-1), np.concatenate([*parts, _MARGIN])


def _kind_of(values: pa.Array) -> _Value | None:
    type = values.type
    if values.null_count == len(values):
        return None
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return _Value.TEXT
    if pa.types.is_uint64(type):
        return _Value.UNSIGNED
    if pa.types.is_integer(type):
        return _Value.SIGNED
    if pa.types.is_boolean(type):
        return _Value.FLAG
    if pa.types.is_float64(type) and pc.all(pc.is_finite(values)).as_py():
        return _Value.DOUBLE
    raise NotByColumns(f"values are of type {type}")


def _laid_out(values: pa.Array, kind: _Value) -> tuple[NDArray[np.uint8], Words, Words]:
    """The bytes of values, where each begins in them, and how long it is."""
    rows = len(values)
    if values.null_count == rows:
        return _MARGIN[:0], np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    if kind in (_Value.TEXT, _Value.BYTES):
        return bytes_of(values, is_base64=kind is _Value.BYTES)
    numbers = pc.fill_null(pc.cast(values, _NUMBERS[kind]), 0).to_numpy()
    if kind is _Value.SINGLE and not np.isfinite(numbers).all():
        raise NotByColumns("a double is no single")
    width = numbers.itemsize
    return numbers.view(np.uint8), np.arange(rows) * width, np.full(rows, width)


def bytes_of(values: pa.Array, *, is_base64: bool) -> tuple[NDArray[np.uint8], Words, Words]:
    """The bytes of texts or integers as text, where each begins in them, and how long it is; of texts that are base64
    what they stand for. Raises NotByColumns for other values."""
    if is_base64:
        texts = pa.array([text and b64decode(text, validate=True) for text in values.to_pylist()], pa.large_binary())
    elif _kind_of(values) in (None, _Value.TEXT, _Value.SIGNED, _Value.UNSIGNED):
        texts = pc.cast(values, pa.large_string())
    else:
        raise NotByColumns(f"values are of type {values.type}")
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    begin, end = int(offsets[0]), int(offsets[-1])
    found = np.frombuffer(data, np.uint8)[begin:end] if data is not None else _MARGIN[:0]
    return found, offsets[:-1] - begin, np.diff(offsets)


_NUMBERS = {
    _Value.SIGNED: pa.int64(),
    _Value.UNSIGNED: pa.uint64(),
    _Value.DOUBLE: pa.float64(),
    _Value.SINGLE: pa.float32(),
    _Value.FLAG: pa.uint8(),
}


def _in_binary(binary: Binary, schema: TableSchema, number: int, kind: _Value | None) -> _Value:
    """What a binary notation makes of a column's values, which are ``kind``."""
    column = schema.columns[number]
    type = binary.type_of(column)
    written = {} if type.name == BITS else _IN_BINARY.get(type.type, {})
    if not written or (kind is not None and kind not in written):
        raise NotByColumns(f"column {column.name!r} is written as {type.type} of values that are {kind}")
    return next(iter(written.values())) if kind is None else written[kind]
