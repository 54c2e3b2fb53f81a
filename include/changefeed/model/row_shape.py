"""Comparison of a TABLE_MAP with the known schema of its table. If they differ, the error shows both.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
("Table_map_event column types: numerical identifier and metadata")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from changefeed.errors import SchemaError
from changefeed.model import column_types
from changefeed.model.column_types import DATA_TYPES, MapColumn, data_type_name
from changefeed.model.table_schema import Column, TableSchema

BINARY = 63
"""Id of the collation `binary`."""

_ROW_TIMESTAMP = (column_types.TIMESTAMP2, 6, False)
"""Type, metadata and nullability of MariaDB's `row_start` and `row_end`."""
HASH = "DB_ROW_HASH_"
"""Prefix of the names of MariaDB's hidden columns for UNIQUE keys that are too long for an index."""
_ROW_START_END = (
    Column("row_start", "timestamp", hidden=True),
    Column("row_end", "timestamp", row_end=True, hidden=True),
)


def fit(schema: TableSchema, columns: Sequence[MapColumn], *, is_mariadb: bool = False) -> TableSchema:
    """The schema of the rows of this TABLE_MAP.

    The result is ``schema``. On MariaDB the hidden columns follow, which the server writes in rows and does not list:
    `row_start` and `row_end` of WITH SYSTEM VERSIONING, and `DB_ROW_HASH_1` … of UNIQUE keys over long columns.

    Raises SchemaError, with both column lists, if number, types or metadata of the columns contradict ``schema``.
    Lengths of VARCHAR, DECIMAL and the like are not compared, because rows are read with the lengths of the TABLE_MAP.
    """
    fitted = with_hidden(schema, columns) if is_mariadb else schema
    if misfit := misfit_of(fitted, columns):
        raise _contradiction(schema, columns, misfit)
    return fitted


def misfit_of(schema: TableSchema, columns: Sequence[MapColumn]) -> str:
    """The first difference of a TABLE_MAP's columns from ``schema`` in number, type or metadata; '' if none."""
    if len(schema.columns) != len(columns):
        return f"expected {len(schema.columns)} columns, found {len(columns)}"
    for number, (column, row) in enumerate(zip(schema.columns, columns, strict=True), 1):
        if not fits(column, row):
            return f"expected `{column.name}` as column {number}, found {_column_text(row)}"
    return ""


def with_hidden(schema: TableSchema, columns: Sequence[MapColumn]) -> TableSchema:
    """``schema`` with the hidden columns of MariaDB, if the last ``columns`` of a TABLE_MAP look like them."""
    # If an UPDATE names the inner table of an outer join, MariaDB writes that all its columns may be NULL.
    joined = all(row.nullable for row in columns) and any(column.nullable is False for column in schema.columns)
    after = columns[len(schema.columns) :]
    hidden = hidden_columns([replace(row, nullable=False) for row in after] if joined else after)
    return replace(schema, columns=(*schema.columns, *hidden)) if hidden else schema


def with_row_end(columns: Sequence[Column], key: Sequence[int]) -> list[Column]:
    """``columns`` from FULL metadata, in which MariaDB's row start and row end are set as such.

    The last two columns before the hash columns are row start and row end, if they have the names and the type of
    these and the second is the last column of ``key``.
    """
    kept = [column for column in columns if not column.name.startswith(HASH)]
    names = [(column.name, column.data_type, column.datetime_precision) for column in kept[-2:]]
    if names != [(column.name, column.data_type, 6) for column in _ROW_START_END] or key[-1:] != (len(kept) - 1,):
        return list(columns)
    start, end = kept[-2:]
    marked = [replace(start, hidden=True), replace(end, row_end=True, hidden=True)]
    return [*kept[:-2], *marked, *columns[len(kept) :]]


def hidden_columns(columns: Sequence[MapColumn]) -> tuple[Column, ...]:
    """The hidden columns that match ``columns`` of a MariaDB TABLE_MAP; fewer than ``columns`` if some do not match."""
    versioning: tuple[Column, ...] = ()
    if [(column.wire, column.meta, column.nullable) for column in columns[:2]] == [_ROW_TIMESTAMP] * 2:
        versioning, columns = _ROW_START_END, columns[2:]
    hashes = range(1, 1 + sum(column.wire is column_types.LONGLONG for column in columns))
    return versioning + tuple(Column(f"{HASH}{number}", "bigint", unsigned=True) for number in hashes)


def fits(column: Column, row: MapColumn) -> bool:
    """Whether a column of a TABLE_MAP can be ``column``, by its type, sign and size; lengths are not compared."""
    data_type = DATA_TYPES.get(column.data_type)
    if data_type is None or not data_type.wire:  # a type of a later server cannot be checked
        return True
    if row.wire not in data_type.wire:
        return False
    if data_type.is_exact and row.unsigned is not None and row.unsigned != column.unsigned:
        return False
    if data_type.has_labels and not column.labels:
        return True  # they are not known
    if row.wire is column_types.ENUM:
        return row.meta == (1 if len(column.labels) < 256 else 2)
    if row.wire is column_types.SET:
        size = (len(column.labels) + 7) // 8
        return row.meta == (8 if size > 4 else size)
    return data_type.meta in (None, row.meta)


def _column_text(row: MapColumn) -> str:
    sign = " unsigned" if row.unsigned else ""
    is_binary = row.collation == BINARY
    name = data_type_name(row.wire, row.meta, is_binary=is_binary)
    return f"{name or row.wire.name}[{row.meta}]{sign}"


def _contradiction(schema: TableSchema, columns: Sequence[MapColumn], what: str) -> SchemaError:
    name = f"{schema.database}.{schema.table}"
    known = ", ".join(f"{column.name} {column.data_type}{' unsigned' * column.unsigned}" for column in schema.columns)
    return SchemaError(
        f"rows of {name} contradict what is known of its columns: {what}. The binlog has "
        f"({', '.join(map(_column_text, columns))}); known is ({known}). A DDL statement was not followed, or the "
        "table was changed without the binlog. Learn it again from the server with "
        f"`changefeed schema PIPELINE --relearn {name}`, or set binlog_row_metadata=FULL, so that the binlog "
        "names its columns."
    )
