"""Maps columns of a SELECT to columns of a rows event: how each is selected, received, and written to a row image.

A value has the row image that current servers write. Only the size of lengths differs: a string's length always has the
largest size of its type, because a result's metadata does not have the size in the table.

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
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result, as the server describes it before the rows.

    ``type`` is the protocol's number, ``length`` the most bytes of a value's text, ``decimals`` the digits after the
    point of a number or a time.
    """

    type: int
    length: int
    decimals: int
    unsigned: bool


@dataclass(frozen=True)
class ImageColumn:
    """The form of a column's values in a result, for `result_rows`, and the metadata of their row images."""

    meta: int
    kind: int
    a: int = 0
    b: int = 0


@dataclass(frozen=True)
class _Reading:
    """How columns of a wire type are read: the protocol's types of their values, and the resulting `ImageColumn`.

    ``select_list`` is the SQL expression, in which `str.format` inserts the column's quoted name.
    """

    types: tuple[int, ...]
    image_column: Callable[[ResultColumn], ImageColumn]
    select_list: str = "{}"


_LONG, _LONGLONG = 3, 8
_STRINGS = (249, 250, 251, 252, 253, 254)


def _number(number: int, sent: int, size: int) -> _Reading:
    """A number of ``sent`` bytes in a result and ``size`` bytes in an image."""
    return _Reading((number,), lambda _: ImageColumn(0, result_rows.FIXED, sent, size))


def _temporal(number: int, kind: int) -> _Reading:
    return _Reading((number,), lambda result: ImageColumn(result.decimals, kind, result.decimals))


def _string(types: tuple[int, ...], meta: int, prefix: int) -> _Reading:
    return _Reading(types, lambda _: ImageColumn(meta, result_rows.STRING, prefix))


def _decimal(result: ResultColumn) -> ImageColumn:
    """The form of a DECIMAL, whose precision follows from the length of the text: its digits, a point and a sign."""
    precision = result.length - (result.decimals > 0) - (not result.unsigned)
    return ImageColumn(precision << 8 | result.decimals, result_rows.DECIMAL, precision, result.decimals)


_READINGS: dict[WireType, _Reading] = {
    column_types.TINY: _number(1, 1, 1),
    column_types.SHORT: _number(2, 2, 2),
    column_types.INT24: _number(9, 4, 3),
    column_types.LONG: _number(3, 4, 4),
    column_types.LONGLONG: _number(8, 8, 8),
    column_types.FLOAT: _number(4, 4, 4),
    column_types.DOUBLE: _number(5, 8, 8),
    column_types.NEWDECIMAL: _Reading((246,), _decimal),
    column_types.YEAR: _Reading((13,), lambda result: ImageColumn(0, result_rows.YEAR, result.length)),
    column_types.BIT: _Reading(
        (16,), lambda result: ImageColumn(result.length, result_rows.BITS, (result.length + 7) // 8)
    ),
    column_types.DATE: _Reading((10,), lambda _: ImageColumn(0, result_rows.DATE)),
    column_types.TIME2: _temporal(11, result_rows.TIME),
    column_types.DATETIME2: _temporal(12, result_rows.DATETIME),
    column_types.TIMESTAMP2: _temporal(7, result_rows.TIMESTAMP),
    column_types.VARCHAR: _string(_STRINGS, 0xFFFF, 2),
    column_types.GEOMETRY: _string((255,), 4, 4),
    column_types.VECTOR: _string((242,), 4, 4),
    column_types.JSON: _Reading((245,), lambda _: ImageColumn(4, result_rows.JSON)),
}
_BINARY = _Reading(_STRINGS, lambda result: ImageColumn(result.length, result_rows.STRING, 1))
"""BINARY. The result's length is the size to which values are padded: at most 255."""
_CHAR = _string(_STRINGS, 1023, 2)


def _labels(size: int) -> _Reading:
    """How ENUM and SET are read: as numbers, which row images have, too. MariaDB returns INT for short labels."""

    def image_column(result: ResultColumn) -> ImageColumn:
        return ImageColumn(size, result_rows.FIXED, 8 if result.type == _LONGLONG else 4, size)

    return _Reading((_LONGLONG, _LONG), image_column, "CAST({} AS UNSIGNED)")


def _reading(column: Column, result: ResultColumn | None) -> tuple[WireType, _Reading] | None:
    """The column's type in a row image and how it is read; None for an unknown type."""
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
        if data_type.meta is not None:  # MariaDB's UUID, INET4, INET6: the server sends text unless they are cast
            size = data_type.meta
            return wire, _Reading(
                _STRINGS, lambda _: ImageColumn(size, result_rows.STRING, 1), f"CAST({{}} AS BINARY({size}))"
            )
        return wire, _CHAR if column.collation else _BINARY
    if wire is column_types.VECTOR and result is not None and result.type in _STRINGS:
        wire = column_types.VARCHAR  # a VECTOR of MariaDB
    if wire is column_types.BLOB and data_type.meta is not None:
        return wire, _string(_STRINGS, data_type.meta, data_type.meta)
    reading = _READINGS.get(wire)
    return None if reading is None else (wire, reading)


def select_list(schema: TableSchema) -> str:
    """The expressions of a SELECT whose rows `image_columns` understands; SchemaError for an unknown type."""
    return ", ".join(
        _known_reading(schema, column, None)[1].select_list.format(quote_name(column.name)) for column in schema.columns
    )


def image_columns(schema: TableSchema, results: Sequence[ResultColumn]) -> tuple[TableMap, list[int]]:
    """The table map for the row images of ``schema``, and the words by which the kernel converts the result's columns.

    Raises SchemaError if the result does not fit `select_list`, because the table was changed before the SELECT.
    """
    if len(results) != len(schema.columns):
        raise _changed_error(schema, f"expected {len(schema.columns)} columns of a SELECT, found {len(results)}")
    columns: list[MapColumn] = []
    words: list[int] = []
    for column, result in zip(schema.columns, results, strict=True):
        wire, reading = _known_reading(schema, column, result)
        if result.type not in reading.types:
            raise _changed_error(
                schema,
                f"column {column.name!r}, a {column.data_type}, has type {result.type} of the protocol; expected "
                f"{' or '.join(map(str, reading.types))}",
            )
        image_column = reading.image_column(result)
        columns.append(MapColumn(wire.number, image_column.meta, nullable=column.nullable is not False))
        words += (image_column.kind, image_column.a, image_column.b)
    return TableMap(0, schema.database, schema.table, columns), words


def _known_reading(schema: TableSchema, column: Column, result: ResultColumn | None) -> tuple[WireType, _Reading]:
    known = _reading(column, result)
    if known is None:
        raise SchemaError(
            f"column {column.name!r} of {schema.database}.{schema.table} is a {column.data_type}, which changefeed "
            "cannot read by a SELECT. Exclude the table from the pipeline."
        )
    return known


def _changed_error(schema: TableSchema, what: str) -> SchemaError:
    return SchemaError(
        f"{schema.database}.{schema.table} is not the table that was expected: {what}. It was changed after its "
        "columns were looked up: read it again."
    )
