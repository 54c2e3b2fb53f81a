"""What a slice's report is made of: rows by table and op, GTIDs, statements, and the kernel's own counts."""

from __future__ import annotations

from collections import Counter

import numpy as np

from changefeed.binlog.events.gtids import TAGGED, GtidRuns
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.memory import Words
from changefeed.formats.template import OPS
from changefeed.reader import SliceReport, Statement
from changefeed.transaction_event import TransactionEvent

RowCounts = dict[str, dict[str, int]]
"""Row changes by "database.table" and op."""


class Accounts:
    """The counts of one slice or chunk.

    The kernel counts in ``state`` and ``rows``, and lists GTIDs in ``runs`` until they are drained.
    """

    def __init__(self, state: Words) -> None:
        self.rows: Words = np.zeros(layout.OPS * 64, np.int64)
        """For each table's counter its c, u, d and r."""
        self.runs: Words = np.zeros(layout.RUN * layout.MAX_RUNS, np.int64)
        self.statements: list[Statement] = []
        self._state = state
        self._set_aside: Words | None = None
        self._committed: dict[str, Counter[str]] = {}
        self._gtids = GtidRuns()

    def make_room(self, counters: int) -> None:
        """Room for so many counters of tables."""
        if len(self.rows) < layout.OPS * counters:
            self.rows = np.concatenate([self.rows, np.zeros(layout.OPS * counters, np.int64)])

    def drain(self, tagged: list[str]) -> None:
        """Take over the kernel's list of GTIDs; ``tagged`` are the prefixes of those that have a tag."""
        for index in range(int(self._state[layout.RUNS])):
            kind, a, b, first, last = (int(word) for word in self.runs[layout.RUN * index : layout.RUN * (index + 1)])
            self._gtids.add(kind, a, b, first, last, tagged[a] if kind == TAGGED else "")
        self._state[layout.RUNS] = 0

    def begin_prepared(self) -> None:
        """The rows that follow are of an XA transaction: it is not known yet whether they are to be counted."""
        self._set_aside = self.rows.copy()

    def end_prepared(self, counters: dict[str, int]) -> RowCounts:
        """The counts of the XA transaction's rows, which are not counted any more."""
        before, self._set_aside = self._set_aside, None
        if before is None:
            return {}
        rows = self.rows.copy()
        rows[: len(before)] -= before
        self.rows[:] = 0
        self.rows[: len(before)] = before
        return _by_table(rows, counters)

    def add_rows(self, rows: RowCounts) -> None:
        """Count the rows of a transaction that was prepared before and is committed now."""
        for table, ops in rows.items():
            self._committed.setdefault(table, Counter()).update(ops)

    def see(self, ts_seconds: int) -> None:
        """Note the time of an event that the kernel did not see to."""
        if self._state[layout.FIRST_TS] == 0:
            self._state[layout.FIRST_TS] = ts_seconds
        self._state[layout.LAST_TS] = ts_seconds

    def report(
        self,
        number: int,
        counters: dict[str, int],
        transaction_events: tuple[TransactionEvent, ...] = (),
        open_since: int | None = None,
    ) -> SliceReport:
        """The report of slice ``number``; ``counters`` says by table which counter is its."""
        rows = _by_table(self.rows, counters)
        for table, committed in self._committed.items():
            rows[table] = dict(Counter(rows.get(table, {})) + committed)
        state = self._state
        return SliceReport(
            slice=number,
            size_bytes=int(state[layout.BYTES]),
            events=int(state[layout.EVENTS]),
            rows=rows,
            skipped_rows=int(state[layout.SKIPPED_ROWS]),
            transactions=int(state[layout.TRANSACTIONS]),
            gtids=self._gtids.text(),
            first_ts_seconds=int(state[layout.FIRST_TS]),
            last_ts_seconds=int(state[layout.LAST_TS]),
            statements=tuple(self.statements),
            transaction_events=transaction_events,
            open_since=open_since,
        )


def _by_table(rows: Words, counters: dict[str, int]) -> RowCounts:
    by_table: RowCounts = {}
    for name, counter in counters.items():
        counts = rows[layout.OPS * counter : layout.OPS * (counter + 1)].tolist()
        if any(counts):
            by_table[name] = {op: count for op, count in zip(OPS, counts, strict=True) if count}
    return by_table
