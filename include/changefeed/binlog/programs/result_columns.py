"""Columns of a SELECT as columns of a rows event: how each is selected, how its values come, what its row image has.

The row image of a value is the one that a server writes today. Only lengths differ: strings always have the
longest prefix of their type, as the definition of a result does not say what the table's has.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_com_query_response_text_resultset_column_definition.html,
https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.kernel import result_rows
from changefeed.errors import SchemaError
from changefeed.model import column_types
from changefeed.model.column_types import DATA_TYPES, MapColumn, WireType
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class ResultColumn:
    """A column as a server announces it before its rows: ``type`` as the protocol numbers it, the most bytes of a
    value's text, and the digits behind the point of a number or a time."""

    type: int
    length: int
    decimals: int
    unsigned: bool


@dataclass(frozen=True)
class Turned:
    """How a column's values come in a result, as `result_rows` has it, and the metadata of their row images."""

    meta: int
    kind: int
    a: int = 0
    b: int = 0


@dataclass(frozen=True)
class _Reading:
    """How columns of a wire type are read: the protocol's types that their values may come as, and what of them.

    ``selected``: an expression for `str.format` with the column's quoted name.
    """

    types: tuple[int, ...]
    turned: Callable[[ResultColumn], Turned]
    selected: str = "{}"


_LONG, _LONGLONG = 3, 8
_STRINGS = (249, 250, 251, 252, 253, 254)


def _number(number: int, sent: int, size: int) -> _Reading:
    """A number that comes in ``sent`` bytes, of which the image has ``size``."""
    return _Reading((number,), lambda _: Turned(0, result_rows.FIXED, sent, size))


def _temporal(number: int, kind: int) -> _Reading:
    return _Reading((number,), lambda result: Turned(result.decimals, kind, result.decimals))


def _string(types: tuple[int, ...], meta: int, prefix: int) -> _Reading:
    return _Reading(types, lambda _: Turned(meta, result_rows.STRING, prefix))


def _decimal(result: ResultColumn) -> Turned:
    """The text of a DECIMAL has room for its digits, a point and a sign."""
    precision = result.length - (result.decimals > 0) - (not result.unsigned)
    return Turned(precision << 8 | result.decimals, result_rows.DECIMAL, precision, result.decimals)


_READINGS: dict[WireType, _Reading] = {
    column_types.TINY: _number(1, 1, 1),
    column_types.SHORT: _number(2, 2, 2),
    column_types.INT24: _number(9, 4, 3),
    column_types.LONG: _number(3, 4, 4),
    column_types.LONGLONG: _number(8, 8, 8),
    column_types.FLOAT: _number(4, 4, 4),
    column_types.DOUBLE: _number(5, 8, 8),
    column_types.NEWDECIMAL: _Reading((246,), _decimal),
    column_types.YEAR: _Reading((13,), lambda result: Turned(0, result_rows.YEAR, result.length)),
    column_types.BIT: _Reading((16,), lambda result: Turned(result.length, result_rows.BITS, (result.length + 7) // 8)),
    column_types.DATE: _Reading((10,), lambda _: Turned(0, result_rows.DATE)),
    column_types.TIME2: _temporal(11, result_rows.TIME),
    column_types.DATETIME2: _temporal(12, result_rows.DATETIME),
    column_types.TIMESTAMP2: _temporal(7, result_rows.TIMESTAMP),
    column_types.VARCHAR: _string(_STRINGS, 0xFFFF, 2),
    column_types.GEOMETRY: _string((255,), 4, 4),
    column_types.VECTOR: _string((242,), 4, 4),
    column_types.JSON: _Reading((245,), lambda _: Turned(4, result_rows.JSON)),
}
_BINARY = _Reading(_STRINGS, lambda result: Turned(result.length, result_rows.STRING, 1))
"""BINARY, whose length is that of its padding: at most 255."""
_CHAR = _string(_STRINGS, 1023, 2)


def _labels(size: int) -> _Reading:
    """ENUM and SET come as text; as numbers they are what the image has. MariaDB has short labels come as INT."""

    def turned(result: ResultColumn) -> Turned:
        return Turned(size, result_rows.FIXED, 8 if result.type == _LONGLONG else 4, size)

    return _Reading((_LONGLONG, _LONG), turned, "CAST({} AS UNSIGNED)")


def _reading(column: Column, result: ResultColumn | None) -> tuple[WireType, _Reading] | None:
    """The column's type in a row image and how it is read; None for a type that nobody knows."""
    data_type = DATA_TYPES.get(column.data_type)
    if data_type is None or not data_type.wire:
        return None
    wire = data_type.wire[0]
    if wire is column_types.ENUM:
        return wire, _labels(1 if len(column.labels) < 256 else 2)
    if wire is column_types.SET:
        size = (len(column.labels) + 7) // 8
        return wire, _labels(8 if size > 4 else size)
    if wire is column_types.STRING:
        if data_type.meta is not None:  # MariaDB's UUID, INET4, INET6: text, unless they are cast
            size = data_type.meta
            return wire, _Reading(
                _STRINGS, lambda _: Turned(size, result_rows.STRING, 1), f"CAST({{}} AS BINARY({size}))"
            )
        return wire, _CHAR if column.collation else _BINARY
    if wire is column_types.VECTOR and result is not None and result.type in _STRINGS:
        wire = column_types.VARCHAR  # MariaDB's
    if wire is column_types.BLOB and data_type.meta is not None:
        return wire, _string(_STRINGS, data_type.meta, data_type.meta)
    reading = _READINGS.get(wire)
    return None if reading is None else (wire, reading)


def selected(schema: TableSchema) -> str:
    """The expressions of a SELECT whose rows `turned_columns` understands; SchemaError for a type that nobody knows."""
    return ", ".join(_known(schema, column, None)[1].selected.format(quoted(column.name)) for column in schema.columns)


def turned_columns(schema: TableSchema, results: Sequence[ResultColumn]) -> tuple[TableMap, list[int]]:
    """The table map of ``schema``'s row images, and for the kernel how the columns of a result become them.

    Raises SchemaError where the result is not the one of `selected`: the table was changed in between.
    """
    if len(results) != len(schema.columns):
        raise _changed(schema, f"a SELECT of it has {len(results)} columns, and {len(schema.columns)} were wanted")
    columns: list[MapColumn] = []
    words: list[int] = []
    for column, result in zip(schema.columns, results, strict=True):
        wire, reading = _known(schema, column, result)
        if result.type not in reading.types:
            raise _changed(
                schema,
                f"column {column.name!r}, a {column.data_type}, comes as type {result.type} of the protocol, and "
                f"{' or '.join(map(str, reading.types))} was wanted",
            )
        turned = reading.turned(result)
        columns.append(MapColumn(wire.number, turned.meta, nullable=column.nullable is not False))
        words += (turned.kind, turned.a, turned.b)
    return TableMap(0, schema.database, schema.table, columns), words


def _known(schema: TableSchema, column: Column, result: ResultColumn | None) -> tuple[WireType, _Reading]:
    known = _reading(column, result)
    if known is None:
        raise SchemaError(
            f"column {column.name!r} of {schema.database}.{schema.table} is a {column.data_type}, which changefeed "
            "cannot read by a SELECT. Leave the table out of the pipeline."
        )
    return known


def _changed(schema: TableSchema, what: str) -> SchemaError:
    return SchemaError(
        f"{schema.database}.{schema.table} is not the table that was expected: {what}. It was changed after its "
        "columns were looked up: read it again."
    )
