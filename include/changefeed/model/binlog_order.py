"""The transactions of a binlog range in the order in which that binlog has them.

Numbers of GTIDs say nothing of it: Group Replication gives them in blocks, `SET GTID_NEXT` in any order, and a replica
that applies in parallel may log transactions in another order than its source. So what a server's window gave up to a
transaction is known only by that server's own order, which is stored before the first message of the window is visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

UUID_LENGTH = 36
"""A source that is shorter is MariaDB's."""

GtidRun = tuple[str, int, int]
"""A source, "uuid", "uuid:tag" or MariaDB's "domain-server", and the first and the last of numbers that follow each
other."""


def source_and_number(gtid: str) -> tuple[str, int]:
    """The source of one GTID, as a `GtidRun` has it, and its number. Raises ValueError for what is no GTID."""
    source, _, number = gtid.rpartition(":" if ":" in gtid else "-")
    return source, int(number)


def gtid_of(source: str, number: int) -> str:
    """The GTID whose source and number these are."""
    return f"{source}{':' if len(source) >= UUID_LENGTH else '-'}{number}"


def joined(runs: Iterable[GtidRun]) -> tuple[GtidRun, ...]:
    """The same transactions in the same order, as few runs."""
    result: list[GtidRun] = []
    for source, first, last in runs:
        if result and result[-1][0] == source and result[-1][2] + 1 == first:
            result[-1] = (source, result[-1][1], last)
        else:
            result.append((source, first, last))
    return tuple(result)


@dataclass(frozen=True)
class BinlogOrder:
    """``runs`` are the transactions in binlog order."""

    runs: tuple[GtidRun, ...] = ()

    def place(self, gtid: str) -> int | None:
        """How many transactions are before ``gtid``; None where it is not among them."""
        source, number = source_and_number(gtid)
        firsts, of_source = self._by_source.get(source, ([], []))
        at = bisect_right(firsts, number) - 1
        if at < 0:
            return None
        first, last, before = of_source[at]
        return before + number - first if number <= last else None

    @cached_property
    def _by_source(self) -> dict[str, tuple[list[int], list[tuple[int, int, int]]]]:
        """By source the first numbers of its runs, rising, and first, last and place of each run."""
        by_source: dict[str, list[tuple[int, int, int]]] = {}
        before = 0
        for source, first, last in self.runs:
            by_source.setdefault(source, []).append((first, last, before))
            before += last - first + 1
        return {source: ([first for first, _, _ in sorted(runs)], sorted(runs)) for source, runs in by_source.items()}

    def before(self, place: int) -> Iterator[GtidRun]:
        """The first ``place`` transactions."""
        left = place
        for source, first, last in self.runs:
            if left <= 0:
                return
            yield source, first, min(last, first + left - 1)
            left -= last - first + 1

    def to_json(self) -> dict[str, Any]:
        """Plain values: the sources, and of each run the number of its source, how far its first number is from the
        last one of that source, and its length. `from_json` reads them back."""
        sources: dict[str, int] = {}
        lasts: dict[str, int] = {}
        words: list[int] = []
        for source, first, last in self.runs:
            words += (sources.setdefault(source, len(sources)), first - lasts.get(source, 0), last - first + 1)
            lasts[source] = last
        return {"sources": list(sources), "runs": words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> BinlogOrder:
        """Read what `to_json` gave. Raises ValueError, KeyError, IndexError or TypeError for anything else."""
        sources, words = values["sources"], values["runs"]
        lasts: dict[str, int] = {}
        runs: list[GtidRun] = []
        for number, step, length in zip(words[::3], words[1::3], words[2::3], strict=True):
            source = str(sources[number])
            first = lasts.get(source, 0) + int(step)
            lasts[source] = first + int(length) - 1
            runs.append((source, first, lasts[source]))
        return cls(tuple(runs))
