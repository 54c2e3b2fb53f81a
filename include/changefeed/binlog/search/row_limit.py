"""Finds how far a range may reach for a number of row changes. A kernel counts the rows without decoding them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from changefeed.binlog.events.framing import HEADER_SIZE, DamagedEvent, EventType
from changefeed.binlog.events.query_event import Query, TransactionStep, xid_of, xid_of_gtid
from changefeed.binlog.kernel import hop
from changefeed.binlog.kernel.row_counts import COUNTS
from changefeed.binlog.search.file_ranges import FileRange, file_ranges
from changefeed.binlog.search.prepared_rows import PreparedRows
from changefeed.binlog.search.schema_scan import Scan
from changefeed.model.window import Slice

Chunks = Callable[[int], Iterable[bytes]]
"""The bytes of a file from a position on, up to the end of the range; see `boundaries`."""


class RowCounter(Scan):
    """Counts the rows of a range, of all tables, from its start up to commit boundaries.

    The rows of a prepared XA transaction count in its XA PREPARE, and again in its XA COMMIT, whose window publishes
    them. ``prepared`` has the rows of earlier prepared transactions.
    """

    def __init__(self, chunks: Iterable[bytes], slice: Slice, prepared: PreparedRows) -> None:
        super().__init__(slice)
        self._chunks, self._view = iter(chunks), memoryview(b"")
        self._prepared = prepared
        self._new_prepared: dict[str, int | None] = {}
        """The rows of XA transactions that this counter has read, by xid; None after their end."""
        self._of_earlier_maps = 0
        self._begun: tuple[str, int] | None = None
        """The xid of the current XA transaction, and the rows before it."""
        self.has_unknown = False
        """Whether there was an XA COMMIT of a transaction whose rows are not known."""

    @property
    def rows_before(self) -> int:
        """The rows up to the position that was read to."""
        return self._of_earlier_maps + int(self._counts[: COUNTS * len(self._slots) : COUNTS].sum())

    def read_to(self, position: int) -> None:
        """Count up to ``position``, a commit boundary. Raises BinlogFormatError, with coordinates, for bytes that are
        not a sequence of events."""
        walk = self.walk
        walk.state[hop.END] = position
        with walk.add_coordinates():
            self.go_on()
            while walk.position < position:
                while not len(self._view):
                    if (chunk := next(self._chunks, None)) is None:
                        raise DamagedEvent("the binlog ends here, before the position that it should reach")
                    self._view = memoryview(chunk).cast("B")
                self._view = self._view[walk.source.append(self._view) :]
                self.go_on()

    def end_of_rows(self) -> None:
        """See `Scan`; the sums stay."""
        self._of_earlier_maps = self.rows_before
        super().end_of_rows()
        self.rows.clear()
        self.statements.clear()

    def _look(self, event: bytes) -> None:
        kind = event[4]
        if kind in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            body = event[HEADER_SIZE : len(event) - self.walk.checksum_size]
            self._take_statement(Query.parse(body, compressed=kind == EventType.MARIADB_QUERY_COMPRESSED))
        elif kind == EventType.MARIADB_GTID:  # of an XA transaction, which has no XA START
            self._begun = xid_of_gtid(event[HEADER_SIZE:]), self.rows_before
        super()._look(event)

    def _take_statement(self, query: Query) -> None:
        match query.step:
            case TransactionStep.XA_START:
                self._begun = (xid_of(query.sql), self.rows_before)
            case TransactionStep.XA_END if self._begun is not None:
                xid, before = self._begun
                self._new_prepared[xid], self._begun = self.rows_before - before, None
            case TransactionStep.XA_COMMIT:
                xid = xid_of(query.sql)
                rows = self._new_prepared.get(xid, self._prepared.rows.get(xid))
                self._new_prepared[xid] = None
                self.has_unknown = self.has_unknown or rows is None
                self._of_earlier_maps += rows or 0
            case TransactionStep.XA_ROLLBACK:
                self._new_prepared[xid_of(query.sql)] = None
            case _:
                pass

    def remember(self) -> None:
        """Add what was read about XA transactions to ``prepared``, as the range reaches this position."""
        self._prepared.update(self._new_prepared)
        self._new_prepared.clear()


@dataclass(frozen=True)
class Found:
    """The last boundary in a file with at most the number of rows; None if there is none.

    ``is_end``: the end of the range is that boundary. Then ``rows`` is the number of rows in the range.
    """

    boundary: tuple[FileRange, int] | None
    is_end: bool
    rows: int = 0


def find_last_within(
    chunks: Chunks, slice: Slice, gtids: str, most: int, prepared: PreparedRows, *, is_first: bool
) -> Found:
    """The last commit boundary in ``slice`` with at most ``most`` rows before it, which begins at one.

    If ``is_first`` and its first transaction has more rows, the end of that transaction. ``gtids`` is the GTID set of
    all transactions before it. ``prepared`` is then that of the result.
    """
    start, end = slice.start, slice.end
    if end - start <= most:  # without compressed events it fits
        counter = RowCounter(chunks(start), slice, prepared)
        counter.read_to(end)
        if counter.rows_before <= most and not counter.has_unknown:
            counter.remember()
            return Found(None, True, counter.rows_before)
    search = _Search(chunks, slice, most, prepared)
    reached: tuple[FileRange, int] | None = None
    for file_range in file_ranges(chunks(start), slice.file, start, end, gtids):
        at = int(file_range.positions.searchsorted(start, side="right"))
        while at < len(file_range.positions):
            fitting = search.advance(file_range.positions, at)
            if fitting is None:
                if is_first and reached is None:
                    search.take_first()
                    return Found((file_range, at), False)
                return Found(reached, False)
            reached, at = (file_range, fitting), fitting + 1
    if search.advance(np.array([end]), 0) is not None:
        return Found(None, True, search.rows)
    if is_first and reached is None:
        search.take_first()
        return Found(None, True, most + 1)
    return Found(reached, False)


class _Search:
    """Goes from boundary to boundary while the rows are within the limit.

    It does not stop at boundaries that the limit allows in any case: a row has at least one byte, unless its event is
    compressed. If such events made it too many rows, it counts again, from boundary to boundary.
    """

    def __init__(self, chunks: Chunks, slice: Slice, most: int, prepared: PreparedRows) -> None:
        self._chunks, self._slice, self._most, self._prepared = chunks, slice, most, prepared
        self._position, self.rows = slice.start, 0
        self._step_until = slice.start
        self._counter = self._begin()

    def _begin(self) -> RowCounter:
        rest = Slice(0, self._slice.file, self._position, self._slice.end)
        self._before = self.rows
        return RowCounter(self._chunks(self._position), rest, self._prepared)

    def advance(self, positions: np.ndarray, at: int) -> int | None:
        """The index of a boundary from ``at`` on with rows within the limit; None if the one at ``at`` has more."""
        to = at
        if self._position >= self._step_until:
            left = self._most - self.rows
            to = max(at, int(positions.searchsorted(self._position + left, side="right")) - 1)
        if self._fits(int(positions[to])):
            return to
        if to == at:
            return None
        self._step_until, self._counter = int(positions[to]), self._begin()
        return at if self._fits(int(positions[at])) else None

    def _fits(self, position: int) -> bool:
        self._counter.read_to(position)
        rows = self._before + self._counter.rows_before
        if rows > self._most or self._counter.has_unknown:
            return False
        self._position, self.rows = position, rows
        self._counter.remember()
        return True

    def take_first(self) -> None:
        """The range is one transaction, whose end was read to and has more rows."""
        self._counter.remember()
