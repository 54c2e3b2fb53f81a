"""Searches topic partitions backwards from their ends, within limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.records.event_id import EventId

EVENT_ID_HEADER = "changefeed.id"
_GROWTH = 4
"""How many times more records each round reads of a partition than the round before."""
_SHRINK = 8
_FIRST_ROUND = 2_000
"""The maximum of records that the first round reads of all partitions."""

Stop = Literal["", "records", "bytes", "seconds"]
"""The limit that ended a search; '' if none did."""


Matches = Callable[[KafkaRecord, "KafkaRecord | None"], bool]
"""Whether a record is wanted. The second one is the record before it in its partition; None if that was not read with
it. The function may read from the reader of the search."""


class RangeReader(Protocol):
    """Reads ranges of partitions, as `PartitionReader` does."""

    def between(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_seconds: float
    ) -> Iterator[KafkaRecord]:
        """The committed records of ``ranges``, in order within each partition."""
        ...


@dataclass(frozen=True)
class SearchLimits:
    """The most that a search reads: offsets of all partitions, bytes of keys, values and headers, and seconds."""

    records: int = 50_000
    size_bytes: int = 32 << 20
    seconds: float = 10.0


@dataclass(frozen=True)
class Searched:
    """How far a search has read.

    ``back_to_ms`` is the time (Unix milliseconds) of the oldest record up to which all partitions were read; None if
    they were read completely, or not at all.
    """

    records: int
    partitions: tuple[int, ...]
    back_to_ms: int | None
    is_complete: bool
    """Whether all records in the requested range were read."""
    stopped_by: Stop = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return {
            "records": self.records,
            "partitions": list(self.partitions),
            "back_to_ms": self.back_to_ms,
            "complete": self.is_complete,
            "stopped_by": self.stopped_by or None,
        }


class _LimitError(Exception):
    def __init__(self, limit: Stop) -> None:
        super().__init__(limit)
        self.limit = limit


def search_backwards(
    reader: RangeReader,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    count: int,
    matches: Matches,
    *,
    limits: SearchLimits,
    timeout_seconds: float,
) -> tuple[list[KafkaRecord], Searched]:
    """The newest ``count`` records of ``ranges`` for which ``matches`` is true, the newest first.

    Within a partition a record with a higher offset is newer. Between partitions the timestamps decide. A limit ends
    the search, and `Searched` has the limit. Raises what ``reader`` raises, BrokerUnavailableError also if no record
    arrives for ``timeout_seconds``.
    """
    search = _Search(ranges, count, matches, limits, time.monotonic() + limits.seconds)
    stopped_by: Stop = ""
    while not stopped_by and (partitions := search.unfinished()):
        stopped_by = search.read_round(reader, partitions, timeout_seconds)
    return search.newest(), search.describe(stopped_by)


@dataclass
class _Part:
    """The unread range ``[low, end)`` of a partition, and the matching records after it."""

    name: TopicPartition
    low: int
    end: int
    oldest_ms: float = math.inf
    """The lowest timestamp of the records that were read. It falls while the search goes backwards."""
    found: list[tuple[float, KafkaRecord]] = field(default_factory=list)
    """Matching records, the newest first, each with `oldest_ms` at the record."""

    def add(self, records: Sequence[KafkaRecord], matches: Matches) -> None:
        for record, before in zip(reversed(records), (*reversed(records[:-1]), None), strict=False):
            self.oldest_ms = min(self.oldest_ms, record.timestamp_ms)
            if matches(record, before):
                self.found.append((self.oldest_ms, record))


class _Search:
    def __init__(
        self,
        ranges: Mapping[TopicPartition, tuple[int, int]],
        count: int,
        matches: Matches,
        limits: SearchLimits,
        deadline: float,
    ) -> None:
        self._parts = [_Part(name, low, end) for name, (low, end) in sorted(ranges.items())]
        self._count, self._matches, self._deadline = count, matches, deadline
        self._left, self._bytes_left = limits.records, limits.size_bytes
        self._read = 0
        self._is_careful = False
        self._share = max(1, min(count, _FIRST_ROUND // max(1, len(self._parts))))

    def unfinished(self) -> list[_Part]:
        """The partitions that may have one of the newest records in their unread ranges."""
        found = sorted((at for part in self._parts for at, _ in part.found), reverse=True)
        least = found[self._count - 1] if len(found) >= self._count else -math.inf
        return [part for part in self._parts if part.low < part.end and part.oldest_ms > least]

    def read_round(self, reader: RangeReader, parts: Sequence[_Part], timeout_seconds: float) -> Stop:
        """Read the next older records of ``parts``. Returns the limit that prevented it."""
        share = min(self._share, self._left // len(parts))
        if share < 1:
            return "records"
        ranges = {part.name: (max(part.low, part.end - share), part.end) for part in parts}
        try:
            records = self._records(reader, ranges, timeout_seconds)
            for part in parts:
                part.add(records[part.name], self._matches_in_time)
        except _LimitError as error:
            if error.limit != "bytes" or self._share == 1 or self._bytes_left <= 0:
                return error.limit
            self._share, self._is_careful = max(1, share // _SHRINK), True  # large records: try fewer of them
            return ""
        for part in parts:
            low, end = ranges[part.name]
            part.end = low
            self._left -= end - low
        self._share = share if self._is_careful else share * _GROWTH
        return ""

    def _records(
        self, reader: RangeReader, ranges: Mapping[TopicPartition, tuple[int, int]], timeout_seconds: float
    ) -> dict[TopicPartition, list[KafkaRecord]]:
        records: dict[TopicPartition, list[KafkaRecord]] = {name: [] for name in ranges}
        allowed = self._bytes_left // (1 if self._is_careful else 2)  # the rest is for an attempt with fewer records
        used = 0
        try:
            for raw in reader.between(ranges, timeout_seconds=timeout_seconds):
                record = _with_header_values(raw)
                used += _size_of(record)
                if used > allowed:
                    raise _LimitError("bytes")
                self._check_time()
                records[record.topic, record.partition].append(record)
        finally:
            self._bytes_left -= used
        self._read += sum(map(len, records.values()))
        return records

    def _matches_in_time(self, record: KafkaRecord, before: KafkaRecord | None) -> bool:
        self._check_time()  # to match may be to search many windows, or to ask a registry
        return self._matches(record, before)

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise _LimitError("seconds")

    def newest(self) -> list[KafkaRecord]:
        """The newest matching records, the newest first."""
        found = [(at, _place(record), record) for part in self._parts for at, record in part.found]
        found.sort(key=lambda each: each[:2], reverse=True)
        return [record for _, _, record in found[: self._count]]

    def describe(self, stopped_by: Stop) -> Searched:
        """How far the search has read."""
        unread = [part.oldest_ms for part in self._parts if part.low < part.end]
        back_to = max(unread, default=math.inf)
        return Searched(
            self._read,
            tuple(sorted({partition for _, partition in (part.name for part in self._parts)})),
            None if math.isinf(back_to) else int(back_to),
            not unread,
            stopped_by,
        )


def _with_header_values(record: KafkaRecord) -> KafkaRecord:
    """``record`` with empty values in place of null ones, which other programs' headers may have."""
    if all(value is not None for _, value in record.headers):
        return record
    return replace(record, headers=tuple((name, value or b"") for name, value in record.headers))


def _size_of(record: KafkaRecord) -> int:
    return len(record.key or b"") + len(record.value or b"") + sum(len(value) for _, value in record.headers)


def _place(record: KafkaRecord) -> tuple[int, int, int, int]:
    """The order of records with equal timestamps: by coordinates, then by offset."""
    event = event_id(record)
    return (event.file, event.position, event.row, record.offset) if event else (0, 0, 0, record.offset)


def event_id(record: KafkaRecord) -> EventId | None:
    """The event id in the record's header `changefeed.id`; None without a valid one."""
    text = dict(record.headers).get(EVENT_ID_HEADER)
    return None if text is None else EventId.parse(text)
