"""What a slice's report is made of: rows by table and op, GTIDs, statements, and the kernel's own counts."""

from __future__ import annotations

import numpy as np

from changefeed.binlog.events.gtids import TAGGED, GtidRuns
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.memory import Words
from changefeed.formats.template import OPS
from changefeed.reader import SliceReport, Statement
from changefeed.transaction_event import TransactionEvent


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
        rows: dict[str, dict[str, int]] = {}
        for name, counter in counters.items():
            counts = self.rows[layout.OPS * counter : layout.OPS * (counter + 1)].tolist()
            if any(counts):
                rows[name] = {op: count for op, count in zip(OPS, counts, strict=True) if count}
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
