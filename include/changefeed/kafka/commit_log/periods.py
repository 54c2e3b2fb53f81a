"""The sums of old windows in the commit log: seals that are not kept are merged into a record for each hour (UTC), and
hours that are not kept into a record for each day. `merged_freshness` has what else is kept of those of the last hour.

Nothing but what is shown depends on these records: a plan, a recovery, a failover and a seek use seals.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.merged_freshness import add_freshness
from changefeed.kafka.commit_log.records import LogEntry, Note, compressed_value
from changefeed.model.manifest import Manifest
from changefeed.model.sealed_period import HOUR_MS, SealedPeriod

_log = logging.getLogger(__name__)

DAY = 24
KEPT_HOURS = 31 * DAY
"""The maximum number of single hours in the log, but for the rest of a day."""
KEPT_PERIOD_BYTES = 8 << 20
"""The maximum total size of hours and days in bytes. One of 100 tables takes about 4 kB, one of 10 tables 0.7 kB."""

Period = tuple[int, int]
"""The first hour of a period and its length in hours, as in keys."""


@dataclass(frozen=True)
class PeriodRecord(Note, kind="period"):
    """The sums of the windows that were sealed in an hour or a day and whose seals were merged.

    It is written in the transaction that forgets what it replaces, so each window is in a seal or in one period. It is
    a note because an unreadable one must stop nothing; but only the holder of the lease writes it.
    """

    sums: SealedPeriod

    @property
    def parts(self) -> tuple[str | int, ...]:
        return self.sums.hour, self.sums.hours

    def to_json(self) -> Any:
        return self.sums.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(SealedPeriod.from_json(value))

    def value(self) -> bytes:
        """Its JSON, always compressed: the log has hundreds of periods, with the same names in each."""
        return compressed_value(self.to_json())


def latest_periods(state: CommitLogState, limit: int) -> list[SealedPeriod]:
    """The last ``limit`` hours and days of ``state``, latest first; unreadable records are left out."""
    found = _entries(state)
    return [sums for period in sorted(found, reverse=True)[:limit] if (sums := _sums(found[period])) is not None]


def merge_seals(state: CommitLogState, numbers: Iterable[int], identity: str) -> dict[bytes, bytes | None]:
    """The records, values by key, that add the windows ``numbers`` to the periods of ``state``, and to the freshness of
    the last hour; the caller forgets their seals in the same transaction. None as a value forgets a period: one that is
    merged, or is beyond the limits.

    An unreadable seal is left out, and a warning is logged: it must not stop the window that is sealed now.
    """
    log, windows = _Periods(_entries(state)), list(_readable(state, numbers))
    for sealed_at_ms, manifest in windows:
        log.add(SealedPeriod.of_window(sealed_at_ms // HOUR_MS, manifest))
    if log.changed:
        log.merge_hours()
    records = {PeriodRecord.key_of(identity, *period): value for period, value in log.records().items()}
    return records | add_freshness(state, [(at_ms, each.freshness_seconds) for at_ms, each in windows], identity)


class _Periods:
    """The periods of a log while some change."""

    def __init__(self, entries: Mapping[Period, LogEntry]) -> None:
        self._entries = entries
        self._parts: dict[Period, list[SealedPeriod]] = {}
        self._gone: set[Period] = set()

    @property
    def changed(self) -> bool:
        return bool(self._parts)

    def add(self, sums: SealedPeriod) -> None:
        """Add ``sums`` of an hour to that hour, or to its day if its hours are merged already."""
        day = (sums.hour // DAY * DAY, DAY)
        self._add(day if day in self._entries or day in self._parts else (sums.hour, 1), [sums])

    def _add(self, period: Period, parts: Iterable[SealedPeriod]) -> None:
        if period not in self._parts:
            self._parts[period] = self._stored(period)
        self._parts[period] += parts

    def _stored(self, period: Period) -> list[SealedPeriod]:
        sums = _sums(self._entries[period]) if period in self._entries else None
        return [sums] if sums else []

    def merge_hours(self) -> None:
        """Merge the oldest hours into days if there are more than KEPT_HOURS."""
        hours = sorted(hour for hour, length in {*self._entries, *self._parts} if length == 1)
        days = {hour // DAY * DAY for hour in hours[:-KEPT_HOURS]}
        for hour in hours:
            if (day := hour // DAY * DAY) in days:
                period = (hour, 1)
                self._add((day, DAY), self._parts.pop(period) if period in self._parts else self._stored(period))
                self._gone.add(period)

    def records(self) -> dict[Period, bytes | None]:
        """The values of the periods that change, None for those that are forgotten."""
        written = {
            period: PeriodRecord(SealedPeriod.of(*period, parts)).value()
            for period, parts in self._parts.items()
            if parts
        }
        sizes = {period: len(entry.record.value or b"") for period, entry in self._entries.items()}
        sizes |= {period: len(value) for period, value in written.items()}
        gone = self._gone | set(_beyond_limit({each: size for each, size in sizes.items() if each not in self._gone}))
        forgotten = dict.fromkeys(sorted(period for period in gone if period in self._entries))
        return {**{period: value for period, value in written.items() if period not in gone}, **forgotten}


def _readable(state: CommitLogState, numbers: Iterable[int]) -> Iterator[tuple[int, Manifest]]:
    for number in sorted(numbers):
        try:
            yield state.sealed_at_ms(number), state.seals[number]
        except CheckpointError as error:
            _log.warning("window %d is left out of the sums of its hour: %s", number, error)


def _beyond_limit(sizes: Mapping[Period, int]) -> list[Period]:
    """The oldest periods that are not kept; the newest one always is."""
    obsolete, kept_bytes = [], 0
    for count, period in enumerate(sorted(sizes, reverse=True)):
        kept_bytes += sizes[period]
        if count and kept_bytes > KEPT_PERIOD_BYTES:
            obsolete.append(period)
    return obsolete


def _entries(state: CommitLogState) -> dict[Period, LogEntry]:
    """The entries by period; a key of another form is of a newer version, and is left as it is."""
    return {
        (entry.parts[0], entry.parts[1]): entry
        for entry in state.entries_of(PeriodRecord)
        if len(entry.parts) == 2 and all(isinstance(part, int) for part in entry.parts)
    }


def _sums(entry: LogEntry) -> SealedPeriod | None:
    record = entry.read_note()
    return record.sums if isinstance(record, PeriodRecord) else None
