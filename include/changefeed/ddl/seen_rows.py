"""Rows of tables in the binlog, as their TABLE_MAPs show them."""

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
    """Consecutive rows events of a table with the same TABLE_MAP. ``first`` has the coordinates of the first one."""

    name: TableName
    first: BinlogCoordinates
    columns: tuple[MapColumn, ...]
    rows: int

    @property
    def names_columns(self) -> bool:
        """Whether the TABLE_MAP has the names of the columns, so that no schema is needed."""
        return bool(self.columns) and self.columns[0].name is not None


class RowsByTable:
    """The rows in a range of the binlog, by table."""

    def __init__(self, rows: Iterable[SeenRows]) -> None:
        self._rows: dict[TableName, list[SeenRows]] = defaultdict(list)
        for seen in sorted(rows, key=lambda seen: seen.first):
            self._rows[seen.name].append(seen)

    @property
    def names(self) -> Sequence[TableName]:
        """The tables that have rows."""
        return list(self._rows)

    def between(
        self, name: TableName, after: BinlogCoordinates | None, before: BinlogCoordinates | None
    ) -> list[SeenRows]:
        """The rows of a table after one statement and before another. None means an end of the range."""
        rows = self._rows.get(name, [])
        first = 0 if after is None else bisect_right(rows, after, key=lambda seen: seen.first)
        end = len(rows) if before is None else bisect_left(rows, before, key=lambda seen: seen.first)
        return rows[first:end]
