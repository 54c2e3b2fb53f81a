"""A row change as users' functions see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

__all__ = ["Change"]

Op = Literal["c", "u", "d", "r"]
Row = dict[str, Any]
"""Column values by name, as a JSON record of the pipeline has them: text, numbers, None; see `values` in the YAML for
DECIMAL, times, bytes and JSON documents."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where the change stands in the binlog: ``row`` counts the rows of the event at ``position``."""

    file: str
    position: int
    row: int

    def __str__(self) -> str:
        return f"{self.file}:{self.position} row {self.row}"


@dataclass(frozen=True, slots=True)
class Change:
    """One row change, for a function to return: as it is, or what `changed` makes of it; as several; or None.

    ``op`` is c, u, d, or r for a row that was read. ``before`` is None for c and r, ``after`` is None for d. With
    binlog_row_image=MINIMAL they lack columns. ``key`` names the columns that the message key is made of; () for none.
    ``topic`` is where the message goes. Those five may be changed. ``timestamp`` is the source's, in UTC and to the
    second; ``gtid`` is None where the transaction has none.
    """

    op: Op
    database: str
    table: str
    before: Row | None
    after: Row | None
    key: tuple[str, ...]
    topic: str
    timestamp: datetime
    gtid: str | None
    coordinates: Coordinates

    @property
    def row(self) -> Row:
        """The row that the change is about: ``before`` of a delete, else ``after``."""
        return (self.before if self.op == "d" else self.after) or {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """``before`` and ``after``, those that there are."""
        return tuple(row for row in (self.before, self.after) if row is not None)

    def changed(self, **fields: Any) -> Change:
        """A change like this one, with other ``fields``: `change.changed(topic="orders.eu")`."""
        return replace(self, **fields)
