"""Checks the chain of each key: the row before each change must be the row that the previous record left."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.verify.chain_records import CREATE, DELETE, EVENT, READ, TOMBSTONE, WRITE, unpack_digests
from changefeed.verify.entries import Entries, Entry
from changefeed.verify.row_digests import contradicts

UNCHAINED, TWICE = "unchained", "repeated"
"""Kinds of faults."""
_SHOWN = 20
"""The maximum number of faults that are shown for a table and kind."""


@dataclass
class ChainFaults:
    """The number of faults by (table, kind), and the first faults.

    A fault of an event id belongs to no table. Its table number is -1 minus the number of its topic.
    """

    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    shown: list[tuple[int, str, str]] = field(default_factory=list)

    def note(self, table: int, kind: str, text: str) -> None:
        """Count a fault, and show it if it is one of the first."""
        self.counts[table, kind] += 1
        if self.counts[table, kind] <= _SHOWN:
            self.shown.append((table, kind, text))

    def add(self, other: ChainFaults) -> None:
        """Add the faults that another task found."""
        self.counts.update(other.counts)
        self.shown += other.shown


@dataclass(frozen=True)
class ChainChecker(DriversTask):
    """Checks the records of each key.

    - ``breaks``: by table, the moments at which rows may have changed without a record: DDL statements and targets of
      seeks.
    - ``tombstones``: the tables in which a tombstone must follow each delete, and each tombstone must follow a delete.
    - ``incomplete``: the tables without some of their records, which were left out on purpose or removed.
    """

    breaks: Mapping[int, Sequence[int]]
    tombstones: frozenset[int]
    incomplete: frozenset[int]

    def check_chains(self, entries: Entries) -> ChainFaults:
        """The faults of the records of ``entries``. If a key is in ``entries``, all entries of the key must be."""
        found = ChainFaults()
        order = np.lexsort((entries.places, entries.parts, entries.hashes))
        ends = np.flatnonzero(np.diff(entries.hashes[order])) + 1
        for run in np.split(order, ends):
            each = sorted(entries.each(run.tolist()), key=lambda entry: (entry.table, entry.key))
            for _, of_key in groupby(each, lambda entry: (entry.table, entry.key)):
                self._check_key(list(of_key), found)
        return found

    def _check_key(self, of_key: list[Entry], found: ChainFaults) -> None:
        first = of_key[0]
        if first.side == EVENT:
            if len({(entry.weight, entry.part) for entry in of_key}) > 1:
                where = ", ".join(f"{entry.place} of partition {entry.part}" for entry in of_key[:5])
                for entry in of_key[1:]:
                    found.note(-1 - entry.weight, TWICE, f"one changefeed.id is at the offsets {where}")
            return
        if len({entry.part for entry in of_key}) > 1:  # the topic got more partitions
            of_key.sort(key=lambda entry: entry.moment)
        for entry, wrong in self._find_faults(of_key):
            key = entry.key.decode("utf-8", "replace")
            text = f"key {key}: partition {entry.part}, offset {entry.place}: {wrong}"
            found.note(entry.table, UNCHAINED, text)

    def _find_faults(self, of_key: Iterable[Entry]) -> Iterator[tuple[Entry, str]]:
        last: Entry | None = None
        row: bytes | None = None
        """The digest of the row that the last record left; b'' if it removed the row, None if the row is not known."""
        for entry in of_key:
            before, after = unpack_digests(entry.row)
            if last is not None and self._is_broken(entry.table, last.moment, entry.moment):
                row = None
            if last is not None and last.side == DELETE and entry.side != TOMBSTONE and self._has_tombstones(last):
                yield last, "a delete without a tombstone after it"
            at = "" if last is None else f"the record at offset {last.place}"
            if entry.side == TOMBSTONE:
                if last is not None and last.side != DELETE and self._has_tombstones(entry):
                    yield entry, f"a tombstone, and {at} before it is not a delete"
                last = entry
                row = None if entry.table in self.incomplete else b""
                continue
            if row is not None and entry.side not in (READ, WRITE):
                if entry.side == CREATE and row:
                    yield entry, f"a create of a row that exists: {at} left it"
                elif entry.side != CREATE and not row:
                    yield entry, f"a change of a row that does not exist: {at} removed it"
                elif row and before and contradicts(before, row):
                    yield entry, f"its row before the change is not the one that {at} left"
            row = None if entry.table in self.incomplete else after
            last = entry
        if last is not None and last.side == DELETE and self._has_tombstones(last):
            yield last, "a delete without a tombstone after it"

    def _has_tombstones(self, entry: Entry) -> bool:
        return entry.table in self.tombstones and entry.table not in self.incomplete

    def _is_broken(self, table: int, after: int, until: int) -> bool:
        breaks = self.breaks.get(table, ())
        at = bisect_right(breaks, after)
        return at < len(breaks) and breaks[at] <= until
