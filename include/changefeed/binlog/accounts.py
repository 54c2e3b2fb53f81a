"""The counts behind a slice's report: rows by table and op, GTIDs, statements, and the kernel's own counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from changefeed.binlog.events.gtids import TAGGED, GtidRuns, source_of
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.transaction_orders import ORDER
from changefeed.formats.template import OPS
from changefeed.model.binlog_order import GtidRun, join_runs
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import TransactionEvent
from changefeed.native.memory import Words

_PREPARED = "it is of an XA transaction, which is committed at a later position of the binlog, or never"

RowCounts = dict[str, dict[str, int]]
"""Row changes by "database.table" and op."""


@dataclass(frozen=True)
class CountedRows:
    """The numbers of published and of filtered rows of captured tables. ``unordered`` is as in a `SliceReport`."""

    published: RowCounts = field(default_factory=dict)
    filtered: RowCounts = field(default_factory=dict)
    unordered: frozenset[str] = frozenset()

    def with_others(self, other: CountedRows) -> CountedRows:
        """The sums of these counts and ``other``."""
        return CountedRows(
            _sum(self.published, other.published),
            _sum(self.filtered, other.filtered),
            self.unordered | other.unordered,
        )


class Accounts:
    """The counts of one slice or chunk.

    The kernel counts in ``state`` and ``rows``, and lists GTIDs in ``runs`` until they are drained.
    """

    def __init__(self, state: Words) -> None:
        self.rows: Words = np.zeros(layout.COUNTS * 64, np.int64)
        """For each table: the rows of op c, u, d and r, then the filtered rows of each op."""
        self.orders: Words = np.zeros(ORDER * 64, np.int64)
        """For each table: its counter in the current transaction (`transaction_orders.ORDER`)."""
        self.runs: Words = np.zeros(layout.RUN * layout.MAX_RUNS, np.int64)
        self.statements: list[Statement] = []
        self.in_xa = False
        """Whether the current transaction ends with XA PREPARE."""
        self._state = state
        self._set_aside: Words | None = None
        self._committed = CountedRows()
        self._gtids = GtidRuns()
        self._order: list[GtidRun] = []
        self._commits: dict[str, int] = {}

    def make_room(self, counters: int) -> None:
        """Allocate room for ``counters`` counters of tables."""
        if len(self.rows) < layout.COUNTS * counters:
            self.rows = np.concatenate([self.rows, np.zeros(layout.COUNTS * counters, np.int64)])
            self.orders = np.concatenate([self.orders, np.zeros(ORDER * counters, np.int64)])

    def drain(self, tagged: list[str], *, rolled_back: bool = False) -> None:
        """Empty the kernel's list of GTIDs into the report; ``tagged`` are the prefixes of tagged GTIDs.

        GTIDs of ``rolled_back`` transactions get no order: they publish no row, and MariaDB's replicas do not log them.
        """
        for index in range(int(self._state[layout.RUNS])):
            kind, a, b, first, last = (int(word) for word in self.runs[layout.RUN * index : layout.RUN * (index + 1)])
            prefix = tagged[a] if kind == TAGGED else ""
            self._gtids.add(kind, a, b, first, last, prefix)
            if not rolled_back:
                self._order.append((source_of(kind, a, b, prefix), first, last))
        self._state[layout.RUNS] = 0

    def begin_prepared(self) -> None:
        """Count the following rows separately: they belong to an XA transaction, whose outcome is not known yet."""
        self._set_aside = self.rows.copy()
        self.in_xa = True

    def add_statement(self, statement: Statement) -> Statement:
        """Add ``statement`` to the report; returns it, with a doubt if the report has one for it."""
        self.statements.append(replace(statement, doubt=_PREPARED) if self.in_xa else statement)
        return self.statements[-1]

    def end_prepared(self, counters: dict[str, int]) -> CountedRows:
        """Return the counts of the XA transaction's rows, and subtract them."""
        before, self._set_aside = self._set_aside, None
        if before is None:
            return CountedRows()
        rows = self.rows.copy()
        rows[: len(before)] -= before
        self.rows[:] = 0
        self.rows[: len(before)] = before
        return _counted_rows(rows, counters)

    def add_rows(self, rows: CountedRows) -> None:
        """Count the rows of a transaction that was prepared before and is committed now."""
        self._committed = self._committed.with_others(rows)

    def add_commit(self, table: str, micros: int) -> None:
        """Add the commit time, in microseconds since 1970, of a transaction with changes of "database.table". The
        report has the first of each table."""
        self._commits.setdefault(table, micros)

    def see(self, ts_seconds: int) -> None:
        """Include the time of an event that the kernel did not read in the report's first and last time."""
        if self._state[layout.FIRST_TS] == 0:
            self._state[layout.FIRST_TS] = ts_seconds
        self._state[layout.LAST_TS] = ts_seconds

    def report(
        self,
        number: int,
        counters: dict[str, int],
        transaction_events: tuple[TransactionEvent, ...] = (),
        open_since: int | None = None,
        unordered: Collection[str] = (),
    ) -> SliceReport:
        """The report of slice ``number``; ``counters`` are the counters' numbers by table.

        ``unordered`` are tables whose changes a replica may log in another order."""
        rows, state = _counted_rows(self.rows, counters).with_others(self._committed), self._state
        return SliceReport(
            slice=number,
            size_bytes=int(state[layout.BYTES]),
            events=int(state[layout.EVENTS]),
            rows=rows.published,
            filtered=rows.filtered,
            skipped_rows=int(state[layout.SKIPPED_ROWS]),
            transactions=int(state[layout.TRANSACTIONS]),
            gtids=self._gtids.text(),
            order=join_runs(self._order),
            first_ts_seconds=int(state[layout.FIRST_TS]),
            last_ts_seconds=int(state[layout.LAST_TS]),
            statements=tuple(self.statements),
            transaction_events=transaction_events,
            open_since=open_since,
            unordered=tuple(sorted(rows.unordered | _changed_tables(rows.published, unordered))),
            commits={table: micros for table, micros in self._commits.items() if table in rows.published},
        )


def _changed_tables(rows: RowCounts, tables: Collection[str]) -> set[str]:
    """The ``tables`` with updated or deleted rows."""
    return {table for table in tables if not rows.get(table, {}).keys().isdisjoint("ud")}


def _counted_rows(rows: Words, counters: dict[str, int]) -> CountedRows:
    counted = CountedRows()
    for name, counter in counters.items():
        counts = rows[layout.COUNTS * counter : layout.COUNTS * (counter + 1)].tolist()
        for by_table, of_ops in ((counted.published, counts[: layout.OPS]), (counted.filtered, counts[layout.OPS :])):
            if any(of_ops):
                by_table[name] = {op: count for op, count in zip(OPS, of_ops, strict=True) if count}
    return counted


def _sum(one: RowCounts, other: RowCounts) -> RowCounts:
    return {table: dict(Counter(one.get(table, {})) + Counter(other.get(table, {}))) for table in {**one, **other}}
