"""Whether the records of each key form a chain: each change begins with the row that the one before it left."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.verify.chain_records import CREATE, DELETE, EVENT, READ, TOMBSTONE, unpacked
from changefeed.verify.entries import Entries, Entry
from changefeed.verify.row_digests import contradicts

UNCHAINED, TWICE = "unchained", "repeated"
"""What is the matter with records."""
_SHOWN = 20
"""So many records of a table and kind are named."""


@dataclass
class Chains:
    """How many records of each (table, kind) are wrong, and the first of them. Event ids have no table: theirs is the
    number of their topic, negative."""

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    shown: list[tuple[int, str, str]] = field(default_factory=list)

    def note(self, table: int, kind: str, text: str) -> None:
        """Count a record."""
        self.counts[table, kind] += 1
        if self.counts[table, kind] <= _SHOWN:
            self.shown.append((table, kind, text))

    def add(self, other: Chains) -> None:
        """Add what another task found."""
        self.counts.update(other.counts)
        self.shown += other.shown


@dataclass(frozen=True)
class ChainJudge(DriversTask):
    """Judges the records of one key after another.

    ``breaks`` are by table the moments at which rows may have become others without a record: definitions, and where a
    seek led. ``tombstones`` are tables of which each delete has one after it, and each tombstone a delete before it. Of
    ``loose`` tables records are left out on purpose, or gone.
    """

    breaks: Mapping[int, Sequence[int]]
    tombstones: frozenset[int]
    loose: frozenset[int]

    def chains(self, entries: Entries) -> Chains:
        """What is wrong with records of ``entries``, which hold all of each of their keys."""
        found = Chains()
        order = np.lexsort((entries.places, entries.parts, entries.hashes))
        ends = np.flatnonzero(np.diff(entries.hashes[order])) + 1
        for run in np.split(order, ends):
            each = sorted(entries.each(run.tolist()), key=lambda entry: (entry.table, entry.key))
            for _, of_key in groupby(each, lambda entry: (entry.table, entry.key)):
                self._look(list(of_key), found)
        return found

    def _look(self, of_key: list[Entry], found: Chains) -> None:
        first = of_key[0]
        if first.side == EVENT:
            if len({(entry.weight, entry.part) for entry in of_key}) > 1:
                where = ", ".join(f"{entry.place} of partition {entry.part}" for entry in of_key[:5])
                for entry in of_key[1:]:
                    found.note(-1 - entry.weight, TWICE, f"one changefeed.id is at the offsets {where}")
            return
        if len({entry.part for entry in of_key}) > 1:  # its topic got more partitions
            of_key.sort(key=lambda entry: entry.moment)
        for entry, wrong in self._wrong(of_key):
            key = entry.key.decode("utf-8", "replace")
            text = f"key {key}: partition {entry.part}, offset {entry.place}: {wrong}"
            found.note(entry.table, UNCHAINED, text)

    def _wrong(self, of_key: Iterable[Entry]) -> Iterator[tuple[Entry, str]]:
        last: Entry | None = None
        row: bytes | None = None
        """The row as the last record left it, b'' where it is gone, None where that is not known."""
        for entry in of_key:
            before, after = unpacked(entry.row)
            if last is not None and self._is_broken(entry.table, last.moment, entry.moment):
                row = None
            if last is not None and last.side == DELETE and entry.side != TOMBSTONE and self._has_tombstones(last):
                yield last, "a delete without a tombstone after it"
            at = "" if last is None else f"the record at offset {last.place}"
            if entry.side == TOMBSTONE:
                if last is not None and last.side != DELETE and self._has_tombstones(entry):
                    yield entry, f"a tombstone, and {at} before it is no delete"
                last = entry
                row = None if entry.table in self.loose else b""
                continue
            if row is not None and entry.side != READ:
                if entry.side == CREATE and row:
                    yield entry, f"a create of a row that is there: {at} left it"
                elif entry.side != CREATE and not row:
                    yield entry, f"a change of a row that is gone: {at} is its end"
                elif row and before and contradicts(before, row):
                    yield entry, f"its row before the change is not the one that {at} left"
            row = None if entry.table in self.loose else after
            last = entry
        if last is not None and last.side == DELETE and self._has_tombstones(last):
            yield last, "a delete without a tombstone after it"

    def _has_tombstones(self, entry: Entry) -> bool:
        return entry.table in self.tombstones and entry.table not in self.loose

    def _is_broken(self, table: int, after: int, until: int) -> bool:
        breaks = self.breaks.get(table, ())
        at = bisect_right(breaks, after)
        return at < len(breaks) and breaks[at] <= until
