"""A column as its TABLE_MAP describes it, with what the table's schema adds."""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.programs.codecs import BoundColumn
from changefeed.model import charset_codes
from changefeed.model.charset_codes import max_bytes
from changefeed.model.column_types import BIT, DATA_TYPES, NEWDECIMAL, MapColumn, Measure, Metadata, data_type_name
from changefeed.model.table_schema import Column


def mapped_column(mapped: MapColumn, bound: BoundColumn, known: Column | None) -> Column:
    """The column of a TABLE_MAP, named and typed as ``bound`` says.

    What the TABLE_MAP says counts: lengths, precision, and nullability, but that MariaDB says of all columns of the
    inner table of an outer join that they may be NULL. ``known`` is the same column in the table's schema;
    without it defaults, comments and display widths are not known, nor the length of text whose charset is not.
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
    return _measured(column, mapped, bound.charset)


def _measured(column: Column, mapped: MapColumn, charset: str) -> Column:
    """The column with the length, precision, scale and digits of a fraction that the metadata tells."""
    known = DATA_TYPES.get(column.data_type)
    match known.measure if known is not None else Measure.NONE:
        case Measure.LENGTH if mapped.wire is BIT:
            return replace(column, length=mapped.meta)
        case Measure.LENGTH if mapped.wire.metadata in (Metadata.LENGTH, Metadata.STRING):
            # A compressed VARCHAR counts a byte of its own, and the bytes of a vector are not its dimensions.
            if charset == charset_codes.UNKNOWN or mapped.wire.is_compressed or column.data_type == "vector":
                return column
            return replace(column, length=mapped.meta // max_bytes(charset))
        case Measure.PRECISION if mapped.wire is NEWDECIMAL:
            return replace(column, precision=mapped.meta >> 8, scale=mapped.meta & 0xFF)
        case Measure.FRACTION:
            return replace(column, datetime_precision=mapped.meta)
    return column
