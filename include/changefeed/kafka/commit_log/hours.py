"""The sums of old windows in the commit log: seals that are not kept are merged into one record for each hour (UTC).

Nothing but what is shown depends on these records: a plan, a recovery, a failover and a seek use seals.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import LogEntry, Note, compressed_value
from changefeed.model.manifest import Manifest
from changefeed.model.sealed_hour import HOUR_MS, SealedHour

_log = logging.getLogger(__name__)

KEPT_HOURS, KEPT_HOUR_BYTES = 366 * 24, 16 << 20
"""The maximum number of hours in the log, and their maximum total size in bytes. An hour of 100 tables takes about
4 kB, one of 10 tables 0.7 kB."""


@dataclass(frozen=True)
class HourRecord(Note, kind="hour"):
    """The sums of the windows that were sealed in an hour and whose seals were merged.

    It is written in the transaction that forgets the seals, so each window is in a seal or in one hour. It is a note
    because an unreadable one must stop nothing; but only the holder of the lease writes it.
    """

    sums: SealedHour

    @property
    def parts(self) -> tuple[str | int, ...]:
        return (self.sums.hour,)

    def to_json(self) -> Any:
        return self.sums.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(SealedHour.from_json(value))

    def value(self) -> bytes:
        """Its JSON, always compressed: the log has thousands of hours, with the same names in each."""
        return compressed_value(self.to_json())


def latest_hours(state: CommitLogState, limit: int) -> list[SealedHour]:
    """The last ``limit`` hours of ``state``, latest first; unreadable records are left out."""
    found = _entries(state)
    return [sums for hour in sorted(found, reverse=True)[:limit] if (sums := _sums(found[hour])) is not None]


def merge_seals(state: CommitLogState, numbers: Iterable[int], identity: str) -> dict[bytes, bytes | None]:
    """The records, values by key, that add the windows ``numbers`` to the hours of ``state``; the caller forgets their
    seals in the same transaction. None as a value forgets an hour, the oldest ones beyond the limits.

    An unreadable seal is left out, and a warning is logged: it must not stop the window that is sealed now.
    """
    sealed = defaultdict[int, list[Manifest]](list)
    for hour, manifest in _readable(state, numbers):
        sealed[hour].append(manifest)
    if not sealed:
        return {}
    found, written = _entries(state), dict[int, bytes]()
    for hour, manifests in sealed.items():
        before = _sums(found[hour]) if hour in found else None
        written[hour] = HourRecord(SealedHour.of(hour, manifests, before)).value()
    sizes = {hour: len(entry.record.value or b"") for hour, entry in found.items()}
    obsolete = _beyond_limits(sizes | {hour: len(value) for hour, value in written.items()})
    values: Mapping[int, bytes | None] = {**written, **dict.fromkeys(obsolete)}
    return {HourRecord.key_of(identity, hour): value for hour, value in sorted(values.items())}


def _readable(state: CommitLogState, numbers: Iterable[int]) -> Iterator[tuple[int, Manifest]]:
    for number in sorted(numbers):
        try:
            yield state.seals.written_at_ms(number) // HOUR_MS, state.seals[number]
        except CheckpointError as error:
            _log.warning("window %d is left out of the sums of its hour: %s", number, error)


def _beyond_limits(sizes: Mapping[int, int]) -> list[int]:
    """The oldest hours that are not kept; the newest one always is."""
    obsolete, kept_bytes = [], 0
    for count, hour in enumerate(sorted(sizes, reverse=True)):
        kept_bytes += sizes[hour]
        if count and (count >= KEPT_HOURS or kept_bytes > KEPT_HOUR_BYTES):
            obsolete.append(hour)
    return obsolete


def _entries(state: CommitLogState) -> dict[int, LogEntry]:
    """The entries by hour; a key of another form is of a newer version, and is left as it is."""
    return {
        entry.parts[0]: entry
        for entry in state.entries_of(HourRecord)
        if len(entry.parts) == 1 and isinstance(entry.parts[0], int)
    }


def _sums(entry: LogEntry) -> SealedHour | None:
    record = entry.read_note()
    return record.sums if isinstance(record, HourRecord) else None
