"""What the two sides say of a key, judged: of the sure keys by a kernel, of the others one by one."""

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


class Kind(StrEnum):
    """What became of a key."""

    EQUAL = "equal"
    """The topic has the row as the server has it."""
    MEANWHILE = "meanwhile"
    """It changed while the server was read, and the server had one of the rows that it was meanwhile."""
    IN_PART = "in_part"
    """Equal in the columns that the record has, which are not those that the table has now."""
    CHANGED = "changed"
    """The topic has other values."""
    MISSING = "missing"
    """The server has the row, and the topic says that it is gone; or has it less often, in a table without a key."""
    UNPUBLISHED = "unpublished"
    """The server has the row, and no record of the topic is of it."""
    EXTRA = "extra"
    """The topic has the row, or has it more often, and the server does not."""


DIFFERENCES = (Kind.CHANGED, Kind.MISSING, Kind.UNPUBLISHED, Kind.EXTRA)
"""What must not be."""

Truncates = Mapping[tuple[int, int], Sequence[tuple[int, int]]]
"""By table and partition the (offset, moment) of the records that say that the table was emptied."""


@dataclass(frozen=True)
class Bracket:
    """Two moments of the binlog, between which rows were read."""

    low: int
    high: int

    def around(self, other: Bracket) -> Bracket:
        """The shortest that holds both."""
        return Bracket(min(self.low, other.low), max(self.high, other.high))


@dataclass(frozen=True)
class Verdict:
    """What became of ``key``. ``part`` and ``place`` are those of the entries that were compared; -1 for none.

    ``rows`` is how many rows of the server it is about, and ``differing`` how many rows differ.
    """

    table: int
    key: bytes
    kind: Kind
    rows: int = 1
    differing: int = 0
    chunk: int = -1
    partition: int = -1
    offset: int = -1

    @property
    def equal_rows(self) -> int:
        """How many rows of the server the topic has, where rows are counted and some differ."""
        return self.rows if self.kind is Kind.EXTRA else self.rows - self.differing


@dataclass(frozen=True)
class Judge(DriversTask):
    """Judges the entries of one table after another.

    ``brackets`` are by chunk, ``of_tables`` those of all chunks of each table, in which rows that no chunk has were not
    there. ``without_key`` are tables whose rows are counted. A key is equal where the row that the server had is one
    that the topic had at some moment of the row's bracket: of most rows that is only one.
    """

    brackets: Mapping[int, Bracket]
    of_tables: Mapping[int, Bracket]
    without_key: frozenset[int]
    truncates: Truncates
    sampled: bool = False
    """Whether rows of the server are missing on purpose, so that what only the topic has says nothing."""
    once: frozenset[int] = frozenset()
    """Of the tables ``without_key`` those in which each row is there once at most: its primary key is in it. A record
    of one that was read says that it is there, and not that it is there once more."""

    def verdicts(self, entries: Iterable[Entry]) -> Iterator[Verdict]:
        """A verdict for each key of ``entries``, which are sorted."""
        for (table, key), of_key in groupby(entries, lambda entry: (entry.table, entry.key)):
            rows: list[Entry] = []
            records: list[Entry] = []
            for entry in of_key:
                (rows if entry.side == Side.SERVER else records).append(entry)
            if not rows and (self.sampled or table not in self.of_tables):
                continue
            if table in self.without_key:
                yield self._counted(table, key, rows, records)
            else:
                yield self._one(table, key, rows, records)

    def _bracket(self, table: int, rows: Sequence[Entry]) -> Bracket:
        return self.brackets[rows[0].part] if rows else self.of_tables[table]

    def _along(self, records: Sequence[Entry]) -> list[Entry]:
        """The records in the order of their changes, and where their table was emptied an entry that says so."""
        emptied = [
            Entry(*record[:2], Side.TOPIC, partition, offset, moment, 0, b"")
            for record in records[:1]
            for partition in sorted({entry.part for entry in records})
            for offset, moment in self.truncates.get((record.table, partition), ())
        ]
        along = sorted([*records, *emptied], key=lambda entry: (entry.part, entry.place))
        if len({entry.part for entry in along}) > 1:  # its topic got more partitions
            along.sort(key=lambda entry: entry.moment)
        return along

    # --- tables with a key

    def _one(self, table: int, key: bytes, rows: Sequence[Entry], records: Sequence[Entry]) -> Verdict:
        bracket = self._bracket(table, rows)
        possible = _states(self._along(records), bracket)
        shown = next((state for state in reversed(possible) if state is not None), None)
        chunk = rows[0].part if rows else -1
        where = (chunk, shown.part, shown.place) if shown else (chunk, -1, -1)
        if not rows:
            if any(state is None or not state.weight for state in possible):
                return Verdict(table, key, Kind.EQUAL, 0, 0, *where)
            return Verdict(table, key, Kind.EXTRA, 0, 1, *where)
        there = [state.row for state in possible if state is not None and state.weight]
        row = rows[-1].row
        if any(is_same(row, state) for state in there):
            return Verdict(table, key, Kind.EQUAL if len(possible) == 1 else Kind.MEANWHILE, 1, 0, *where)
        if any(is_same_in_part(row, state) for state in there):
            return Verdict(table, key, Kind.IN_PART, 1, 0, *where)
        kind = Kind.CHANGED if there else Kind.MISSING if records else Kind.UNPUBLISHED
        return Verdict(table, key, kind, 1, 1, *where)

    # --- tables without one

    def _counted(self, table: int, key: bytes, rows: Sequence[Entry], records: Sequence[Entry]) -> Verdict:
        bracket = self._bracket(table, rows)
        counts = [0]
        emptied = {part: self.truncates.get((table, part), ()) for part in {entry.part for entry in records}}
        steps = [(entry.moment, entry.weight) for entry in records]
        for entry in records:
            later = (at for offset, at in emptied[entry.part] if offset > entry.place and at >= entry.moment)
            if end := next(later, None):
                steps.append((end, -entry.weight))
        most = 1 if table in self.once else len(steps)
        for moment, weight in sorted(steps):
            if moment < bracket.low:
                counts[0] = min(counts[0] + weight, most)
            elif moment < bracket.high:
                counts.append(min(counts[-1] + weight, most))
        found = len(rows)
        chunk = rows[0].part if rows else -1
        where = (chunk, records[-1].part, records[-1].place) if records else (chunk, -1, -1)
        if found in counts:
            return Verdict(table, key, Kind.EQUAL if len(counts) == 1 else Kind.MEANWHILE, found, 0, *where)
        if found > max(counts):
            kind = Kind.MISSING if records else Kind.UNPUBLISHED
            return Verdict(table, key, kind, found, found - max(0, *counts), *where)
        return Verdict(table, key, Kind.EXTRA, found, max(1, min(counts) - found), *where)


def _states(along: Sequence[Entry], bracket: Bracket) -> list[Entry | None]:
    """What the row was at the bracket's low moment, and what it became until its high one; None is no row at all."""
    first: Entry | None = None
    later: list[Entry | None] = []
    for entry in along:
        if entry.moment < bracket.low and not later:
            first = entry
        elif entry.moment < bracket.high:
            later.append(entry)
    return [first, *later]


MOST_DIFFERENCES = 1_000
"""So many are looked at once more, and kept; of more than that it is not a matter of a moment."""


@dataclass
class Judged:
    """``kinds`` are rows by (table, kind); ``verdicts`` the first that differ."""

    kinds: Counter[tuple[int, str]] = field(default_factory=Counter)
    verdicts: list[Verdict] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)
    """By table how many rows of the server they are about."""
    differing: int = 0
    """How many keys differ, whether they are among the ``verdicts`` or not."""

    def take(self, verdict: Verdict) -> None:
        """Count the next verdict."""
        self.kinds[verdict.table, verdict.kind] += verdict.differing or verdict.rows
        self.rows[verdict.table] += verdict.rows
        if verdict.differing:
            self.kinds[verdict.table, Kind.EQUAL] += verdict.equal_rows
            self.differing += 1
            if len(self.verdicts) < MOST_DIFFERENCES:
                self.verdicts.append(verdict)

    def add(self, other: Judged) -> None:
        """Add what another task found."""
        self.kinds.update(other.kinds)
        self.rows.update(other.rows)
        self.differing += other.differing
        self.verdicts += other.verdicts[: MOST_DIFFERENCES - len(self.verdicts)]


def judged(judge: Judge, entries: Entries) -> Judged:
    """What became of the keys of ``entries``, which hold all that is known of each of their keys."""
    found = Judged()
    if not len(entries):
        return found
    tables = int(entries.tables.max()) + 1
    kinds, equal = np.full(tables, HAS_KEY, np.int64), np.zeros(tables, np.int64)
    kinds[[table for table in judge.without_key if table < tables]] = IS_COUNTED
    kinds[[table for table, _ in judge.truncates if table < tables]] = BY_ITSELF
    order = np.lexsort((entries.places, entries.parts, entries.sides, entries.hashes)).astype(np.int64)
    left = same_rows(
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
        _lows(judge.brackets, 0),
        _lows(judge.of_tables, tables),
        kinds,
        int(judge.sampled),
        equal,
    )
    for table, rows in enumerate(equal.tolist()):
        if rows:
            found.kinds[table, Kind.EQUAL] = found.rows[table] = rows
    for verdict in judge.verdicts(sorted(entries.each(order[:left].tolist()))):
        found.take(verdict)
    return found


def _lows(brackets: Mapping[int, Bracket], count: int) -> Words:
    lows = np.full(max(count, *brackets, 0) + 1 if brackets else count + 1, UNKNOWN, np.int64)
    for number, bracket in brackets.items():
        lows[number] = bracket.low
    return lows
