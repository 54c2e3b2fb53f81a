"""The sealed windows of a pipeline over time, and its last events, latest first."""

import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.freshness import NONE_MERGED, MergedFreshness, recent_freshness
from changefeed.model.sealed_period import HOUR_MS, SealedPeriod
from changefeed.model.seek import SeekRecord

BIN_SECONDS = 120
BINS = 30
"""The number of bins of the last hour."""


@dataclass(frozen=True)
class SealedWindow:
    """What is shown of a sealed window: its range, its rows, when it was frozen and sealed, how soon after their commit
    its changes were in Kafka, as in a manifest, and its dead letters."""

    number: int
    start: BinlogCoordinates
    head: BinlogCoordinates
    frozen_at_ms: int
    sealed_at_ms: int
    rows: int
    freshness_seconds: Mapping[str, float] = field(default_factory=dict)
    dead_letters: int = 0


@dataclass(frozen=True)
class Event:
    """An event of a pipeline in words, and the tab of the page that shows more about it."""

    at_ms: int
    kind: str
    text: str
    tab: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for the REST API."""
        return asdict(self)


@dataclass(frozen=True)
class Ddl:
    """A DDL statement without its text, which may have values: its coordinates, its first word and its tables."""

    coordinates: BinlogCoordinates
    verb: str
    tables: tuple[str, ...]


_VERBS = ("ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE")


def verb_of(sql: str) -> str:
    """The first word of a DDL statement; "DDL of" for others, "table definition read again:" without a statement."""
    first = sql.split(maxsplit=1)[0].upper() if sql.strip() else ""
    if first in _VERBS:
        return first
    return "DDL of" if first else "table definition read again:"


def last_hour(windows: Sequence[SealedWindow], now_ms: int, merged: Iterable[SealedPeriod] = ()) -> dict[str, Any]:
    """Published rows of the last hour: ``rows`` by two minutes, the oldest first, and ``total``.

    If windows of this hour may be ``merged``, ``since_ms`` is when the oldest other one was sealed: only windows since
    then are counted, and ``rows`` before are None. Otherwise ``since_ms`` is None.

    ``newest_ms`` is when the last window with rows was sealed; None if there is none. Rows of snapshots are not in
    windows.
    """
    since_ms = _counted_since(windows, merged, now_ms - BINS * BIN_SECONDS * 1000)
    first_bin = 0 if since_ms is None else _bin_of(since_ms, now_ms)
    rows = [0] * BINS
    newest = None
    for window in windows:
        bin_index = _bin_of(window.sealed_at_ms, now_ms)
        if bin_index >= 0:
            rows[bin_index] += window.rows
        if window.rows:
            newest = max(newest or 0, window.sealed_at_ms)
    return {
        "rows": [None] * first_bin + rows[first_bin:],
        "total": sum(rows),
        "bin_seconds": BIN_SECONDS,
        "newest_ms": newest,
        "since_ms": since_ms,
    }


def hour_ago_ms() -> int:
    """The begin of the last hour (Unix milliseconds)."""
    return int(time.time() * 1000) - BINS * BIN_SECONDS * 1000


def _bin_of(at_ms: int, now_ms: int) -> int:
    """The bin of the last hour that has the time; negative for an earlier one."""
    return BINS - 1 - max(0, int((now_ms - at_ms) / 1000 // BIN_SECONDS))


def _counted_since(windows: Sequence[SealedWindow], merged: Iterable[SealedPeriod], begin_ms: int) -> int | None:
    """When the oldest of ``windows`` was sealed, if windows between ``begin_ms`` and then may be merged."""
    if not windows or all(period.ends_ms <= begin_ms for period in merged):
        return None
    oldest_ms = min(window.sealed_at_ms for window in windows)
    return oldest_ms if oldest_ms > begin_ms else None


def freshness(
    windows: Iterable[SealedWindow], now_ms: int, merged: MergedFreshness = NONE_MERGED
) -> dict[str, Any] | None:
    """The freshness of the last hour as plain values; None if no window of it has rows."""
    found = recent_freshness(((window.sealed_at_ms, window.freshness_seconds) for window in windows), now_ms, merged)
    return None if found is None else asdict(found)


def recent_dead_letters(windows: Iterable[SealedWindow], merged: Iterable[SealedPeriod], now_ms: int) -> int:
    """The dead letters of the last hour. Of windows that are ``merged`` they are those of all hours that the last hour
    overlaps: it is not known when in its hour a merged window was sealed."""
    since_ms = now_ms - HOUR_MS
    of_windows = sum(window.dead_letters for window in windows if window.sealed_at_ms >= since_ms)
    return of_windows + sum(period.dead_letters for period in merged if period.ends_ms > since_ms)


def window_events(windows: Iterable[SealedWindow], *, together_seconds: float = 0.0) -> list[Event]:
    """An event for each sealed window of ``windows``, the latest first; one for all that were sealed within
    ``together_seconds`` of the latest of them."""
    groups: list[list[SealedWindow]] = []
    for window in windows:
        if groups and groups[-1][0].sealed_at_ms - window.sealed_at_ms < together_seconds * 1000:
            groups[-1].append(window)
        else:
            groups.append([window])
    return [Event(group[0].sealed_at_ms, "window", _describe_windows(group), "runs") for group in groups]


def _describe_windows(group: Sequence[SealedWindow]) -> str:
    numbers = f"windows {group[-1].number} to {group[0].number}" if len(group) > 1 else f"window {group[0].number}"
    return f"{numbers}: {_count(sum(window.rows for window in group), 'row')}"


def seek_events(seeks: Iterable[SeekRecord]) -> list[Event]:
    """An event for each seek, with its user and reason."""
    return [Event(seek.at_ms, "seek", f"{seek.who} moved the checkpoint to {seek.to}", "history") for seek in seeks]


def snapshot_events(snapshots: Iterable[Mapping[str, Any]]) -> list[Event]:
    """An event for the start of each snapshot. ``snapshots`` are those of `SnapshotStatus`."""
    return [
        Event(
            one["began_ms"],
            "snapshot",
            f"snapshot of {_count(one['tables'], 'table')} began"
            + (f", {_count(one['rows'], 'row')}, finished" if one["finished"] else ""),
            "history",
        )
        for one in snapshots
    ]


def failure_events(runs: Iterable[Mapping[str, Any]], outcomes: Mapping[str, str]) -> list[Event]:
    """An event for each of ``runs``, those of `dag_state.failed_runs`."""
    return [Event(run["end_ms"], "failure", f"run {outcomes.get(run['run_id'], 'failed')}", "runs") for run in runs]


def ddl_events(statements: Iterable[Ddl], windows: Sequence[SealedWindow]) -> list[Event]:
    """An event for each DDL statement in one of the ``windows``, at the time at which the window was frozen.

    The schema history has no times. Statements before the first of the windows are left out.
    """
    try:
        ordered = sorted(windows, key=lambda window: window.start)
    except ValueError:  # the windows are of servers with different binlog names
        return []
    starts = [window.start for window in ordered]
    events = []
    for statement in statements:
        try:
            index = bisect_right(starts, statement.coordinates) - 1
            is_inside = index >= 0 and statement.coordinates < ordered[index].head
        except ValueError:
            continue
        if is_inside:
            text = f"{statement.verb} {', '.join(statement.tables)}".strip()
            events.append(Event(ordered[index].frozen_at_ms, "ddl", text, "tables"))
    return events


def latest(limit: int, *events: Iterable[Event]) -> list[dict[str, Any]]:
    """The last ``limit`` events of all kinds, latest first, as plain values."""
    merged = sorted((event for each in events for event in each), key=lambda event: event.at_ms, reverse=True)
    return [event.to_json() for event in merged[:limit]]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
