"""GTIDs as the words that a kernel writes of them: thousands at once, without a text for each."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from changefeed.binlog.events.gtids import MARIADB, TAGGED, Gtid
from changefeed.binlog.kernel.memory import Words
from changefeed.gtid import GtidSet

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.intp]

Run = tuple[int, int, int, int, int, str]
"""Kind, a, b, first and last number, and the `uuid:tag` of a tagged GTID: what `GtidRuns.add` takes."""


@dataclass(frozen=True)
class GtidWords:
    """The GTIDs of transactions in their order, arrays of equal length; ``kinds`` is 0 where there is none.

    Kind, a, b and number are those of `Gtid`; ``tagged`` has those with a tag, by index.
    """

    kinds: Words
    a: Words
    b: Words
    numbers: Words
    tagged: Mapping[int, Gtid]

    @property
    def present(self) -> Mask:
        """Where there is one."""
        present: Mask = self.kinds != 0
        return present

    def mariadb(self) -> Iterator[tuple[int, int, int, int]]:
        """Index, domain, server and number of MariaDB's."""
        where = np.flatnonzero(self.kinds == MARIADB)
        columns = (where, self.a[where], self.b[where], self.numbers[where])
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def runs(self, chosen: Mask | slice = slice(None)) -> Iterator[Run]:
        """Those of ``chosen`` as runs of numbers, by source and in order; of a MariaDB domain the latest comes last."""
        wanted = np.zeros(len(self.kinds), np.bool_)
        wanted[chosen] = True
        for kind, a, b, where in self._sources(np.flatnonzero(wanted & self.present)):
            numbers = self.numbers[where]
            ends = np.flatnonzero(np.diff(numbers) != 1)
            firsts, lasts = numbers[np.append(0, ends + 1)], numbers[np.append(ends, len(numbers) - 1)]
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                yield kind, a, b, first, last, self._prefix(kind, where)

    def contained_in(self, gtids: GtidSet) -> Mask:
        """Which of them are in the set; False where there is none. Of MariaDB's numbers are compared, as sets do."""
        contained = np.zeros(len(self.kinds), np.bool_)
        intervals = dict(gtids.intervals)
        for kind, a, b, where in self._sources(np.flatnonzero(self.present)):
            source = str(a) if kind == MARIADB else self._prefix(kind, where) or _uuid_of(a, b)
            if source in intervals:
                firsts, lasts = np.array(intervals[source], np.uint64).T
                numbers = np.maximum(self.numbers[where], 1).astype(np.uint64)
                at = np.searchsorted(firsts, numbers, side="right").astype(np.intp) - 1
                contained[where] = (at >= 0) & (numbers <= lasts[at])
        return contained

    def _prefix(self, kind: int, where: Indexes) -> str:
        return self.tagged[int(where[0])].prefix if kind == TAGGED else ""

    def _sources(self, where: Indexes) -> Iterator[tuple[int, int, int, Indexes]]:
        """Kind, a and b of each source among ``where``, and where it stands; by where each stands last."""
        if not len(where):
            return
        sources = np.stack((self.kinds[where], self.a[where], self.b[where]), axis=1)
        if (sources == sources[0]).all() and sources[0][0] != TAGGED:
            kind, a, b = sources[0].tolist()
            yield kind, a, b, where
            return
        by_source: dict[tuple[int, int, int, str], list[int]] = {}
        for index, (kind, a, b) in zip(where.tolist(), sources.tolist(), strict=True):
            prefix = self.tagged[index].prefix if kind == TAGGED else ""
            by_source.setdefault((kind, a, b, prefix), []).append(index)
        for (kind, a, b, _), members in sorted(by_source.items(), key=lambda item: item[1][-1]):
            yield kind, a, b, np.array(members)


def _uuid_of(a: int, b: int) -> str:
    return str(uuid.UUID(bytes=struct.pack("<qq", a, b)))
