"""A TABLE_MAP against what is known of its table: the same columns, or an error that shows both.

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
"""The id of the collation `binary`."""

_ROW_TIMESTAMP = (column_types.TIMESTAMP2, 6, False)
"""Type and metadata of MariaDB's `row_start` and `row_end`, and that they are never NULL."""
HASH = "DB_ROW_HASH_"
"""What names begin with of the columns that MariaDB keeps for UNIQUE keys that are too long for an index."""
_ROW_START_END = (
    Column("row_start", "timestamp", hidden=True),
    Column("row_end", "timestamp", row_end=True, hidden=True),
)


def fit(schema: TableSchema, columns: Sequence[MapColumn], *, is_mariadb: bool = False) -> TableSchema:
    """The schema of rows that come with this TABLE_MAP.

    It is ``schema``, and on MariaDB behind its columns those that the server writes in rows and lists nowhere:
    `row_start` and `row_end` of WITH SYSTEM VERSIONING, `DB_ROW_HASH_1` … of UNIQUE keys over long columns.

    Raises SchemaError, with both definitions, where number, types or metadata of the columns contradict ``schema``.
    Lengths of VARCHAR, DECIMAL and the like are not compared: the TABLE_MAP has them, and reading needs no more.
    """
    fitted = with_hidden(schema, columns) if is_mariadb else schema
    if len(fitted.columns) != len(columns):
        raise _contradiction(schema, columns, f"{len(columns)} columns, and {len(schema.columns)} were wanted")
    for number, (column, row) in enumerate(zip(schema.columns, columns, strict=False), 1):
        if not fits(column, row):
            raise _contradiction(schema, columns, f"column {number} is {_shown(row)}, and `{column.name}` was wanted")
    return fitted


def with_hidden(schema: TableSchema, columns: Sequence[MapColumn]) -> TableSchema:
    """``schema`` with the columns that MariaDB writes behind its own, as far as ``columns`` of a TABLE_MAP look so."""
    # Of the inner table of an outer join, which an UPDATE may name, MariaDB says that all columns may be NULL.
    joined = all(row.nullable for row in columns) and any(column.nullable is False for column in schema.columns)
    behind = columns[len(schema.columns) :]
    hidden = hidden_columns([replace(row, nullable=False) for row in behind] if joined else behind)
    return replace(schema, columns=(*schema.columns, *hidden)) if hidden else schema


def with_row_end(columns: Sequence[Column], key: Sequence[int]) -> list[Column]:
    """The columns of a table of which only FULL metadata tells, those marked that MariaDB hides: the last two but for
    hashes, if they are named so and the server has put the second into the key."""
    kept = [column for column in columns if not column.name.startswith(HASH)]
    names = [(column.name, column.data_type, column.datetime_precision) for column in kept[-2:]]
    if names != [(column.name, column.data_type, 6) for column in _ROW_START_END] or key[-1:] != (len(kept) - 1,):
        return list(columns)
    start, end = kept[-2:]
    marked = [replace(start, hidden=True), replace(end, row_end=True, hidden=True)]
    return [*kept[:-2], *marked, *columns[len(kept) :]]


def hidden_columns(columns: Sequence[MapColumn]) -> tuple[Column, ...]:
    """What the last columns of a MariaDB TABLE_MAP are where the table lists none for them; shorter than ``columns``
    where they are something else."""
    versioning: tuple[Column, ...] = ()
    if [(column.wire, column.meta, column.nullable) for column in columns[:2]] == [_ROW_TIMESTAMP] * 2:
        versioning, columns = _ROW_START_END, columns[2:]
    hashes = range(1, 1 + sum(column.wire is column_types.LONGLONG for column in columns))
    return versioning + tuple(Column(f"{HASH}{number}", "bigint", unsigned=True) for number in hashes)


def fits(column: Column, row: MapColumn) -> bool:
    """Whether a column of a TABLE_MAP can be ``column``, by its type, sign and size; lengths are not compared."""
    data_type = DATA_TYPES.get(column.data_type)
    if data_type is None or not data_type.wire:  # a type of a later server: nothing is known to be wrong
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


def _shown(row: MapColumn) -> str:
    sign = " unsigned" if row.unsigned else ""
    is_binary = row.collation == BINARY
    name = data_type_name(row.wire, row.meta, is_binary=is_binary)
    return f"{name or row.wire.name}[{row.meta}]{sign}"


def _contradiction(schema: TableSchema, columns: Sequence[MapColumn], what: str) -> SchemaError:
    name = f"{schema.database}.{schema.table}"
    known = ", ".join(f"{column.name} {column.data_type}{' unsigned' * column.unsigned}" for column in schema.columns)
    return SchemaError(
        f"rows of {name} contradict what is known of its columns: {what}. The binlog has "
        f"({', '.join(map(_shown, columns))}); known is ({known}). A definition was not followed, or the table was "
        "changed without the binlog. Learn it again from the server with "
        f"`changefeed schema PIPELINE --relearn {name}`, or set binlog_row_metadata=FULL, so that the binlog "
        "names its columns."
    )
