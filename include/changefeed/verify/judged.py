"""What became of all keys: the sure ones by a kernel, the others one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from changefeed.binlog.kernel.memory import Words
from changefeed.binlog.kernel.same_rows import BY_ITSELF, HAS_KEY, IS_COUNTED, UNKNOWN, same_rows
from changefeed.verify.entries import Entries
from changefeed.verify.judgement import Bracket, Judge, Kind, Verdict

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
