"""The order of the transactions of a binlog range.

GTID numbers do not define this order:

- Group Replication assigns numbers in blocks.
- `SET GTID_NEXT` assigns numbers in any order.
- A replica that applies transactions in parallel may log them in another order than its source.

So changefeed stores the server's own order before the first message of a window is visible.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

UUID_LENGTH = 36
"""The length of a UUID; a shorter source is MariaDB's."""

GtidRun = tuple[str, int, int]
"""(source, first number, last number) of transactions with consecutive numbers.

The source is "uuid", "uuid:tag", or "domain-server" on MariaDB."""


def source_and_number(gtid: str) -> tuple[str, int]:
    """The source of one GTID, as in a `GtidRun`, and its number. Raises ValueError for an invalid GTID."""
    source, _, number = gtid.rpartition(":" if ":" in gtid else "-")
    return source, int(number)


def gtid_of(source: str, number: int) -> str:
    """The GTID of a source and a number."""
    return f"{source}{':' if len(source) >= UUID_LENGTH else '-'}{number}"


def join_runs(runs: Iterable[GtidRun]) -> tuple[GtidRun, ...]:
    """The same transactions in the same order; adjacent runs with consecutive numbers are joined."""
    result: list[GtidRun] = []
    for source, first, last in runs:
        if result and result[-1][0] == source and result[-1][2] + 1 == first:
            result[-1] = (source, result[-1][1], last)
        else:
            result.append((source, first, last))
    return tuple(result)


@dataclass(frozen=True)
class BinlogOrder:
    """The transactions of a binlog range, in binlog order, as ``runs``."""

    runs: tuple[GtidRun, ...] = ()

    def place(self, gtid: str) -> int | None:
        """The number of transactions before ``gtid``; None if ``gtid`` is not in the range."""
        source, number = source_and_number(gtid)
        firsts, of_source = self._by_source.get(source, ([], []))
        at = bisect_right(firsts, number) - 1
        if at < 0:
            return None
        first, last, before = of_source[at]
        return before + number - first if number <= last else None

    @cached_property
    def _by_source(self) -> dict[str, tuple[list[int], list[tuple[int, int, int]]]]:
        """For each source: the first numbers of its runs in ascending order, and (first, last, place) of each run."""
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
        """Plain values, which `from_json` reads.

        ``runs`` has three numbers for each run: the index of its source in ``sources``, the distance of its first
        number from the last number of the source's previous run, and its length.
        """
        sources: dict[str, int] = {}
        lasts: dict[str, int] = {}
        words: list[int] = []
        for source, first, last in self.runs:
            words += (sources.setdefault(source, len(sources)), first - lasts.get(source, 0), last - first + 1)
            lasts[source] = last
        return {"sources": list(sources), "runs": words}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> BinlogOrder:
        """The order from values of `to_json`. Raises ValueError, KeyError, IndexError or TypeError for other values."""
        sources, words = values["sources"], values["runs"]
        lasts: dict[str, int] = {}
        runs: list[GtidRun] = []
        for number, step, length in zip(words[::3], words[1::3], words[2::3], strict=True):
            source = str(sources[number])
            first = lasts.get(source, 0) + int(step)
            lasts[source] = first + int(length) - 1
            runs.append((source, first, lasts[source]))
        return cls(tuple(runs))
