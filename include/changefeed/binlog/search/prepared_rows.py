"""The rows of XA transactions that are prepared at a position, which count again where they are committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from changefeed.model.coordinates import BinlogCoordinates

_MOST_TRANSACTIONS = 10_000
"""A transaction that was committed in one phase is never seen to end."""


@dataclass
class PreparedRows:
    """What `Finder.within_rows` knows of a range, for the range that begins at its end."""

    rows: dict[str, int] = field(default_factory=dict)
    """The number of rows by xid."""
    _at: tuple[str, BinlogCoordinates] | None = None
    """The server and the position that the rows are those of."""

    def begin(self, server_uuid: str, start: BinlogCoordinates) -> None:
        """A range begins at ``start``; the rows of another position are forgotten."""
        if self._at != (server_uuid, start):
            self.rows.clear()
        self._at = None

    def end(self, server_uuid: str, end: BinlogCoordinates) -> None:
        """The range ends at ``end``."""
        self._at = server_uuid, end

    def update(self, read: Mapping[str, int | None]) -> None:
        """Add the transactions of a part of the range; those with None have ended."""
        for xid, rows in read.items():
            self.rows.pop(xid, None)
            if rows is not None:
                self.rows[xid] = rows
        while len(self.rows) > _MOST_TRANSACTIONS:
            del self.rows[next(iter(self.rows))]
