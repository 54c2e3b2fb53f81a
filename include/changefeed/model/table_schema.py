"""What a table's columns and keys are, as far as somebody who reads its rows or describes them wants to know.

A schema comes from `information_schema`, from a definition statement or from a TABLE_MAP. The first two know everything
here; a TABLE_MAP knows no defaults, no comments and no keys but the primary one. What is not known is None, which is
never to be read as "no".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


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
    default: Default | None = None
    comment: str | None = None
    row_end: bool | None = None
    """Whether MariaDB keeps in it when a row of a system-versioned table became history."""
    hidden: bool = False
    """Whether no SELECT * has it, nor `information_schema`: messages leave it out."""


@dataclass(frozen=True)
class Index:
    """An index other than the primary key: the positions (from 0) of its columns in its own order, None for a part
    that is an expression. A part may be a prefix of its column.

    ``for_foreign_key``: the server added it for a foreign key, and takes it away when another index can take over.
    `information_schema` does not tell, so it is False of indexes learned there.
    """

    name: str
    columns: tuple[int | None, ...]
    unique: bool = False
    for_foreign_key: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class UniqueKey:
    """Columns, by position (from 0), whose values together stand in one row only.

    ``not_null`` says that this holds for every row, so that the key can stand in for a primary key: with a NULL among
    them the same values may come again.
    """

    name: str
    columns: tuple[int, ...]
    not_null: bool


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in the order of its rows, and the positions (from 0) of its primary key's columns, in the
    key's own order; empty where there is no primary key.

    ``indexes`` are the others in the order of their names, None where they are not known.
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
        indexes = self.indexes and tuple(
            replace(index, columns=tuple(column for column in index.columns if column != end))
            if index.unique
            else index
            for index in self.indexes
        )
        key = tuple(column for column in self.primary_key if column != end)
        return replace(self, primary_key=key, indexes=indexes)

    @property
    def unique_keys(self) -> tuple[UniqueKey, ...] | None:
        """The unique keys besides the primary key, in the order of their names; None where they are not known.

        Keys over an expression are left out: no column has their value.
        """
        if self.indexes is None:
            return None
        keys = []
        for index in self.indexes:
            columns = tuple(column for column in index.columns if column is not None)
            if index.unique and len(columns) == len(index.columns):
                not_null = all(self.columns[column].nullable is False for column in columns)
                keys.append(UniqueKey(index.name, columns, not_null))
        return tuple(keys)


def ordered_indexes(indexes: list[Index]) -> tuple[Index, ...]:
    """Indexes in the order of their names, which compare without regard to case."""
    return tuple(sorted(indexes, key=lambda index: index.name.lower()))
