"""Backward searches: the newest records first, within limits of records, bytes and time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.operations.record_search import Searched, SearchLimits, search_backwards

LIMITS = SearchLimits(records=1000, size_bytes=10_000, seconds=60)


def record(partition: int, offset: int, at: int, size: int = 1) -> KafkaRecord:
    return KafkaRecord("t", partition, offset, b"%d" % offset, b"v" * size, (), at, stamped_by_broker=False)


class Stored:
    """Partitions as a reader returns them; ``read`` has the number of returned records."""

    def __init__(self, *partitions: list[KafkaRecord], delay: float = 0.0) -> None:
        self._partitions = {("t", number): records for number, records in enumerate(partitions)}
        self.read = 0
        self._delay = delay

    def ranges(self) -> dict[TopicPartition, tuple[int, int]]:
        return {name: (0, records[-1].offset + 1 if records else 0) for name, records in self._partitions.items()}

    def between(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout_seconds: float
    ) -> Iterator[KafkaRecord]:
        assert timeout_seconds > 0
        for name, (low, end) in ranges.items():
            for each in self._partitions[name]:
                if low <= each.offset < end:
                    self.read += 1
                    time.sleep(self._delay)
                    yield each


def search(
    stored: Stored, wanted: int, *keys: int, limits: SearchLimits = LIMITS
) -> tuple[list[tuple[int, int]], Searched]:
    def matches(each: KafkaRecord, _: KafkaRecord | None) -> bool:
        return not keys or int(each.key or b"-1") in keys

    found, searched = search_backwards(stored, stored.ranges(), wanted, matches, limits=limits, timeout_seconds=1.0)
    return [(each.partition, each.offset) for each in found], searched


def test_newest_records_of_all_partitions_come_first() -> None:
    stored = Stored([record(0, offset, 10 * offset) for offset in range(100)], [record(1, 0, 985), record(1, 1, 5000)])
    found, searched = search(stored, 3)
    assert found == [(1, 1), (0, 99), (1, 0)]
    assert stored.read <= 6
    assert (searched.is_complete, searched.stopped_by) == (False, "")
    assert searched.back_to_ms == 970, "the oldest record that was read of partition 0"


def test_partition_with_older_timestamps_at_its_end_is_read_in_its_own_order() -> None:
    stored = Stored([record(0, 0, 50), record(0, 1, 90), record(0, 2, 10)], [record(1, 0, 40)])
    found, searched = search(stored, 4)
    assert found == [(1, 0), (0, 2), (0, 1), (0, 0)], "a backfill published the last one with its time"
    assert searched == Searched(4, (0, 1), None, is_complete=True)


def test_search_reads_until_it_has_found_all_matches() -> None:
    stored = Stored(
        [record(0, offset, offset) for offset in range(500)], [record(1, offset, offset) for offset in (7,)]
    )
    found, searched = search(stored, 2, 7, 400)
    assert found[0] == (0, 400)
    assert found[1] in ((1, 7), (0, 7))
    found, searched = search(stored, 5, 7, 400)
    assert sorted(found) == [(0, 7), (0, 400), (1, 7)]
    assert searched.is_complete


def test_search_ends_at_the_limit_of_records_and_says_how_far_it_read() -> None:
    stored = Stored([record(0, offset, offset) for offset in range(5000)])
    found, searched = search(stored, 10, 1)
    assert found == []
    assert stored.read == 1000
    assert (searched.records, searched.back_to_ms, searched.stopped_by) == (1000, 4000, "records")


def test_large_records_are_read_a_few_at_a_time_within_the_limit_of_bytes() -> None:
    stored = Stored([record(0, offset, offset, size=1500) for offset in range(64)])
    found, searched = search(stored, 20)
    assert found == [(0, 63), (0, 62)]
    assert searched.stopped_by == "bytes"
    huge = Stored([record(0, 0, 1, size=20_000)])
    assert search(huge, 1) == ([], Searched(0, (0,), None, is_complete=False, stopped_by="bytes"))


def test_search_ends_at_the_limit_of_time() -> None:
    stored = Stored([record(0, offset, offset) for offset in range(500)], delay=0.002)
    found, searched = search(stored, 5, 1, limits=SearchLimits(1000, 10_000, 0.1))
    assert found == []
    assert searched.stopped_by == "seconds"
    assert not searched.is_complete


def test_time_of_matching_counts() -> None:
    stored = Stored([record(0, offset, offset) for offset in range(500)])
    compared: list[int] = []

    def matches(each: KafkaRecord, _: KafkaRecord | None) -> bool:
        compared.append(each.offset)
        time.sleep(0.01)
        return False

    limits = SearchLimits(1000, 10_000, 0.1)
    _, searched = search_backwards(stored, stored.ranges(), 5, matches, limits=limits, timeout_seconds=1.0)
    assert len(compared) < 500
    assert (searched.stopped_by, searched.is_complete) == ("seconds", False)


@pytest.mark.parametrize("wanted", [1, 20])
def test_gaps_in_offsets_are_skipped(wanted: int) -> None:
    stored = Stored([record(0, offset, offset) for offset in (0, 1, 900)], [])
    found, searched = search(stored, wanted)
    assert found == [(0, 900), (0, 1), (0, 0)][:wanted]
    assert searched.is_complete == (wanted == 20)
