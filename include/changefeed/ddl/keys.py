"""A table's keys by the names of their columns, and the indexes that the server creates for added keys.

Source: `mysql_prepare_create_table` and `make_unique_key_name` in sql/sql_table.cc of both servers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.ddl.charsets import charset_of
from changefeed.ddl.contradiction import ContradictionError
from changefeed.ddl.table_elements import KeyDefinition, KeyKind, Period
from changefeed.model.charset_codes import max_bytes
from changefeed.model.table_schema import Column, Index, ordered_indexes

MOST_KEYS = 256
"""Limit of a table's keys. Servers allow 64, or 128 in some builds."""


@dataclass(frozen=True)
class NamedIndex:
    """An `Index` with names of columns, because positions change during ALTER TABLE. An expression is None."""

    name: str
    columns: tuple[str | None, ...]
    unique: bool
    for_foreign_key: bool = False
    lengths: tuple[int | None, ...] = ()
    precedes_key: bool = False
    """Whether the statement defines a PRIMARY KEY after it, which makes columns NOT NULL."""

    @classmethod
    def of(cls, index: Index, names: Sequence[str]) -> NamedIndex:
        """``index`` of a table whose columns are called ``names``."""
        parts = tuple(None if part is None else names[part] for part in index.columns)
        return cls(index.name, parts, index.unique, index.for_foreign_key, index.lengths)

    def with_parts(self, names: Mapping[str, str], prefixes: Mapping[str, int]) -> NamedIndex:
        """The index with only the columns in ``names`` (lower case -> new name), under their new names.

        ``prefixes`` has the new lengths of parts that were complete, by the old names of their columns. Lengths of an
        index that is not unique are not kept.
        """
        lengths = self.lengths or (None,) * len(self.columns)
        prefixes = prefixes if self.unique else {}
        kept = [
            (part and names[part.lower()], length or (prefixes.get(part.lower()) if part else None))
            for part, length in zip(self.columns, lengths, strict=True)
            if part is None or part.lower() in names
        ]
        return replace(self, columns=tuple(part for part, _ in kept), lengths=_lengths(length for _, length in kept))


def with_keys(
    indexes: Sequence[NamedIndex], keys: Iterable[KeyDefinition], columns: Sequence[Column], primary_key: Sequence[str]
) -> list[NamedIndex]:
    """``indexes``, and the indexes that ``keys`` add. An index without a name gets a generated name.

    A foreign key has its own index only as long as neither another index nor the primary key begins with its columns.
    Raises ContradictionError for more keys than a server allows.
    """
    everything, keys = list(indexes), list(keys)
    if len(everything) + len(keys) > MOST_KEYS:
        raise ContradictionError(
            f"it has {len(everything) + len(keys)} keys, and no server allows more than {MOST_KEYS}"
        )
    foreign = []
    for key in keys:
        match key.kind:
            case KeyKind.UNIQUE | KeyKind.OTHER:
                name = key.name or (key.columns[0] or "" if key.if_not_exists else "")
                if not (key.if_not_exists and is_named(everything, name)):
                    everything = _without_redundant(everything, [key.columns])
                    everything.append(_name_index(key, everything, columns))
            case KeyKind.FOREIGN:
                foreign.append(key)
            case KeyKind.PRIMARY:
                everything = [replace(index, precedes_key=True) for index in everything]
    for key in foreign:
        if not _covers([primary_key, *(index.columns for index in everything)], key.columns):
            everything.append(_name_index(key, everything, columns))
    return _without_redundant(everything, [primary_key])


def _without_redundant(indexes: Sequence[NamedIndex], others: Sequence[Sequence[str | None]]) -> list[NamedIndex]:
    """The indexes without those of foreign keys whose columns are the first columns of one of ``others``."""
    return [index for index in indexes if not (index.for_foreign_key and _covers(others, index.columns))]


def _covers(others: Iterable[Sequence[str | None]], columns: Sequence[str | None]) -> bool:
    return any(_lower_names(other)[: len(columns)] == _lower_names(columns) for other in others)


def is_named(indexes: Iterable[NamedIndex], name: str) -> bool:
    """Whether one of ``indexes`` has this name."""
    return any(index.name.lower() == name.lower() for index in indexes)


def indexes_at(
    indexes: Iterable[NamedIndex], columns: Sequence[Column], before_key: Sequence[Column] | None = None
) -> tuple[Index, ...]:
    """The indexes with positions of columns in place of names, in the order of `ordered_indexes`.

    ``before_key`` are the columns before the PRIMARY KEY of the same statement makes its columns NOT NULL: the server
    sorts the keys that it read earlier by them.

    A missing column counts as an expression, because MariaDB has keys over columns of periods that it does not list.
    """
    numbers = {column.name.lower(): number for number, column in enumerate(columns)}
    placed = []
    for index in indexes:
        parts = tuple(numbers.get((name or "").lower()) for name in index.columns)
        written = index.lengths or (None,) * len(parts)
        lengths = _lengths(
            None if part is None else _listed_length(columns[part], length, is_unique=index.unique)
            for part, length in zip(parts, written, strict=False)
        )
        then = before_key if before_key and index.precedes_key else columns
        placed.append((Index(index.name, parts, index.unique, index.for_foreign_key, lengths), then))
    return ordered_indexes((index, columns) for index in ordered_indexes(placed))


def named_parts(key: KeyDefinition) -> tuple[str, ...]:
    """The columns of a key, without its expressions."""
    return tuple(name for name in key.columns if name is not None)


def over_columns(key: KeyDefinition, periods: Iterable[Period]) -> KeyDefinition:
    """The key with the columns of a period in place of the period's name. MariaDB puts the end before the start."""
    ends = {period.name: (period.end, period.start) for period in periods}
    columns: list[str | None] = []
    lengths: list[int | None] = []
    for number, name in enumerate(key.columns):
        named = ends.get(name or "", (name,))
        columns += named
        lengths += [key.lengths[number] if key.lengths else None] * len(named)
    return replace(key, columns=tuple(columns), lengths=_lengths(lengths))


def without_null(column: Column, names: Collection[str]) -> Column:
    """The column, which is NOT NULL if its name is in ``names``."""
    is_named = column.name.lower() in {name.lower() for name in names}
    return replace(column, nullable=False) if is_named else column


def positions_of(columns: Sequence[Column], names: Sequence[str]) -> tuple[int, ...]:
    """The positions of the columns called ``names``. Raises ContradictionError for a missing column."""
    return tuple(position_of(columns, name) for name in names)


def position_of(columns: Sequence[Column], name: str) -> int:
    """The position of the column called ``name``. Raises ContradictionError if it is missing."""
    for number, column in enumerate(columns):
        if column.name.lower() == name.lower():
            return number
    raise ContradictionError(f"it has no column `{name}`")


def _name_index(key: KeyDefinition, others: Sequence[NamedIndex], columns: Sequence[Column]) -> NamedIndex:
    """The index of ``key``. Without a name, it is named after its first column: `column`, `column_2`, `column_3` …"""
    name = key.name
    if not name:
        part = (key.columns[0] or "functional_index").lower()
        first = name = next((column.name for column in columns if column.name.lower() == part), part)
        number = 1
        while is_named(others, name) or name.upper() == "PRIMARY":
            number += 1
            name = f"{first}_{number}"
    return NamedIndex(
        name,
        key.columns,
        key.kind is KeyKind.UNIQUE,
        key.kind is KeyKind.FOREIGN,
        key.lengths if key.kind is KeyKind.UNIQUE else (),
    )


_BYTES = {"tinyint": 1, "year": 1, "smallint": 2, "mediumint": 3, "date": 3, "int": 4, "float": 4} | dict.fromkeys(
    ("bigint", "double"), 8
)
_TEMPORAL_BYTES = {"time": 3, "timestamp": 4, "datetime": 5}


def kept_prefix(before: Column, after: Column) -> int | None:
    """The prefix length of an index's part over a complete column ``before`` that one statement replaces by ``after``.

    The server keeps the length in bytes if ``before`` is dropped and ``after`` is a new column. MySQL does so also if
    an ENUM or SET becomes a string. None if the part is the complete column.

    Source: `mysql_prepare_alter_table` in sql/sql_table.cc of both servers.
    """
    if not is_string(after):
        return None
    kind = before.data_type
    if before.labels:
        return _label_bytes(before) // max_bytes(charset_of(before.collation or "binary")) or None
    if kind == "bit":
        return -(-(before.length or 1) // 8)
    if kind == "decimal":
        digits = ((before.precision or 10) - (before.scale or 0), before.scale or 0)
        return sum(count // 9 * 4 + (count % 9 + 1) // 2 for count in digits)
    if kind in _TEMPORAL_BYTES:
        return _TEMPORAL_BYTES[kind] + ((before.datetime_precision or 0) + 1) // 2
    return before.length or _BYTES.get(kind)


def _label_bytes(column: Column) -> int:
    """The size of a value of an ENUM or SET."""
    if column.data_type == "enum":
        return 1 + (len(column.labels) > 255)
    size = -(-len(column.labels) // 8)
    return size if size <= 4 else 8


def has_longer_text(column: Column) -> bool:
    """Whether the text of an ENUM or SET can be longer than its value. Otherwise a key over it stays complete."""
    lengths = [len(label) for label in column.labels]
    longest = max(lengths) if column.data_type == "enum" else sum(lengths) + len(lengths) - 1
    return longest * max_bytes(charset_of(column.collation or "binary")) != _label_bytes(column)


def is_string(column: Column) -> bool:
    """Whether a key can have a prefix of the column. Keys over a POINT have a length too."""
    return column.data_type in _BINARY_STRINGS or (column.collation is not None and not column.labels)


_BINARY_STRINGS = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_POINT_BYTES = 25
"""The default length of a key over a POINT."""


def _listed_length(column: Column, length: int | None, *, is_unique: bool) -> int | None:
    """The length of an index's part in the server's list; None if the part is the complete column."""
    if length is None:
        return _POINT_BYTES if is_unique and column.data_type == "point" else None
    if column.data_type != "point" and not is_string(column):
        return None
    return None if column.length is not None and length >= column.length else length


def _lengths(lengths: Iterable[int | None]) -> tuple[int | None, ...]:
    """``lengths`` of an index's parts; empty if all parts are complete."""
    each = tuple(lengths)
    return each if any(length is not None for length in each) else ()


def _lower_names(names: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(name.lower() if name is not None else None for name in names)
