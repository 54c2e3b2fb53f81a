"""Freshness: how soon after their commit the changes of a pipeline could be read in Kafka."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

HOUR_SECONDS = 3600
_HOUR_MS = HOUR_SECONDS * 1000
SLOT_MS = 300_000
"""The length of the slots of an hour by which merged windows are counted."""
_STEP = 1.1
"""The seconds of merged windows are rounded up to powers of this number."""
_EXPONENTS = range(-100, 300)
"""Those of 0.1 milliseconds to thousands of years."""
_MOST_TABLES = 1000
_MOST_WINDOWS = 1_000_000_000
"""More than five minutes have."""

SealedFreshness = tuple[int, Mapping[str, float]]
"""When a window was sealed, in Unix milliseconds, and its `Manifest.freshness_seconds`."""


@dataclass(frozen=True)
class Freshness:
    """The seconds from commit to Kafka in the windows that were sealed in the last hour and have rows.

    A window counts with its oldest change: all its others were readable sooner. So does a table in ``tables``. It
    counts for as long as that change waited: so one window after an outage of minutes weighs more than a thousand
    quick ones, and the figures are those of a change at a random moment. Windows whose seals are merged count with up
    to a tenth more seconds, and until the five minutes in which they were sealed began an hour ago.
    """

    p50_seconds: float
    """Half of the time a change took at most this."""
    p99_seconds: float
    """99 % of the time a change took at most this."""
    windows: int
    since_ms: int
    """When the first of the windows was sealed, in Unix milliseconds."""
    tables: Mapping[str, float] = field(default_factory=dict)
    """The seconds of the last window that has changes of the table, by "database.table"."""

    @property
    def summary(self) -> str:
        """The figures as a text for people."""
        return f"readable {self.p50_seconds:.1f} s after commit (99 %: {self.p99_seconds:.1f} s)"


@dataclass(frozen=True)
class MergedFreshness:
    """What is kept of the last hour's windows whose seals are merged.

    ``slots``: the windows by number of their five minutes since 1970, and by exponent: a window took at most
    1.1 to the power of it in seconds. ``tables``: when the last window with changes of a table was sealed, in Unix
    milliseconds, and its seconds; the last 1,000 tables.
    """

    slots: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    tables: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, windows: Iterable[SealedFreshness]) -> MergedFreshness:
        """These windows and ``windows``, without those that were sealed an hour before the last one."""
        slots = {slot: Counter(counts) for slot, counts in self.slots.items()}
        tables = dict(self.tables)
        for at_ms, seconds in sorted((each for each in windows if each[1]), key=lambda each: each[0]):
            slots.setdefault(at_ms // SLOT_MS, Counter())[_exponent(max(seconds.values()))] += 1
            tables |= {table: (at_ms, round(of_table, 3)) for table, of_table in seconds.items()}
        since_ms = max((at_ms for at_ms, _ in tables.values()), default=0) - _HOUR_MS
        latest = sorted(tables.items(), key=lambda each: (-each[1][0], each[0]))[:_MOST_TABLES]
        return MergedFreshness(
            {slot: counts for slot, counts in sorted(slots.items()) if slot * SLOT_MS >= since_ms},
            {table: last for table, last in sorted(latest) if last[0] >= since_ms},
        )

    def windows(self) -> Iterator[tuple[int, float, int]]:
        """Windows with the same figure: when their five minutes began, in Unix milliseconds, their seconds, and how
        many they are."""
        for slot, counts in self.slots.items():
            for exponent, count in counts.items():
                yield slot * SLOT_MS, _STEP**exponent, count

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the commit log."""
        slots = {str(slot): {str(exponent): n for exponent, n in counts.items()} for slot, counts in self.slots.items()}
        return {"slots": slots, "tables": self.tables}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> MergedFreshness:
        """The value of `to_json`. Raises TypeError, KeyError, AttributeError or ValueError for anything else."""
        slots = {
            int(slot): {_valid_exponent(int(each)): int(count) for each, count in counts.items()}
            for slot, counts in values["slots"].items()
        }
        if any(not 0 < count < _MOST_WINDOWS for counts in slots.values() for count in counts.values()):
            raise ValueError("the number of windows of a slot")
        tables = {str(table): (int(at_ms), float(seconds)) for table, (at_ms, seconds) in values["tables"].items()}
        return cls(slots, tables)


NONE_MERGED = MergedFreshness()


def recent_freshness(
    windows: Iterable[SealedFreshness], now_ms: int, merged: MergedFreshness = NONE_MERGED
) -> Freshness | None:
    """The freshness of the last hour; None if no window of it has rows, as of an idle pipeline.

    ``windows`` are in any order; those that are ``merged`` are not among them.
    """
    since_ms = now_ms - _HOUR_MS
    sealed = sorted(((at, tables) for at, tables in windows if tables and at >= since_ms), key=lambda each: each[0])
    weighed = [(at, max(tables.values()), 1) for at, tables in sealed]
    weighed += (each for each in merged.windows() if each[0] >= since_ms)
    if not weighed:
        return None
    slowest = sorted((seconds, count) for _, seconds, count in weighed)
    earlier = {table: seconds for table, (at, seconds) in merged.tables.items() if at >= since_ms}
    return Freshness(
        p50_seconds=_quantile(slowest, 0.5),
        p99_seconds=_quantile(slowest, 0.99),
        windows=sum(count for _, _, count in weighed),
        since_ms=min(at for at, _, _ in weighed),
        tables=earlier | {table: seconds for _, tables in sealed for table, seconds in tables.items()},
    )


def _exponent(seconds: float) -> int:
    """The exponent of the smallest power that is at least ``seconds``; for a millisecond or less that of one."""
    return math.ceil(math.log(max(seconds, 0.001), _STEP) - 1e-9)


def _valid_exponent(exponent: int) -> int:
    if exponent not in _EXPONENTS:
        raise ValueError(f"exponent {exponent}")
    return exponent


def _quantile(ordered: Sequence[tuple[float, int]], share: float) -> float:
    """The smallest of the ``ordered`` values, each with its count, that, with all smaller ones, makes up at least
    ``share`` of their sum."""
    weights = [value * count for value, count in ordered]
    reached, sums = share * sum(weights), accumulate(weights)
    pairs = zip(ordered, sums, strict=True)
    return next((value for (value, _), so_far in pairs if so_far >= reached), ordered[-1][0])
