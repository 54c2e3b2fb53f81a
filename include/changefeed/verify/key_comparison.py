"""Compare each key's row on the server with its records in the topic.

A kernel finds the keys that are equal in the simplest way; `KeyComparator` compares all other keys one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

import numpy as np

from changefeed.native.memory import Words
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.verify.entries import Entries, Entry, Side
from changefeed.verify.row_digests import is_same, is_same_in_part
from changefeed.verify.same_rows import BY_ITSELF, HAS_KEY, IS_COUNTED, UNKNOWN, same_rows


class ResultKind(StrEnum):
    """The result of comparing a key."""

    EQUAL = "equal"
    """The topic has the same row as the server."""
    MEANWHILE = "meanwhile"
    """The row changed while the server was read, and the server's row is one of those that it had at that time."""
    IN_PART = "in_part"
    """The row is equal in the columns that the record has; the table's columns were changed since."""
    CHANGED = "changed"
    """The topic has the row with other values."""
    MISSING = "missing"
    """The server has the row, and the topic's newest record deletes it. In a table without a key: the topic has fewer
    copies of it."""
    UNPUBLISHED = "unpublished"
    """The server has the row, and the topic has no record of it."""
    EXTRA = "extra"
    """The topic has the row, and the server does not. In a table without a key: the topic has more copies of it."""


DIFFERENCES = (ResultKind.CHANGED, ResultKind.MISSING, ResultKind.UNPUBLISHED, ResultKind.EXTRA)
"""The kinds that count as differences."""

Truncates = Mapping[tuple[int, int], Sequence[tuple[int, int]]]
"""(table, partition) -> (offset, moment) of each TRUNCATE record. Moments are ordered as the binlog (`moment_of`)."""


@dataclass(frozen=True)
class ReadInterval:
    """The moments in the binlog before (``low``) and after (``high``) rows of the server were read."""

    low: int
    high: int

    def around(self, other: ReadInterval) -> ReadInterval:
        """The shortest interval that contains this interval and ``other``."""
        return ReadInterval(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class KeyResult:
    """The result of comparing ``key``.

    ``rows`` is the number of the server's rows with this key, ``differing`` the number of rows that differ. ``chunk``
    is the chunk in which the server's row was read; ``partition`` and ``offset`` are those of the compared record. Each
    of the three is -1 if there is none.
    """

    table: int
    key: bytes
    kind: ResultKind
    rows: int = 1
    differing: int = 0
    chunk: int = -1
    partition: int = -1
    offset: int = -1

    @property
    def equal_rows(self) -> int:
        """The number of the server's rows that the topic also has; in a table without a key it may be less than
        ``rows``."""
        return self.rows if self.kind is ResultKind.EXTRA else self.rows - self.differing


@dataclass(frozen=True)
class KeyComparator(DriversTask):
    """Compares the server's rows and the topic's records of each key.

    A key is equal if the server's row is one of the rows that the topic had during the interval in which the server was
    read; for most keys there is only one such row. ``chunk_intervals`` has the interval of each chunk;
    ``table_intervals`` has the interval of each table, for keys that the server does not have. In the tables
    ``without_key`` equal rows are counted on both sides.
    """

    chunk_intervals: Mapping[int, ReadInterval]
    table_intervals: Mapping[int, ReadInterval]
    without_key: frozenset[int]
    truncates: Truncates
    sampled: bool = False
    """Whether only a sample of the server's rows was read. If so, keys that only the topic has are ignored."""
    unique_tables: frozenset[int] = frozenset()
    """Those of the tables ``without_key`` that have a primary key, so that each row exists at most once: a record with
    op r does not add a second copy of a row."""

    def results(self, entries: Iterable[Entry]) -> Iterator[KeyResult]:
        """Yield the result of each key. ``entries`` must be sorted."""
        for (table, key), of_key in groupby(entries, lambda entry: (entry.table, entry.key)):
            rows: list[Entry] = []
            records: list[Entry] = []
            for entry in of_key:
                (rows if entry.side == Side.SERVER else records).append(entry)
            if not rows and (self.sampled or table not in self.table_intervals):
                continue
            if table in self.without_key:
                yield self._compare_counts(table, key, rows, records)
            else:
                yield self._compare_key(table, key, rows, records)

    def _interval(self, table: int, rows: Sequence[Entry]) -> ReadInterval:
        return self.chunk_intervals[rows[0].part] if rows else self.table_intervals[table]

    def _in_order(self, records: Sequence[Entry]) -> list[Entry]:
        """The records of a key in the order of their changes, with a delete for each TRUNCATE of its table."""
        truncated = [
            Entry(*record[:2], Side.TOPIC, partition, offset, moment, 0, b"")
            for record in records[:1]
            for partition in sorted({entry.part for entry in records})
            for offset, moment in self.truncates.get((record.table, partition), ())
        ]
        ordered = sorted([*records, *truncated], key=lambda entry: (entry.part, entry.place))
        if len({entry.part for entry in ordered}) > 1:  # partitions were added to the topic
            ordered.sort(key=lambda entry: entry.moment)
        return ordered

    # --- tables with a key

    def _compare_key(self, table: int, key: bytes, rows: Sequence[Entry], records: Sequence[Entry]) -> KeyResult:
        interval = self._interval(table, rows)
        possible = _possible_states(self._in_order(records), interval)
        newest = next((state for state in reversed(possible) if state is not None), None)
        chunk = rows[0].part if rows else -1
        where = (chunk, newest.part, newest.place) if newest else (chunk, -1, -1)
        if not rows:
            if any(state is None or not state.weight for state in possible):
                return KeyResult(table, key, ResultKind.EQUAL, 0, 0, *where)
            return KeyResult(table, key, ResultKind.EXTRA, 0, 1, *where)
        topic_rows = [state.row for state in possible if state is not None and state.weight]
        row = rows[-1].row
        if any(is_same(row, state) for state in topic_rows):
            return KeyResult(table, key, ResultKind.EQUAL if len(possible) == 1 else ResultKind.MEANWHILE, 1, 0, *where)
        if any(is_same_in_part(row, state) for state in topic_rows):
            return KeyResult(table, key, ResultKind.IN_PART, 1, 0, *where)
        kind = ResultKind.CHANGED if topic_rows else ResultKind.MISSING if records else ResultKind.UNPUBLISHED
        return KeyResult(table, key, kind, 1, 1, *where)

    # --- tables without a key

    def _compare_counts(self, table: int, key: bytes, rows: Sequence[Entry], records: Sequence[Entry]) -> KeyResult:
        interval = self._interval(table, rows)
        counts = [0]
        truncates = {part: self.truncates.get((table, part), ()) for part in {entry.part for entry in records}}
        steps = [(entry.moment, entry.weight) for entry in records]
        for entry in records:
            later = (at for offset, at in truncates[entry.part] if offset > entry.place and at >= entry.moment)
            if end := next(later, None):
                steps.append((end, -entry.weight))
        max_count = 1 if table in self.unique_tables else len(steps)
        for moment, weight in sorted(steps):
            if moment < interval.low:
                counts[0] = min(counts[0] + weight, max_count)
            elif moment < interval.high:
                counts.append(min(counts[-1] + weight, max_count))
        row_count = len(rows)
        chunk = rows[0].part if rows else -1
        where = (chunk, records[-1].part, records[-1].place) if records else (chunk, -1, -1)
        if row_count in counts:
            return KeyResult(
                table, key, ResultKind.EQUAL if len(counts) == 1 else ResultKind.MEANWHILE, row_count, 0, *where
            )
        if row_count > max(counts):
            kind = ResultKind.MISSING if records else ResultKind.UNPUBLISHED
            return KeyResult(table, key, kind, row_count, row_count - max(0, *counts), *where)
        return KeyResult(table, key, ResultKind.EXTRA, row_count, max(1, min(counts) - row_count), *where)


def _possible_states(ordered: Sequence[Entry], interval: ReadInterval) -> list[Entry | None]:
    """The last entry of a key before the interval, and its entries within the interval; None means no record."""
    first: Entry | None = None
    later: list[Entry | None] = []
    for entry in ordered:
        if entry.moment < interval.low and not later:
            first = entry
        elif entry.moment < interval.high:
            later.append(entry)
    return [first, *later]


MOST_DIFFERENCES = 1_000
"""The maximum number of differing keys that are stored. If there are more, none are compared again."""


@dataclass
class KeyResults:
    """The sums of many results: ``kinds`` counts rows by (table, kind), ``results`` has the first differing keys."""

    kinds: Counter[tuple[int, str]] = field(default_factory=Counter)
    results: list[KeyResult] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)
    """Table -> the number of the server's rows that were compared."""
    differing: int = 0
    """The number of keys that differ, including keys that did not fit into ``results``."""

    def take(self, result: KeyResult) -> None:
        """Add the result of one key."""
        self.kinds[result.table, result.kind] += result.differing or result.rows
        self.rows[result.table] += result.rows
        if result.differing:
            self.kinds[result.table, ResultKind.EQUAL] += result.equal_rows
            self.differing += 1
            if len(self.results) < MOST_DIFFERENCES:
                self.results.append(result)

    def add(self, other: KeyResults) -> None:
        """Add the results of another task."""
        self.kinds.update(other.kinds)
        self.rows.update(other.rows)
        self.differing += other.differing
        self.results += other.results[: MOST_DIFFERENCES - len(self.results)]


def compare_keys(comparator: KeyComparator, entries: Entries) -> KeyResults:
    """The summed results of all keys of ``entries``, which must have all entries of each of their keys."""
    summary = KeyResults()
    if not len(entries):
        return summary
    tables = int(entries.tables.max()) + 1
    kinds, equal = np.full(tables, HAS_KEY, np.int64), np.zeros(tables, np.int64)
    kinds[[table for table in comparator.without_key if table < tables]] = IS_COUNTED
    kinds[[table for table, _ in comparator.truncates if table < tables]] = BY_ITSELF
    order = np.lexsort((entries.places, entries.parts, entries.sides, entries.hashes)).astype(np.int64)
    remaining = same_rows(
        order,
        entries.tables,
        entries.hashes,
        entries.keys.data,
        entries.keys.ends,
        entries.sides,
        entries.parts,
        entries.moments,
        entries.weights,
        entries.rows.data,
        entries.rows.ends,
        _lows(comparator.chunk_intervals, 0),
        _lows(comparator.table_intervals, tables),
        kinds,
        int(comparator.sampled),
        equal,
    )
    for table, rows in enumerate(equal.tolist()):
        if rows:
            summary.kinds[table, ResultKind.EQUAL] = summary.rows[table] = rows
    for result in comparator.results(sorted(entries.each(order[:remaining].tolist()))):
        summary.take(result)
    return summary


def _lows(chunk_intervals: Mapping[int, ReadInterval], count: int) -> Words:
    lows = np.full(max(count, *chunk_intervals, 0) + 1 if chunk_intervals else count + 1, UNKNOWN, np.int64)
    for number, interval in chunk_intervals.items():
        lows[number] = interval.low
    return lows
