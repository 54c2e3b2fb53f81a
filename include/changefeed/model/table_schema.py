"""Table schemas: columns and keys of a table, to read rows and to describe them in records.

A schema comes from `information_schema`, from a DDL statement or from a TABLE_MAP. The first two have all properties. A
TABLE_MAP has no defaults, no comments and no keys except the primary key. A property is None if it is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from changefeed.model.charset_codes import charset_of_name, max_bytes


@dataclass(frozen=True)
class Default:
    """The default of a column.

    - ``text`` is the value as MySQL lists it in `information_schema.columns.column_default`: "1.50" for DECIMAL(5,2),
      "2001-02-03 00:00:00.000" for DATETIME(3), "b'101'" for BIT, "0x6162" for BINARY.
    - With ``is_sql``, ``text`` is SQL in the spelling of `ddl.expression_spelling`: an expression that the server
      evaluates for each row, or a literal that changefeed does not evaluate. The current time is always
      "CURRENT_TIMESTAMP" or, with fractional digits, "CURRENT_TIMESTAMP(6)".
    - ``text`` is None if the column has no default. Then the value is NULL if the column is nullable, and required
      otherwise.
    """

    text: str | None
    is_sql: bool = False


NO_DEFAULT = Default(None)


def current_time(digits: int) -> Default:
    """The default CURRENT_TIMESTAMP with this number of fractional digits."""
    return Default(f"CURRENT_TIMESTAMP({digits})" if digits else "CURRENT_TIMESTAMP", is_sql=True)


def is_current_time(default: Default) -> bool:
    """Whether ``default`` is a result of `current_time`."""
    return default.is_sql and (default.text or "").startswith("CURRENT_TIMESTAMP")


@dataclass(frozen=True)
class Column:
    """One column as the server defines it.

    | property | value |
    |---|---|
    | ``data_type`` | `information_schema.columns.data_type` in lower case ("bigint", "enum", "inet6") |
    | ``collation`` | name of the collation, or None |
    | ``labels`` | labels of ENUM and SET, in order |
    | ``srid`` | SRID of a geometry column |
    | ``length`` | characters of CHAR and VARCHAR, bytes of BINARY and VARBINARY, bits of BIT, dimensions of VECTOR |
    | ``length`` of integers | display width, if MySQL still lists one: for TINYINT(1) and with ZEROFILL |
    | ``precision``, ``scale`` | of DECIMAL, FLOAT(M,D) and DOUBLE(M,D) |
    | ``datetime_precision`` | fractional digits of TIME, DATETIME and TIMESTAMP |

    The last four are None for other types. ``nullable`` and the properties after it are None if they are not known. An
    invisible or virtual generated column has its position among the other columns. Rows have it if the table
    map has it.
    """

    name: str
    data_type: str
    unsigned: bool = False
    collation: str | None = None
    labels: tuple[str, ...] = ()
    srid: int | None = None
    length: int | None = None
    precision: int | None = None
    scale: int | None = None
    datetime_precision: int | None = None
    nullable: bool | None = None
    zerofill: bool | None = None
    auto_increment: bool | None = None
    generated: bool | None = None
    virtual: bool | None = None
    default: Default | None = None
    comment: str | None = None
    row_end: bool | None = None
    """Whether it is MariaDB's row end: the time when a row of a system-versioned table became history."""
    hidden: bool = False
    """Whether the column is missing in SELECT * and in `information_schema`. Messages leave it out."""


@dataclass(frozen=True)
class Index:
    """An index other than the primary key.

    - ``columns``: the positions (from 0) of the columns, in the order of the index; None for a part that is an
      expression.
    - ``lengths``: for a unique index, the prefix length of each part that covers only the beginning of its column, and
      None for other parts. Empty if all parts are complete columns.
    - ``for_foreign_key``: whether the server added the index for a foreign key. It removes such an index when another
      one can replace it. `information_schema` does not list this, so it is False for indexes read from there.
    """

    name: str
    columns: tuple[int | None, ...]
    unique: bool = False
    for_foreign_key: bool = field(default=False, compare=False)
    lengths: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class UniqueKey:
    """Columns, by position (from 0), whose values together are unique.

    ``not_null`` says that all columns are NOT NULL. Otherwise rows with a NULL in the key may have equal values.
    ``may_be_primary`` says that all columns are NOT NULL, that none is virtual, and that the key has their full values,
    no prefixes and no hash. If a table has no primary key, the server uses its first key of this kind as primary key.
    """

    name: str
    columns: tuple[int, ...]
    not_null: bool
    may_be_primary: bool


@dataclass(frozen=True)
class TableSchema:
    """The columns and keys of a table.

    - ``columns``: in the order of the rows.
    - ``primary_key``: the positions (from 0) of its columns, in the order of the key; empty without a primary key.
    - ``indexes``: the other indexes in the order of `ordered_indexes`; None if they are not known.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    indexes: tuple[Index, ...] | None = None
    is_published: bool = True
    """False if the rows are counted and not published, because they come before the first known DDL of the table."""
    other_names: tuple[tuple[str, int], ...] = ()
    """(name, position): names in lower case that the columns at these positions have in other versions of the table.

    A setting may name a column by such a name."""

    @property
    def versioned_by_transaction(self) -> bool:
        """Whether MariaDB versions the table's rows by transaction ids instead of times."""
        return any(column.row_end and column.data_type == "bigint" for column in self.columns)

    def reads_like(self, other: TableSchema) -> bool:
        """Whether rows and keys are read in the same way with both schemas."""
        return self._as_read == other._as_read

    @property
    def _as_read(self) -> tuple[object, ...]:
        columns = [(c.name, c.data_type, c.unsigned, c.collation, c.labels, c.srid) for c in self.columns]
        return self.database, self.table, columns, self.primary_key

    @property
    def row_end(self) -> int | None:
        """The position of the row end column; None without one, or if it is not known."""
        return next((position for position, column in enumerate(self.columns) if column.row_end), None)

    @property
    def keys_of_current_rows(self) -> TableSchema:
        """The table with its keys as DDL defined them, without the row end that MariaDB adds to each unique key."""
        end = self.row_end
        if end is None:
            return self
        indexes = self.indexes and tuple(_without(index, end) if index.unique else index for index in self.indexes)
        key = tuple(column for column in self.primary_key if column != end)
        return replace(self, primary_key=key, indexes=indexes)

    @property
    def unique_keys(self) -> tuple[UniqueKey, ...] | None:
        """The unique keys besides the primary key, in the server's order; None if they are not known.

        Keys over an expression are left out: no column has their value.
        """
        if self.indexes is None:
            return None
        keys = []
        for index in self.indexes:
            columns = tuple(column for column in index.columns if column is not None)
            if index.unique and len(columns) == len(index.columns):
                order = _unique_order(index, self.columns)
                keys.append(UniqueKey(index.name, columns, not order[1], not any(order)))
        return tuple(keys)


def _without(index: Index, column: int) -> Index:
    lengths = zip(index.columns, index.lengths, strict=False)
    return replace(
        index,
        columns=tuple(part for part in index.columns if part != column),
        lengths=tuple(length for part, length in lengths if part != column),
    )


def ordered_indexes(indexes: Iterable[tuple[Index, Sequence[Column]]]) -> tuple[Index, ...]:
    """The indexes of a table in the servers' order as far as changefeed needs it.

    1. Unique indexes that the server may use as primary key, in the order of definition
    2. Other unique indexes, sorted by `_unique_order` and then by definition
    3. Other indexes, by name without regard to case

    ``indexes`` must be in the order of definition. Each comes with the columns by which it is sorted.
    """
    by_name = sorted(indexes, key=lambda each: "" if each[0].unique else each[0].name.lower())
    return tuple(index for index, _ in sorted(by_name, key=lambda each: (not each[0].unique, *_unique_order(*each))))


_MOST_PART_BYTES, _MOST_KEY_BYTES = 3072, 3500
"""Limit of an InnoDB index in bytes. For a longer unique key MariaDB makes an index of hashes; MySQL refuses it."""


def _unique_order(index: Index, columns: Sequence[Column]) -> tuple[bool, bool, bool, bool]:
    """The sort key of a unique index: whether it has hashes, a nullable column, column prefixes, a virtual column.

    Source: `sort_keys` in sql/sql_table.cc of both servers, which runs for each CREATE TABLE and ALTER TABLE.
    """
    if not index.unique:
        return False, False, False, False
    parts = [None if part is None else columns[part] for part in index.columns]
    lengths = index.lengths or (None,) * len(parts)
    sizes = [_most_bytes(part, length) for part, length in zip(parts, lengths, strict=True) if part is not None]
    return (
        any(size > _MOST_PART_BYTES for size in sizes) or sum(sizes) > _MOST_KEY_BYTES,
        any(part is None or part.nullable is not False for part in parts),
        bool(index.lengths),
        any(part is None or part.virtual is not False for part in parts),
    )


_UNLIMITED = frozenset(
    {"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json"}
    | {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geomcollection", "geometrycollection"}
)


def _most_bytes(column: Column, length: int | None) -> int:
    """The maximum number of bytes of a column or its prefix in an index; 0 for short types."""
    if length is None and column.data_type in _UNLIMITED:
        return _MOST_KEY_BYTES + 1
    characters = length if length is not None else column.length
    if column.data_type not in ("char", "varchar", "binary", "varbinary") and length is None:
        return 0
    return (characters or 0) * max_bytes(charset_of_name(column.collation or "binary"))
