"""Writes the messages of changes that functions returned, with the kernel's row programs, from columns.

A column of texts, integers, doubles or booleans is passed to the kernel in the binary form of a binlog. Python writes
the values of any other column in the notation of the format, and the kernel copies them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed.binlog.event_texts import EventTexts
from changefeed.binlog.kernel import faults, layout, plain_rows
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.binlog.output import Output
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.codecs import WRITTEN, BoundColumn
from changefeed.binlog.programs.program import ProgramBuilder
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.formats.connect_types import BITS, Type
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import Binary, slot_text
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import NO_SNAPSHOT, OPS, Slot
from changefeed.model import column_types
from changefeed.model.column_rules import ColumnRules, FirstCharacters, HmacSha256, Sha256, Treatment
from changefeed.model.table_schema import Column, TableSchema
from changefeed.native.memory import Bytes, Words
from changefeed.records.block import Arrays
from changefeed.transforms.added_members import AddedMembers
from changefeed.transforms.arrow_changes import MEMBERS, ArrowChanges, Changes, ObjectChanges, members_of
from changefeed.transforms.chain import Failures, TransformFailed, is_outage
from changefeed.transforms.column_rows import HEADER, put_column_rows
from changefeed.transforms.masked_values import text_to_hash
from changefeed.transforms.plain_rows import PlainRows
from changefeed.transforms.sequences import PART_BITS

_AS_GIVEN = Style({Kind.BIT: Encoding.CONNECT})
"""The style in which the kernel writes the values: as JSON values."""
_MARGIN = np.zeros(64, np.uint8)
"""Bytes after the values, because kernels read complete words."""


class _Value(StrEnum):
    """The kind of a column's values."""

    TEXT = "text"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    DOUBLE = "double"
    SINGLE = "single"
    FLAG = "flag"
    BYTES = "bytes"
    """Bytes, written in base64."""
    WRITTEN = "written"
    """Values that Python has already written in the form of the messages."""

    def bound(self, name: str) -> BoundColumn:
        """A binlog column for values of this kind."""
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
    _Value.WRITTEN: (WRITTEN, 4),
}
"""The binlog column type and metadata for each kind of value."""
_TYPES: Mapping[type, str] = {bool: "bit", int: "bigint", float: "double", dict: "json", list: "json"}
"""SQL types of columns that a function added, by the Python type of the first value; any other type is text."""
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
"""The kinds of values for each type of a binary notation, by the kind of the column's values."""


Values: TypeAlias = "pa.Array | list[Any]"
"""The values of a column: an Arrow array if all have one type that the kernel can write, else a list."""


@dataclass(frozen=True)
class _Group:
    """Changes whose rows have the same columns.

    ``numbers`` has the number of each change's input row, ``parts`` the number of each change among the changes of its
    row. ``ops`` are numbers in the kernel's coding. ``members`` are texts of JSON objects, or null.
    """

    numbers: Words
    parts: Words
    ops: Words
    topics: pa.Array
    members: pa.Array
    key: tuple[str, ...]
    before: Mapping[str, Values]
    after: Mapping[str, Values]

    def chosen(self, rows: Words) -> _Group:
        """The changes at ``rows``."""
        taken = pa.array(rows)

        def of(columns: Mapping[str, Values]) -> dict[str, Values]:
            return {
                name: [values[row] for row in rows.tolist()] if isinstance(values, list) else values.take(taken)
                for name, values in columns.items()
            }

        return _Group(
            self.numbers[rows],
            self.parts[rows],
            self.ops[rows],
            self.topics.take(taken),
            self.members.take(taken),
            self.key,
            of(self.before),
            of(self.after),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows' columns, in the order of the messages."""
        return tuple(dict.fromkeys((*self.after, *self.before)))


@dataclass(frozen=True)
class _Columns:
    """The columns of a group's messages: the table's schema, and the kinds of the columns' values."""

    schema: TableSchema
    kinds: tuple[_Value, ...]


class ColumnMessages:
    """Writes the messages of one table from the columns that its functions return."""

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
        self._data_types: dict[str, str] = {}
        schema, route = unfinished.schema, unfinished.route
        self._spread = [schema.columns[number].name for number in route.partition_columns(schema)]

    def write(
        self,
        changes: Sequence[Changes],
        rows: PlainRows,
        name: str,
        partitions: Callable[[str], int],
        topics: Topics,
    ) -> tuple[list[tuple[Arrays, Words]], Failures]:
        """The messages of ``changes`` with their groups, in no order, and the failures by row.

        The functions made the changes from ``rows``. If one change of a row fails, the row has no messages.

        ``name`` is the function that returned the changes. Raises SettingsError for a mask that does not fit.
        """
        failures: Failures = {}
        groups = list(_groups(changes))
        while True:
            found: Failures = {}
            for group in groups:
                _note_split(group, name, found)
            made: list[tuple[Arrays, Words]] = []
            for group in groups if not found else ():
                made += self._messages(group, rows, name, partitions, topics, found)
            if not found:
                return made, failures
            failures |= found
            left = ((group, np.flatnonzero(~np.isin(group.numbers, list(found)))) for group in groups)
            groups = [group.chosen(stay) for group, stay in left if len(stay)]

    def _messages(
        self,
        group: _Group,
        rows: PlainRows,
        name: str,
        partitions: Callable[[str], int],
        topics: Topics,
        failures: Failures,
    ) -> list[tuple[Arrays, Words]]:
        fails = _Fails(name, failures)
        names = group.topics.dictionary_encode()
        counts = [self._partitions(topic, group, partitions, fails) for topic in names.dictionary.to_pylist()]
        self._check_columns(group, fails)
        if failures:
            return []
        schema = self._schema(group)
        columns, cells, data = self._laid_out(group, schema, fails)
        if failures:
            return []
        facts = rows.facts[group.numbers].copy()
        facts[:, plain_rows.PART] = group.parts
        source = self._with_xids(facts, rows.output.data)
        headers = [
            self._table(columns, topic, count, topics)
            for topic, count in zip(names.dictionary.to_pylist(), counts, strict=True)
        ]
        facts[:, plain_rows.TABLE] = np.array(headers)[names.indices.to_numpy()]
        self._texts.set_origin(rows.server_uuid, rows.file, rows.file)
        made = self._run(data, source, facts.reshape(-1), group, cells, fails)
        if group.members.null_count == len(group.members):
            return made
        added = AddedMembers.of(facts, group.members)
        return [(added.write(arrays, self._format, partial(fails.note_row, group)), of) for arrays, of in made]

    def _partitions(self, topic: str, group: _Group, partitions: Callable[[str], int], fails: _Fails) -> int:
        try:
            return partitions(topic + self._suffix)
        except ChangefeedError:
            raise
        except Exception as error:
            fails.note_rows(group, pc.equal(group.topics, topic).to_numpy(zero_copy_only=False), error)
            return 0

    def _check_columns(self, group: _Group, fails: _Fails) -> None:
        """Report changes that have not all columns of the partition key, or that have a column name that is not
        text."""
        deleted = group.ops == OPS.index("d")
        for image, of_image in ((group.before, deleted), (group.after, ~deleted)):
            if missing := [name for name in self._spread if name not in image]:
                error = ValueError(f"column {missing[0]!r}, which partitions follow from, is not in the row")
                fails.note_rows(group, of_image, error)
        if wrong := [name for name in group.names if not isinstance(name, str)]:
            fails.note_rows(
                group, np.ones(len(group.ops), bool), TypeError(f"a column is called {wrong[0]!r}: expected text")
            )

    def _schema(self, group: _Group) -> TableSchema:
        """The table's schema after the functions: with its own columns, or with the columns of the rows if these have
        others."""
        schema, names = self._unfinished.schema, group.names
        known = {column.name: column for column in schema.columns}
        columns = schema.columns
        if not known.keys() >= set(names):
            columns = tuple(known.get(name) or Column(name, self._data_type(name, group)) for name in names)
        positions = {column.name: number for number, column in enumerate(columns)}
        return replace(schema, columns=columns, primary_key=tuple(positions[name] for name in group.key), indexes=None)

    def _data_type(self, name: str, group: _Group) -> str:
        """The SQL type of a column that a function added, by the first value that is not None."""
        if name in self._data_types:
            return self._data_types[name]
        for values in (image[name] for image in (group.before, group.after) if name in image):
            first = next((value for value in _objects(values) if value is not None), None)
            if first is not None:
                return self._data_types.setdefault(name, _TYPES.get(type(first), "longtext"))
        return "longtext"

    def _laid_out(self, group: _Group, schema: TableSchema, fails: _Fails) -> tuple[_Columns, Words, Bytes]:
        """The columns of a group, their cells for `put_column_rows`, and the bytes of the cells."""
        rows, treatments = len(group.ops), self._rules.of(schema)
        cells = np.full((2, 2, len(schema.columns), rows), layout.ABSENT, np.int64)
        parts: list[NDArray[np.uint8]] = [np.zeros(HEADER, np.uint8)]
        kinds: list[_Value] = []
        at = HEADER
        for number, column in enumerate(schema.columns):
            images = [image.get(column.name) for image in (group.before, group.after)]
            given = [values for values in images if values is not None]
            if number in treatments:
                kind, given = _masked_values(given, column, treatments[number], group, fails)
            else:
                kind, given = self._values(given, column, group, fails)
            kinds.append(kind)
            laid = iter(given)
            for image, values in enumerate(images):
                if values is None:
                    continue
                data, starts, sizes, is_there = _cells_of(next(laid), kind)
                cells[0, image, number] = np.where(is_there, starts + at, layout.NULL)
                cells[1, image, number] = sizes
                parts.append(data)
                at += len(data)
        return _Columns(schema, tuple(kinds)), cells.reshape(-1), np.concatenate([*parts, _MARGIN])

    def _values(self, images: list[Values], column: Column, group: _Group, fails: _Fails) -> tuple[_Value, list[Any]]:
        """The kind of a column's values, and the values: in the kernel's form, or written by Python."""
        kind = _common_kind(images)
        if kind is not None and self._binary is not None:
            kind, images = _in_binary(self._binary, column, kind, images)
        if kind is not None:
            return kind, images
        return _Value.WRITTEN, [self._written_values(values, column, group, fails) for values in images]

    def _written_values(self, values: Values, column: Column, group: _Group, fails: _Fails) -> list[bytes | None]:
        written: list[bytes | None] = []
        for row, value in enumerate(_objects(values)):
            try:
                written.append(None if value is None else self._written_value(column, value))
            except Exception as error:
                fails.note(int(group.numbers[row]), error)
                written.append(None)
        return written

    def _written_value(self, column: Column, value: object) -> bytes:
        return orjson.dumps(value) if self._binary is None else self._binary.value(column, value)

    def _with_xids(self, facts: NDArray[np.int64], source: Bytes) -> Bytes:
        """``source`` with the xids of the rows appended in a binary notation; their positions are written to
        ``facts``."""
        sizes = facts[:, plain_rows.XID_SIZE]
        if self._binary is None or not sizes.any():
            return source
        parts, at = [source], len(source)
        for row in np.flatnonzero(sizes).tolist():
            begin, size = int(facts[row, plain_rows.XID]), int(sizes[row])
            quoted = source[begin : begin + size].tobytes()
            counted = slot_text(self._format.notation, Slot.XID, orjson.loads(quoted))
            facts[row, plain_rows.XID], facts[row, plain_rows.XID_COUNTED] = at, len(counted)
            parts.append(np.frombuffer(quoted + counted, np.uint8))
            at += size + len(counted)
        return np.concatenate(parts)

    def _table(self, columns: _Columns, name: str, count: int, topics: Topics) -> int:
        topic = name + self._suffix
        group = topics.group_of(topic, count)
        key = (columns, topic, count, group)
        known = self._tables.get(key)
        if known is None:
            pairs = zip(columns.kinds, columns.schema.columns, strict=True)
            bound = tuple(kind.bound(column.name) for kind, column in pairs)
            route = replace(
                self._unfinished.route, topic=topic, partitions=count, rows=None, skipped=frozenset(), table_field=None
            )
            builder = ProgramBuilder(self._memory, self._format, self._rules, NO_SNAPSHOT, _AS_GIVEN)
            known = self._tables[key] = builder.table(BoundTable(columns.schema, bound), route, group, 0, rewrite=False)
        return known

    def _run(
        self, data: Bytes, source: Bytes, facts: Words, group: _Group, cells: Words, fails: _Fails
    ) -> list[tuple[Arrays, Words]]:
        state = self._state
        state[[layout.AT, layout.OUT, layout.MESSAGES, layout.ROW_AT]] = 0
        state[layout.INNER] = 1  # the end of an event is a word of the state
        result: list[tuple[Arrays, Words]] = []
        while True:
            code = put_column_rows(self._workspace(data), source, facts, group.ops, cells)
            count = int(state[layout.MESSAGES])
            if code < 0:
                row = int(state[layout.ROW_AT])
                fails.note(int(group.numbers[row]), ValueError(faults.TEXTS.get(code, f"fault {code} of the kernel")))
                state[layout.ROW_AT] = row + 1
                continue
            if count:
                made = self._output.selected_output(np.arange(count))
                result.append((made.arrays(0, count), made.groups))
                state[[layout.OUT, layout.MESSAGES]] = 0
            elif code == layout.ROOM:
                self._output.grow()
            if code == 0:
                return result

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


class _Fails:
    """Collects the reasons why changes that a function returned cannot be written."""

    def __init__(self, name: str, failures: Failures) -> None:
        self._name, self._failures = name, failures

    def note(self, number: int, error: Exception) -> None:
        """Report a failure of the change of row ``number``."""
        reason = f"what it returned cannot be written: {type(error).__name__}: {error}"
        self._failures.setdefault(number, TransformFailed(self._name, reason, is_outage=is_outage(error)))

    def note_row(self, group: _Group, row: int, error: Exception) -> None:
        """Report a failure of change number ``row`` of a group."""
        self.note(int(group.numbers[row]), error)

    def note_rows(self, group: _Group, which: NDArray[np.bool_], error: Exception) -> None:
        """Report a failure of the changes of a group for which ``which`` is true."""
        for number in group.numbers[which].tolist():
            self.note(number, error)


def _groups(changes: Sequence[Changes]) -> Iterator[_Group]:
    """``changes`` in groups whose rows have the same columns."""
    numbers = np.concatenate([some.numbers for some in changes]) if changes else np.zeros(0, np.int64)
    parts = np.arange(len(numbers)) - np.searchsorted(numbers, numbers)
    at = 0
    for some in changes:
        own = parts[at : at + len(some.numbers)]
        at += len(some.numbers)
        if len(some.numbers):
            yield from _of_objects(some, own) if isinstance(some, ObjectChanges) else _of_batch(some, own)


def _of_objects(changes: ObjectChanges, parts: Words) -> Iterator[_Group]:
    rows: dict[Any, list[int]] = {}
    for row, change in enumerate(changes.changes):
        before, after = change.before, change.after
        shape = (change.key, None if before is None else tuple(before), None if after is None else tuple(after))
        rows.setdefault(shape, []).append(row)
    for (key, before, after), of_shape in rows.items():
        some = [changes.changes[row] for row in of_shape]
        yield _Group(
            changes.numbers[of_shape],
            parts[of_shape],
            np.array([OPS.index(change.op) for change in some], np.int64),
            pa.array([change.topic for change in some], pa.string()),
            members_of(some),
            key,
            _columns([change.before for change in some], before),
            _columns([change.after for change in some], after),
        )


def _columns(rows: Sequence[Any], names: tuple[str, ...] | None) -> dict[str, Values]:
    return {name: _as_arrow([row[name] for row in rows]) for name in names or ()}


def _as_arrow(values: list[Any]) -> Values:
    """``values`` as an Arrow array if all have one type that the kernel writes as JSON does; else unchanged."""
    types = set(map(type, values)) - {type(None)}
    arrow = {str: pa.large_string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    if len(types) == 0:
        return pa.nulls(len(values), pa.string())
    (first, *others) = types
    if others or first not in arrow:
        return values
    try:
        return pa.array(values, arrow[first])
    except (pa.ArrowException, OverflowError, ValueError):
        pass  # integers beyond signed 64 bits, or half of a surrogate pair
    try:
        return pa.array(values, pa.uint64()) if first is int else values
    except (pa.ArrowException, OverflowError, ValueError):
        return values


def _of_batch(changes: ArrowChanges, parts: Words) -> Iterator[_Group]:
    batch = changes.batch
    ops = pc.index_in(batch["op"], pa.array(OPS)).to_numpy(zero_copy_only=False).astype(np.int64)
    images: list[dict[str, Values]] = []
    for name in ("before", "after"):
        image = batch[name]
        there = image.null_count < len(image)
        fields = [field.name for field in image.type]
        images.append(dict(zip(fields, image.flatten(), strict=True)) if there else {})
    before, after = images
    same: dict[tuple[str, ...], list[int]] = {}
    for op in np.unique(ops).tolist():
        of_op = {"d": (before,), "u": (after, before)}.get(OPS[op], (after,))
        same.setdefault(tuple(dict.fromkeys(name for image in of_op for name in image)), []).append(op)
    for names, of_names in same.items():
        chosen = [{name: values for name, values in image.items() if name in names} for image in images]
        group = _Group(changes.numbers, parts, ops, batch["topic"], batch[MEMBERS], changes.key, *chosen)
        yield group if len(same) == 1 else group.chosen(np.flatnonzero(np.isin(ops, of_names)))


def _note_split(group: _Group, name: str, failures: Failures) -> None:
    if group.parts.max(initial=0) >> PART_BITS:
        error = ValueError(f"more than {1 << PART_BITS:,} changes were made of one")
        _Fails(name, failures).note_rows(group, group.parts >> PART_BITS > 0, error)


def _objects(values: Values) -> list[Any]:
    return values if isinstance(values, list) else values.to_pylist()


def _kind_of(values: Values) -> _Value | None:
    """The kind of ``values``, which are not all null; None if the kernel cannot write them."""
    if isinstance(values, list):
        return None
    type = values.type
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
    return None


def _is_null(values: Values) -> bool:
    return not isinstance(values, list) and values.null_count == len(values)


def _common_kind(images: Sequence[Values]) -> _Value | None:
    """The kind of a column's values in both images; None if the kinds differ or the kernel cannot write the values."""
    kinds = {_kind_of(values) for values in images if not _is_null(values)}
    if len(kinds) > 1:
        return None
    return kinds.pop() if kinds else _Value.TEXT


def _masked_values(
    images: list[Values], column: Column, treatment: Treatment, group: _Group, fails: _Fails
) -> tuple[_Value, list[Values]]:
    """The kind of a masked column's values, and the values to mask; values that the kernel cannot write are replaced by
    their JSON."""
    kind = _common_kind(images)
    is_text = kind is _Value.TEXT or all(isinstance(v, str | None) for image in images for v in _objects(image))
    if isinstance(treatment, FirstCharacters) and not is_text:
        raise SettingsError(
            f"column {column.name!r} is no text after the pipeline's functions, so columns.mask cannot keep its first "
            f"{treatment.count} characters: mask it with `text` or a hash, or leave it out"
        )
    if kind is not None:
        return kind, images
    is_written = isinstance(treatment, Sha256 | HmacSha256 | FirstCharacters)

    def text(row: int, value: object) -> bytes | None:
        try:
            return value if value is None else text_to_hash(value) if is_written else b""
        except Exception as error:
            fails.note(int(group.numbers[row]), error)
            return None

    return _Value.TEXT, [
        pa.array([text(row, value) for row, value in enumerate(_objects(values))], pa.large_binary())
        for values in images
    ]


def _in_binary(
    binary: Binary, column: Column, kind: _Value, images: list[Values]
) -> tuple[_Value | None, list[Values]]:
    """The kind of a column's values in a binary notation, and the values; None for the kind if Python must write
    them."""
    type = binary.type_of(column)
    written = {} if type.name == BITS else _IN_BINARY.get(type.type, {})
    if all(map(_is_null, images)):
        return next(iter(written.values()), None), images
    made = written.get(kind)
    if made is _Value.SINGLE and not all(np.isfinite(_numbers(values, made)).all() for values in images):
        return None, images
    if made is _Value.BYTES:
        try:
            return made, [from_base64(values) for values in images]
        except ValueError:
            return None, images
    return made, images


def _cells_of(values: Any, kind: _Value) -> tuple[NDArray[np.uint8], Words, Words, NDArray[np.bool_]]:
    """The bytes of ``values``, and for each value its start, its length, and whether it is not null."""
    rows = len(values)
    if kind is _Value.WRITTEN:
        sizes = np.array([len(each or b"") for each in values], np.int64)
        data = np.frombuffer(b"".join(each for each in values if each is not None), np.uint8)
        return data, np.cumsum(sizes) - sizes, sizes, np.array([each is not None for each in values], bool)
    is_there = values.is_valid().to_numpy(zero_copy_only=False)
    if not is_there.any():
        return _MARGIN[:0], np.zeros(rows, np.int64), np.zeros(rows, np.int64), is_there
    if kind in (_Value.TEXT, _Value.BYTES):
        return *bytes_of(values), is_there
    numbers = _numbers(values, kind)
    width = numbers.itemsize
    return numbers.view(np.uint8), np.arange(rows) * width, np.full(rows, width), is_there


def _numbers(values: pa.Array, kind: _Value) -> NDArray[Any]:
    numbers: NDArray[Any] = pc.fill_null(pc.cast(values, _NUMBERS[kind]), 0).to_numpy(zero_copy_only=False)
    return numbers


def from_base64(texts: pa.Array) -> pa.Array:
    """The bytes of base64 ``texts``; raises ValueError for other texts."""
    return pa.array([text and b64decode(text, validate=True) for text in texts.to_pylist()], pa.large_binary())


def bytes_of(values: pa.Array) -> tuple[NDArray[np.uint8], Words, Words]:
    """The bytes of texts, or of integers as text, with the start and the length of each."""
    if not pa.types.is_large_binary(values.type):
        values = pc.cast(values, pa.large_string())
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
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
