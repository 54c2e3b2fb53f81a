"""Freshness: how soon after their commit the changes of a pipeline could be read in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

HOUR_SECONDS = 3600


@dataclass(frozen=True)
class Freshness:
    """The seconds from commit to Kafka in the windows that were sealed in the last hour and have rows.

    A window counts with its oldest change: all its others were readable sooner. So does a table in ``tables``. It
    counts for as long as that change waited: so one window after an outage of minutes weighs more than a thousand
    quick ones, and the figures are those of a change at a random moment.
    """

    p50_seconds: float
    """Half of the time a change took at most this."""
    p99_seconds: float
    """99 % of the time a change took at most this."""
    windows: int
    since_ms: int
    """When the first of the windows was sealed, in Unix milliseconds. The commit log may have less than an hour."""
    tables: Mapping[str, float] = field(default_factory=dict)
    """The seconds of the last window that has changes of the table, by "database.table"."""

    @property
    def summary(self) -> str:
        """The figures as a text for people."""
        return f"readable {self.p50_seconds:.1f} s after commit (99 %: {self.p99_seconds:.1f} s)"


def recent_freshness(windows: Iterable[tuple[int, Mapping[str, float]]], now_ms: int) -> Freshness | None:
    """The freshness of the last hour; None if no window of it has rows, as of an idle pipeline.

    ``windows`` are in any order: when each was sealed (Unix milliseconds), and `Manifest.freshness_seconds`.
    """
    since_ms = now_ms - HOUR_SECONDS * 1000
    recent = sorted(((at, tables) for at, tables in windows if tables and at >= since_ms), key=lambda each: each[0])
    if not recent:
        return None
    slowest = sorted(max(tables.values()) for _, tables in recent)
    return Freshness(
        p50_seconds=_quantile(slowest, 0.5),
        p99_seconds=_quantile(slowest, 0.99),
        windows=len(recent),
        since_ms=recent[0][0],
        tables={table: seconds for _, tables in recent for table, seconds in tables.items()},
    )


def _quantile(ordered: list[float], share: float) -> float:
    """The smallest of the ``ordered`` values that, with all smaller ones, makes up at least ``share`` of their sum."""
    reached, sums = share * sum(ordered), accumulate(ordered)
    return next((value for value, so_far in zip(ordered, sums, strict=True) if so_far >= reached), ordered[-1])
