"""Changes, as functions returned them, as messages in their table's format, behind the pipeline's masks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from changefeed.errors import SettingsError
from changefeed.formats import render
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import Notation
from changefeed.formats.style import Style
from changefeed.formats.template import Messages, Op, Template
from changefeed.message_key import chosen_columns
from changefeed.pipelines.column_rules import (
    ColumnRules,
    Constant,
    Excluded,
    FirstCharacters,
    HmacSha256,
    Sha256,
    Treatment,
)
from changefeed.reader import Route
from changefeed.table_schema import Column, TableSchema
from changefeed.transforms.change import Change, Row

_TYPES: Mapping[type, str] = {bool: "bit", int: "bigint", float: "double", dict: "json", list: "json"}
"""The type of a column that a function made, by its value's; any other is text."""


@dataclass(frozen=True)
class _Shape:
    """A table as a function left its rows: the columns, the key, and what masks do to which columns."""

    table: TableSchema
    treatments: Mapping[str, Treatment]
    format: RowFormat


class Rendering:
    """Writes the changes of one table: ``schema`` are the columns that it has at the source."""

    def __init__(self, format: RowFormat, rules: ColumnRules, schema: TableSchema, route: Route) -> None:
        self._format, self._rules, self._schema = format, rules, schema
        self._name = f"{schema.database}.{schema.table}".encode() if route.partition_by == "table" else None
        by = () if isinstance(route.partition_by, str) else route.partition_by
        chosen = chosen_columns(schema, by, f"{route.setting}: partition_by in topics chooses", "")
        self._spread = [schema.columns[number].name for number in chosen]
        self._shapes: dict[Any, _Shape] = {}

    def messages(
        self, change: Change, given: render.RowChange, part: int
    ) -> Iterator[tuple[bytes | None, render.Rendered]]:
        """The messages of ``change``, the ``part``-th of those that were made of ``given``, each behind that which its
        partition is the hash of: None for one that is spread by its event id.

        Raises SettingsError for a mask that does not fit, TypeError for a value that is none of JSON's, ValueError for
        a row without the columns that partitions follow from.
        """
        if missing := [name for name in self._spread if name not in change.row]:
            raise ValueError(f"column {missing[0]!r}, which partitions follow from, is not in the row")
        shape = self._shape(change)
        before, after = change.before, change.after
        if shape.treatments:
            before, after = _masked(before, shape.treatments), _masked(after, shape.treatments)
        made = given
        if part or given.op != change.op or given.before is not before or given.after is not after:
            made = replace(given, op=change.op, before=before, after=after, part=part)
        for rendered in render.messages(shape.format, shape.table, made, self._spread):
            hashed = self._name if self._name is not None else rendered.key
            if self._spread:
                hashed = render.key_row(shape.format, shape.table, self._spread, rendered.image)
            yield hashed, rendered

    def _shape(self, change: Change) -> _Shape:
        """By the columns that the rows have; of a table few shapes come."""
        key = (change.key, *(tuple(row) for row in change.rows))
        shape = self._shapes.get(key)
        if shape is None:
            table = self._table(change)
            treatments = {table.columns[number].name: how for number, how in self._rules.of(table).items()}
            shape = self._shapes[key] = _Shape(self._rules.shown(table), treatments, _Remembered(self._format))
        return shape

    def _table(self, change: Change) -> TableSchema:
        """The table's columns; where a row has others, those of the rows in their order."""
        names = dict.fromkeys(name for row in reversed(change.rows) for name in row)
        return left_schema(self._schema, tuple(names), change.key, lambda name: _data_type(name, change))


def left_schema(
    schema: TableSchema, names: Sequence[str], key: Sequence[str], data_type: Callable[[str], str]
) -> TableSchema:
    """``schema`` as functions left it, whose rows have the columns ``names``: its own columns, or, where those of the
    rows are others, these; ``data_type`` is the type of one that it does not have. Its key are the columns ``key``."""
    known = {column.name: column for column in schema.columns}
    columns = schema.columns
    if not known.keys() >= set(names):
        columns = tuple(known.get(name) or Column(name, data_type(name)) for name in names)
    positions = {column.name: number for number, column in enumerate(columns)}
    return replace(schema, columns=columns, primary_key=tuple(positions[name] for name in key), indexes=None)


def _data_type(name: str, change: Change) -> str:
    values = (row[name] for row in change.rows if row.get(name) is not None)
    return _TYPES.get(type(next(values, None)), "longtext")


class _Remembered:
    """A format that is asked once: of one table, what it says of it stays the same."""

    def __init__(self, format: RowFormat) -> None:
        self._format = format
        self._values: dict[str, Template] = {}
        self._messages: Messages | None = None
        self._key: tuple[Template | None] | None = None

    @property
    def style(self) -> Style:
        return self._format.style

    @property
    def notation(self) -> Notation:
        return self._format.notation

    @property
    def needs_definitions(self) -> bool:
        return self._format.needs_definitions

    def messages(self, table: TableSchema) -> Messages:
        if self._messages is None:
            self._messages = self._format.messages(table)
        return self._messages

    def key(self, table: TableSchema) -> Template | None:
        if self._key is None:
            self._key = (self._format.key(table),)
        return self._key[0]

    def value(self, table: TableSchema, op: Op) -> Template:
        if op not in self._values:
            self._values[op] = self._format.value(table, op)
        return self._values[op]


def _masked(row: Row | None, treatments: Mapping[str, Treatment]) -> Row | None:
    if row is None or not treatments:
        return row
    return {
        name: masked_value(value, treatments.get(name), name)
        for name, value in row.items()
        if treatments.get(name) != Excluded()
    }


def masked_value(value: Any, treatment: Treatment | None, name: str) -> Any:
    """What stands in place of ``value``, as the kernel's masks make it; NULL stays.

    Raises SettingsError for a value that is no text and is to be cut.
    """
    if value is None or treatment is None:
        return value
    match treatment:
        case Constant(text):
            return text
        case FirstCharacters(count):
            if not isinstance(value, str):
                raise SettingsError(
                    f"column {name!r} is no text behind the pipeline's functions, so columns.mask cannot keep its "
                    f"first {count} characters: mask it with `text` or a hash, or leave it out"
                )
            return value[:count]
        case Sha256(salt):
            return hashlib.sha256(salt.encode() + _text(value)).hexdigest()
        case HmacSha256(key):
            return hmac.new(key.encode(), _text(value), "sha256").hexdigest()
    raise ValueError(f"{treatment} leaves no value")


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
