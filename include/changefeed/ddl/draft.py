"""A table as far as it is known before a statement that was read backwards, and its columns found in its rows."""

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
_UTF8 = {"utf8": "utf8mb3"}  # as servers before MySQL 8.0.30 and MariaDB 10.6 call it
_MAY_BE_UUID = (4, 16)
"""Bytes of a BINARY column of MariaDB that may as well be an INET4, INET6 or UUID."""


class UnresolvedError(Exception):
    """What a table was cannot be derived; the text says what of it. Never leaves this room."""


@dataclass(frozen=True)
class Slot:
    """A column: ``column`` is None where its rows alone say its type, which ``since`` explains."""

    name: str
    column: Column | None
    since: str = ""


@dataclass(frozen=True)
class Draft:
    """A table before a statement. Of ``floating`` columns the place among ``slots`` is not known.

    ``key`` has the names of the primary key's columns, None where it is not known; the columns of ``doubted`` may have
    been part of it if they could not be NULL. ``indexes`` is None where they are not known.
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
        """A table that is known."""
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
        """How many columns the table has."""
        return len(self.slots) + len(self.floating)

    def table(self) -> Table:
        """The table; raises UnresolvedError where something of it is not known."""
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

    def settled(self, seen: SeenRows, server: Server, collations: Mapping[int, str]) -> Draft:
        """The draft with the types and places that ``seen`` shows. Raises UnresolvedError where that is not enough."""
        rows = self._own_columns(seen.columns, server)
        ordered = _placed(self.slots, self.floating, rows, collations)
        slots = tuple(
            slot if slot.column is not None else replace(slot, column=_column(slot, row, server, collations))
            for slot, row in zip(ordered, rows, strict=True)
        )
        if server.is_mariadb and all(row.nullable for row in rows):
            return replace(self, slots=slots, floating=())  # as of the inner table of an outer join, whatever it is
        slots = tuple(
            replace(slot, column=replace(slot.column, nullable=row.nullable))
            if slot.column is not None and slot.column.nullable is None
            else slot
            for slot, row in zip(slots, rows, strict=True)
        )
        not_null = {slot.name for slot, row in zip(slots, rows, strict=True) if not row.nullable}
        return replace(self, slots=slots, floating=(), doubted=self.doubted & not_null)

    def partly(self, seen: SeenRows, collations: Mapping[int, str]) -> tuple[Column | None, ...]:
        """What is known of each column of rows that do not tell all; None for a column whose name is not known."""
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
                    for slot, row in zip(_inserted(self.slots, place, self.floating[0]), rows, strict=False)
                )
            ]
            if not fitting:
                return ()
            early = _inserted(self.slots, fitting[0], self.floating[0])
            late = _inserted(self.slots, fitting[-1], self.floating[0])
        return tuple(
            None if one is not other else one.column or shown_column(one.name, row, collations)
            for one, other, row in zip(early, late, rows, strict=False)
        )

    def _own_columns(self, columns: Sequence[MapColumn], server: Server) -> Sequence[MapColumn]:
        """The columns without those that MariaDB writes behind the table's own."""
        extra = len(columns) - self.column_count
        if extra > 0 and server.is_mariadb:
            behind = [replace(column, nullable=False) for column in columns[self.column_count :]]
            hidden = hidden_columns(behind)
            if len(hidden) == extra and sum(column.unsigned for column in hidden) <= self._hashed_keys:
                return columns[: self.column_count]
        if extra:
            raise UnresolvedError(
                f"its rows have {len(columns)} columns, and {self.column_count} follow from the statements behind them"
            )
        return columns

    @property
    def _hashed_keys(self) -> int:
        """How many unique keys may be too long for an index, so that MariaDB hides a hash of each in the rows."""
        long = {slot.name for slot in self.slots if slot.column is not None and _is_long(slot.column)}
        return sum(index.unique and bool(long.intersection(index.columns)) for index in self.indexes or ())


def _is_long(column: Column) -> bool:
    """Whether a unique key over the column may be too long for an index, which takes 3072 bytes."""
    return column.data_type.endswith(("text", "blob")) or (column.length or 0) > _INDEXED_CHARACTERS


def fits_rows(table: Table, seen: SeenRows, server: Server, collations: Mapping[int, str]) -> bool:
    """Whether ``table`` can have the rows that were seen."""
    try:
        Draft.of(table).settled(seen, server, collations)
    except UnresolvedError:
        return False
    return True


def _placed(
    slots: Sequence[Slot], floating: Sequence[Slot], rows: Sequence[MapColumn], collations: Mapping[int, str]
) -> list[Slot]:
    """All columns in the order of ``rows``: ``slots`` in theirs, and ``floating`` wherever they fit.

    Raises UnresolvedError unless there is one order only.
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
        raise UnresolvedError("its rows have other columns than those that follow from the statements behind them")
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


def _inserted(slots: Sequence[Slot], place: int, slot: Slot) -> list[Slot]:
    return [*slots[:place], slot, *slots[place:]]


def _column(slot: Slot, row: MapColumn, server: Server, collations: Mapping[int, str]) -> Column:
    """The column that a TABLE_MAP alone shows; raises UnresolvedError for what it does not show."""
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
    """A column as far as a TABLE_MAP shows it: without labels, and with a sign and character set where it has them."""
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
