"""A draft of a table before a statement that was applied backwards: rows show its unknown properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.ddl.charsets import charset_of
from changefeed.ddl.contradiction import ContradictionError
from changefeed.ddl.keys import NamedIndex, indexes_at, positions_of
from changefeed.ddl.names import TableName
from changefeed.ddl.seen_rows import SeenRows
from changefeed.ddl.session import Server
from changefeed.ddl.table import Table
from changefeed.ddl.table_elements import Period
from changefeed.model.charset_codes import UNKNOWN, max_bytes
from changefeed.model.column_types import (
    DATA_TYPES,
    GEOMETRY,
    NEWDECIMAL,
    STRING,
    MapColumn,
    Measure,
    Metadata,
    data_type_name,
    data_types_of,
)
from changefeed.model.row_shape import BINARY, fits, hidden_columns
from changefeed.model.table_schema import Column, TableSchema

_MOST_FLOATING = 8
_INDEXED_CHARACTERS = 767
_UTF8 = {"utf8": "utf8mb3"}  # the name in servers before MySQL 8.0.30 and MariaDB 10.6
_MAY_BE_UUID = (4, 16)
"""Sizes of a BINARY column on MariaDB that may be an INET4, INET6 or UUID."""


class UnresolvedError(Exception):
    """A property of a table cannot be derived; the message names the property. Only this room catches it."""


@dataclass(frozen=True)
class Slot:
    """A column of a draft. ``column`` is None if only rows show its type; ``since`` then says why."""

    name: str
    column: Column | None
    since: str = ""


@dataclass(frozen=True)
class Draft:
    """A table before a statement. Some of its properties may be unknown.

    - ``slots``: the columns in order, without ``floating``
    - ``floating``: columns whose place among ``slots`` is unknown
    - ``key``: the names of the primary key's columns; None if unknown
    - ``doubted``: columns that may have been part of the primary key if they were NOT NULL
    - ``indexes``: None if unknown
    """

    name: TableName
    slots: tuple[Slot, ...]
    key: tuple[str, ...] | None
    indexes: tuple[NamedIndex, ...] | None
    collation: str
    generated_key: bool = False
    periods: tuple[Period, ...] = ()
    floating: tuple[Slot, ...] = ()
    doubted: frozenset[str] = frozenset()
    key_since: str = ""

    @classmethod
    def of(cls, table: Table) -> Draft:
        """The draft of a known table."""
        schema = table.schema
        names = [column.name for column in schema.columns]
        indexes = None if schema.indexes is None else tuple(NamedIndex.of(index, names) for index in schema.indexes)
        return cls(
            TableName(schema.database, schema.table),
            tuple(Slot(column.name, column) for column in schema.columns),
            tuple(names[position] for position in schema.primary_key),
            indexes,
            table.collation,
            table.generated_key,
            table.periods,
        )

    @property
    def column_count(self) -> int:
        """The number of columns."""
        return len(self.slots) + len(self.floating)

    def table(self) -> Table:
        """The table. Raises UnresolvedError if a property is unknown."""
        for slot in self.floating:
            raise UnresolvedError(f"the place of column `{slot.name}` is not known: {slot.since}")
        for slot in self.slots:
            if slot.column is None:
                raise UnresolvedError(f"the type of column `{slot.name}` is not known: {slot.since}")
        if self.key is None or self.doubted:
            raise UnresolvedError(self.key_since)
        columns = [slot.column for slot in self.slots if slot.column is not None]
        indexes = None if self.indexes is None else indexes_at(self.indexes, columns)
        try:
            key = positions_of(columns, self.key)
        except ContradictionError as error:
            raise UnresolvedError(f"its primary key contradicts its columns: {error}") from error
        schema = TableSchema(*self.name, tuple(columns), key, indexes)
        return Table(schema, self.collation, self.generated_key, self.periods)

    def resolve(self, seen: SeenRows, server: Server, collations: Mapping[int, str]) -> Draft:
        """The draft with the types and places that ``seen`` rows show.

        Raises UnresolvedError if they do not show all.
        """
        rows = self._own_columns(seen.columns, server)
        ordered = _place_columns(self.slots, self.floating, rows, collations)
        slots = tuple(
            slot if slot.column is not None else replace(slot, column=_column(slot, row, server, collations))
            for slot, row in zip(ordered, rows, strict=True)
        )
        if server.is_mariadb and all(row.nullable for row in rows):
            return replace(self, slots=slots, floating=())  # an outer join may have made its columns nullable
        slots = tuple(
            replace(slot, column=replace(slot.column, nullable=row.nullable))
            if slot.column is not None and slot.column.nullable is None
            else slot
            for slot, row in zip(slots, rows, strict=True)
        )
        not_null = {slot.name for slot, row in zip(slots, rows, strict=True) if not row.nullable}
        return replace(self, slots=slots, floating=(), doubted=self.doubted & not_null)

    def known_columns(self, seen: SeenRows, collations: Mapping[int, str]) -> tuple[Column | None, ...]:
        """The known properties of each column of ``seen`` rows; None for a column whose name is unknown."""
        rows, count = seen.columns, self.column_count
        if len(self.floating) > 1 or count > len(rows):
            return ()
        early = list(self.slots)
        late = list(self.slots)
        if not self.floating and not all(_fits(*pair, collations) for pair in zip(self.slots, rows, strict=False)):
            return ()
        if self.floating:
            fitting = [
                place
                for place in range(count)
                if all(
                    _fits(slot, row, collations)
                    for slot, row in zip(_insert(self.slots, place, self.floating[0]), rows, strict=False)
                )
            ]
            if not fitting:
                return ()
            early = _insert(self.slots, fitting[0], self.floating[0])
            late = _insert(self.slots, fitting[-1], self.floating[0])
        return tuple(
            None if one is not other else one.column or shown_column(one.name, row, collations)
            for one, other, row in zip(early, late, rows, strict=False)
        )

    def _own_columns(self, columns: Sequence[MapColumn], server: Server) -> Sequence[MapColumn]:
        """The columns without hidden columns, which MariaDB writes after the table's own."""
        extra = len(columns) - self.column_count
        if extra > 0 and server.is_mariadb:
            rest = [replace(column, nullable=False) for column in columns[self.column_count :]]
            hidden = hidden_columns(rest)
            if len(hidden) == extra and sum(column.unsigned for column in hidden) <= self._hashed_keys:
                return columns[: self.column_count]
        if extra:
            raise UnresolvedError(
                f"its rows have {len(columns)} columns, the statements after them require {self.column_count}"
            )
        return columns

    @property
    def _hashed_keys(self) -> int:
        """The number of unique keys that may be too long for an index. MariaDB adds a hidden hash column for each."""
        long = {slot.name for slot in self.slots if slot.column is not None and _is_long(slot.column)}
        return sum(index.unique and bool(long.intersection(index.columns)) for index in self.indexes or ())


def _is_long(column: Column) -> bool:
    """Whether a unique key over the column may exceed the limit of an index, 3072 bytes."""
    return column.data_type.endswith(("text", "blob")) or (column.length or 0) > _INDEXED_CHARACTERS


def fits_rows(table: Table, seen: SeenRows, server: Server, collations: Mapping[int, str]) -> bool:
    """Whether ``table`` can have the ``seen`` rows."""
    try:
        Draft.of(table).resolve(seen, server, collations)
    except UnresolvedError:
        return False
    return True


def _place_columns(
    slots: Sequence[Slot], floating: Sequence[Slot], rows: Sequence[MapColumn], collations: Mapping[int, str]
) -> list[Slot]:
    """All columns in the order of ``rows``: ``slots`` in their order, with ``floating`` at places that fit.

    Raises UnresolvedError unless exactly one order fits.
    """
    if len(floating) > _MOST_FLOATING:
        raise UnresolvedError(f"the places of {len(floating)} columns are not known: {floating[0].since}")
    every, count = (1 << len(floating)) - 1, len(rows)
    orders: dict[tuple[int, int], int] = {(count, every): 1}

    def choices(position: int, used: int) -> list[tuple[Slot, int]]:
        at = position - used.bit_count()
        following = [(slots[at], used)] if at < len(slots) else []
        following += [(slot, used | 1 << number) for number, slot in enumerate(floating) if not used >> number & 1]
        return [(slot, mask) for slot, mask in following if _fits(slot, rows[position], collations)]

    for position in range(count - 1, -1, -1):
        for used in range(every + 1):
            if 0 <= position - used.bit_count() <= len(slots):
                ways = sum(orders.get((position + 1, mask), 0) for _, mask in choices(position, used))
                orders[position, used] = min(ways, 2)
    found = orders.get((0, 0), 0)
    if found == 0:
        raise UnresolvedError("its rows have other columns than the statements after them require")
    if found > 1:
        names = ", ".join(f"`{slot.name}`" for slot in floating)
        raise UnresolvedError(f"its rows do not show the place of {names}: {floating[0].since}")
    ordered, used = [], 0
    for position in range(count):
        slot, used = next((s, m) for s, m in choices(position, used) if orders.get((position + 1, m), 0))
        ordered.append(slot)
    return ordered


def _fits(slot: Slot, row: MapColumn, collations: Mapping[int, str]) -> bool:
    column = slot.column
    if row.name is not None and row.name != slot.name:
        return False
    if column is None:
        return True
    return fits(column, row) and _has_charset(column, row, collations) and _has_measures(column, row)


def _has_charset(column: Column, row: MapColumn, collations: Mapping[int, str]) -> bool:
    collation = collations.get(row.collation) if row.collation is not None and row.wire.has_charset else None
    if collation is None or column.data_type == "vector":
        return True
    charset = charset_of(column.collation) if column.collation else "binary"
    return _UTF8.get(charset, charset) == _UTF8.get(own := charset_of(collation), own)


def _has_measures(column: Column, row: MapColumn) -> bool:
    data_type = DATA_TYPES.get(column.data_type)
    if data_type is None:
        return True
    if data_type.measure is Measure.FRACTION and row.wire.metadata is Metadata.BYTE:
        return column.datetime_precision in (None, row.meta)
    if row.wire is NEWDECIMAL:
        return column.precision is None or (column.precision, column.scale) == (row.meta >> 8, row.meta & 0xFF)
    if data_type.measure is Measure.LENGTH and row.wire.metadata is Metadata.LENGTH and not row.wire.is_compressed:
        width = max_bytes(charset_of(column.collation)) if column.collation else 1
        return column.length is None or column.data_type == "vector" or column.length * width == row.meta
    return True


def _insert(slots: Sequence[Slot], place: int, slot: Slot) -> list[Slot]:
    return [*slots[:place], slot, *slots[place:]]


def _column(slot: Slot, row: MapColumn, server: Server, collations: Mapping[int, str]) -> Column:
    """The column that a TABLE_MAP shows. Raises UnresolvedError for a property that the TABLE_MAP does not have."""
    wire, types = row.wire, data_types_of(row.wire)
    if wire.has_labels:
        raise UnresolvedError(f"the labels of column `{slot.name}` are not known: {slot.since}")
    if wire.has_sign and types and types[0].is_exact and wire is not NEWDECIMAL and row.unsigned is None:
        raise UnresolvedError(f"it is not known whether column `{slot.name}` was UNSIGNED: {slot.since}")
    if wire.has_charset and collations.get(-1 if row.collation is None else row.collation) is None:
        raise UnresolvedError(f"the character set of column `{slot.name}` is not known: {slot.since}")
    may_be_another = wire is GEOMETRY or (wire is STRING and row.collation == BINARY and row.meta in _MAY_BE_UUID)
    if not types or (server.is_mariadb and may_be_another):
        raise UnresolvedError(f"the type of column `{slot.name}` is not known: {slot.since}")
    return shown_column(slot.name, row, collations)


def shown_column(name: str, row: MapColumn, collations: Mapping[int, str]) -> Column:
    """The column that a TABLE_MAP shows: without labels, and with sign and charset if the TABLE_MAP has them."""
    collation = collations.get(-1 if row.collation is None else row.collation)
    is_binary = row.collation == BINARY
    data_type = "point" if row.is_point else data_type_name(row.wire, row.meta, is_binary=is_binary)
    has_text = row.wire.has_charset and not is_binary
    column = Column(
        name,
        data_type,
        bool(row.unsigned),
        (collation or UNKNOWN) if has_text else None,
        nullable=row.nullable,
        row_end=False,
    )
    measure = DATA_TYPES[data_type].measure if data_type in DATA_TYPES else Measure.NONE
    if row.wire is NEWDECIMAL:
        return replace(column, precision=row.meta >> 8, scale=row.meta & 0xFF)
    if measure is Measure.FRACTION:
        return replace(column, datetime_precision=row.meta)
    if measure is Measure.LENGTH and data_type != "vector" and column.collation != UNKNOWN:
        width = max_bytes(charset_of(column.collation)) if column.collation else 1
        return replace(column, length=row.meta // width)
    return column
