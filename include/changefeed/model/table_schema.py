"""What a table's columns and keys are, as far as somebody who reads its rows or describes them wants to know.

A schema comes from `information_schema`, from a definition statement or from a TABLE_MAP. The first two know everything
here; a TABLE_MAP knows no defaults, no comments and no keys but the primary one. What is not known is None, which is
never to be read as "no".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from changefeed.model.charset_codes import charset_of_name, max_bytes


@dataclass(frozen=True)
class Default:
    """What a column holds in a row that does not name it.

    ``text`` is the value as MySQL lists it in `information_schema.columns.column_default`: "1.50" of DECIMAL(5,2),
    "2001-02-03 00:00:00.000" of DATETIME(3), "b'101'" of BIT, "0x6162" of BINARY. With ``is_sql`` it is an expression
    that the server works out for each row, or a literal that is not worked out here: SQL in the spelling of
    `ddl.expression_spelling`. The current time is always "CURRENT_TIMESTAMP" or "CURRENT_TIMESTAMP(6)".

    ``text`` is None where there is no default: the value is NULL then if the column is nullable, and must be given
    otherwise.
    """

    text: str | None
    is_sql: bool = False


NO_DEFAULT = Default(None)


def current_time(digits: int) -> Default:
    """The default of a column that gets the time of its row, with so many digits of a second's fraction."""
    return Default(f"CURRENT_TIMESTAMP({digits})" if digits else "CURRENT_TIMESTAMP", is_sql=True)


def is_current_time(default: Default) -> bool:
    """Whether it is what `current_time` makes."""
    return default.is_sql and (default.text or "").startswith("CURRENT_TIMESTAMP")


@dataclass(frozen=True)
class Column:
    """One column as the server defines it.

    ``data_type`` is `information_schema.columns.data_type` in lower case ("bigint", "enum", "inet6"), ``collation`` the
    collation's name or None, ``labels`` those of ENUM and SET in order, ``srid`` that of a geometry column. An
    invisible or virtual-generated column has its position among the others: the binlog has it if the table map has it.

    ``length`` counts the characters of CHAR and VARCHAR, the bytes of BINARY and VARBINARY, the bits of BIT, the
    dimensions of VECTOR; of integers it is the display width, and only where MySQL still lists one: TINYINT(1) and
    ZEROFILL. ``precision`` and ``scale`` are those of DECIMAL, and of FLOAT(M,D) and DOUBLE(M,D);
    ``datetime_precision`` counts the digits of a fraction of TIME, DATETIME and TIMESTAMP. Each is None for the other
    types. The properties after it are None where they are not known.
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
    """Whether MariaDB keeps in it when a row of a system-versioned table became history."""
    hidden: bool = False
    """Whether no SELECT * has it, nor `information_schema`: messages leave it out."""


@dataclass(frozen=True)
class Index:
    """An index other than the primary key: the positions (from 0) of its columns in its own order, None for a part
    that is an expression. Of a unique index ``lengths`` are those of parts that are only the beginning of their column,
    None for other parts; empty where all are complete.

    ``for_foreign_key``: the server added it for a foreign key, and takes it away when another index can take over.
    `information_schema` does not tell, so it is False of indexes learned there.
    """

    name: str
    columns: tuple[int | None, ...]
    unique: bool = False
    for_foreign_key: bool = field(default=False, compare=False)
    lengths: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class UniqueKey:
    """Columns, by position (from 0), whose values together stand in one row only.

    ``not_null`` says that this holds for every row: with a NULL among them the same values may come again.
    ``may_be_primary`` says that the server takes it for a primary key, where the table has none and no such key before
    it: all columns are NOT NULL, none is virtual, and the key has them whole, neither their beginnings nor their hash.
    """

    name: str
    columns: tuple[int, ...]
    not_null: bool
    may_be_primary: bool


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in the order of its rows, and the positions (from 0) of its primary key's columns, in the
    key's own order; empty where there is no primary key.

    ``indexes`` are the others in the order of `ordered_indexes`, None where they are not known.
    """

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
    indexes: tuple[Index, ...] | None = None
    is_published: bool = True
    """False where its rows are counted and left out: they come before the table's first known definition."""
    other_names: tuple[tuple[str, int], ...] = ()
    """Names, in lower case, that columns at these positions have in other definitions of the table, where a setting
    names a column that this one does not have."""

    @property
    def versioned_by_transaction(self) -> bool:
        """Whether MariaDB keeps history of its rows by transaction ids, and not by times."""
        return any(column.row_end and column.data_type == "bigint" for column in self.columns)

    def reads_like(self, other: TableSchema) -> bool:
        """Whether rows and keys are read with either schema alike, whatever else is known of the columns."""
        return self._as_read == other._as_read

    @property
    def _as_read(self) -> tuple[object, ...]:
        columns = [(c.name, c.data_type, c.unsigned, c.collation, c.labels, c.srid) for c in self.columns]
        return self.database, self.table, columns, self.primary_key

    @property
    def row_end(self) -> int | None:
        """The position of the column that says when a row became history; None where the table keeps none, or it is not
        known."""
        return next((position for position, column in enumerate(self.columns) if column.row_end), None)

    @property
    def keys_of_current_rows(self) -> TableSchema:
        """The table with keys as they were defined: MariaDB adds the row end to each that is unique."""
        end = self.row_end
        if end is None:
            return self
        indexes = self.indexes and tuple(_without(index, end) if index.unique else index for index in self.indexes)
        key = tuple(column for column in self.primary_key if column != end)
        return replace(self, primary_key=key, indexes=indexes)

    @property
    def unique_keys(self) -> tuple[UniqueKey, ...] | None:
        """The unique keys besides the primary key, in the server's order; None where they are not known.

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


def ordered_indexes(indexes: Iterable[Index], columns: Sequence[Column]) -> tuple[Index, ...]:
    """``indexes`` of a table of ``columns`` in the order in which servers keep them, as far as that matters.

    Unique ones come first, those before others that the server may take for a primary key, and else as they were
    defined, which is the order that ``indexes`` must have. The others are in the order of their names, without regard
    to case.
    """
    by_name = sorted(indexes, key=lambda index: "" if index.unique else index.name.lower())
    return tuple(sorted(by_name, key=lambda index: (not index.unique, *_unique_order(index, columns))))


_MOST_PART_BYTES, _MOST_KEY_BYTES = 3072, 3500
"""Of an index of InnoDB. MariaDB makes an index of hashes of a unique key that has more; MySQL refuses it."""


def _unique_order(index: Index, columns: Sequence[Column]) -> tuple[bool, bool, bool, bool]:
    """What a unique index sorts by: whether it is of hashes, has a column that may be NULL, is over beginnings of
    columns, or has a virtual column.

    Source: `sort_keys` in sql/sql_table.cc of both servers, which each CREATE TABLE and ALTER TABLE goes through.
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
    """The most bytes that a column, or so many characters of it, take in an index; 0 for types that are short."""
    if length is None and column.data_type in _UNLIMITED:
        return _MOST_KEY_BYTES + 1
    characters = length if length is not None else column.length
    if column.data_type not in ("char", "varchar", "binary", "varbinary") and length is None:
        return 0
    return (characters or 0) * max_bytes(charset_of_name(column.collation or "binary"))
