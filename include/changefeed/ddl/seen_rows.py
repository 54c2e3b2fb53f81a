"""Rows of a table in the binlog, as their TABLE_MAP shows them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changefeed.ddl.names import TableName
from changefeed.model.column_types import MapColumn
from changefeed.model.coordinates import BinlogCoordinates


@dataclass(frozen=True)
class SeenRows:
    """Rows events of a table that follow each other with the same TABLE_MAP; ``first`` is where the first one's is."""

    name: TableName
    first: BinlogCoordinates
    columns: tuple[MapColumn, ...]
    rows: int

    @property
    def names_columns(self) -> bool:
        """Whether the rows name their columns, so that nobody needs to know the table."""
        return bool(self.columns) and self.columns[0].name is not None


class RowsByTable:
    """Rows of a range of the binlog, by table."""

    def __init__(self, rows: Iterable[SeenRows]) -> None:
        self._rows: dict[TableName, list[SeenRows]] = defaultdict(list)
        for seen in sorted(rows, key=lambda seen: seen.first):
            self._rows[seen.name].append(seen)

    @property
    def names(self) -> Sequence[TableName]:
        """Tables that have rows."""
        return list(self._rows)

    def between(
        self, name: TableName, after: BinlogCoordinates | None, before: BinlogCoordinates | None
    ) -> list[SeenRows]:
        """The rows of a table behind one statement and before another; None for the ends of the range."""
        rows = self._rows.get(name, [])
        first = 0 if after is None else bisect_right(rows, after, key=lambda seen: seen.first)
        end = len(rows) if before is None else bisect_left(rows, before, key=lambda seen: seen.first)
        return rows[first:end]
