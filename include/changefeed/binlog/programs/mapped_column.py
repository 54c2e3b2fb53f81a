"""Combines a TABLE_MAP's description of a column with the table's schema."""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.programs.codecs import BoundColumn
from changefeed.model import charset_codes
from changefeed.model.charset_codes import max_bytes
from changefeed.model.column_types import BIT, DATA_TYPES, NEWDECIMAL, MapColumn, Measure, Metadata, data_type_name
from changefeed.model.table_schema import Column


def mapped_column(mapped: MapColumn, bound: BoundColumn, known: Column | None) -> Column:
    """The column of a TABLE_MAP, with the name and the type of ``bound``.

    Lengths, precision and nullability are the TABLE_MAP's. But a column that is NOT NULL in ``known`` stays NOT NULL,
    because MariaDB maps all columns of the inner table of an outer join as nullable.

    ``known`` is the same column in the table's schema. Without it defaults, comments, display widths and the length of
    text in an unknown charset are unknown.
    """
    column = known if known is not None else Column(bound.name, "")
    data_type = bound.data_type or data_type_name(mapped.wire, mapped.meta, is_binary=bound.charset == "binary")
    column = replace(
        column,
        name=bound.name,
        data_type=data_type,
        unsigned=bound.unsigned,
        labels=bound.labels or (),
        nullable=mapped.nullable and column.nullable is not False,
    )
    return _with_measures(column, mapped, bound.charset)


def _with_measures(column: Column, mapped: MapColumn, charset: str) -> Column:
    """The column with length, precision, scale and digits of a fraction from the metadata."""
    known = DATA_TYPES.get(column.data_type)
    match known.measure if known is not None else Measure.NONE:
        case Measure.LENGTH if mapped.wire is BIT:
            return replace(column, length=mapped.meta)
        case Measure.LENGTH if mapped.wire.metadata in (Metadata.LENGTH, Metadata.STRING):
            # A compressed VARCHAR counts one byte more, and a vector's size in bytes is not its number of dimensions.
            if charset == charset_codes.UNKNOWN or mapped.wire.is_compressed or column.data_type == "vector":
                return column
            return replace(column, length=mapped.meta // max_bytes(charset))
        case Measure.PRECISION if mapped.wire is NEWDECIMAL:
            return replace(column, precision=mapped.meta >> 8, scale=mapped.meta & 0xFF)
        case Measure.FRACTION:
            return replace(column, datetime_precision=mapped.meta)
    return column
