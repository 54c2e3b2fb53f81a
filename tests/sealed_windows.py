"""Writes what many sealed windows leave in a commit log, with the code that seals windows, or for millions of them by
arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Producer

from changefeed.errors import BrokerUnavailableError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.periods import PeriodRecord
from changefeed.kafka.commit_log.records import AttemptRecord, BegunRecord, ClaimRecord, LatestEntries, ProgressRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.log_keys import NO_KEYS
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import Progress
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.sealed_period import HOUR_MS, SealedPeriod, TopicSums
from changefeed.model.window import Window

PARTITIONS = 2


class MemoryLog(FencedWriter):
    """What a log of pipeline ``name`` has, with the broker's time of each record.

    A write fails before or after its effect if ``fails`` is "before" or "after".
    """

    def __init__(self, name: str, now_ms: int) -> None:
        self.name, self.now_ms, self.fails = name, now_ms, ""
        self.latest = LatestEntries()
        self.writes: list[Mapping[bytes, bytes | None]] = []
        self.records: list[KafkaRecord] = []

    def write(self, topic: str, records: Mapping[bytes, bytes | None], purpose: str, **_: Any) -> None:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise BrokerUnavailableError(purpose)
        self.writes.append(records)
        stored = [
            KafkaRecord(topic, 0, len(self.records) + index, key, value, (), self.now_ms, stamped_by_broker=True)
            for index, (key, value) in enumerate(records.items())
        ]
        self.records += stored
        self.latest.add(stored, NO_KEYS)
        if fails == "after":
            raise BrokerUnavailableError(purpose)

    @property
    def log(self) -> OwnedLog:
        return OwnedLog(KafkaConnection("nowhere:1"), f"{self.name}.log", self.name, writer=self)

    @property
    def state(self) -> CommitLogState:
        return CommitLogState(tuple(self.latest.entries.values()))

    @property
    def live(self) -> list[KafkaRecord]:
        """What compaction leaves: the last record of each key, without the tombstones."""
        return [entry.record for entry in self.latest.entries.values()]


@dataclass(frozen=True)
class Windows:
    """Windows of a pipeline, one each ``every_ms`` from ``first_ms`` on, of ``rows`` rows in each of ``tables``."""

    name: str
    server_uuid: str
    first_ms: int
    every_ms: int
    tables: tuple[str, ...]
    rows: int = 5
    file: str = "binlog.000001"

    def sealed_ms(self, number: int) -> int:
        """When window ``number`` is sealed."""
        return self.first_ms + number * self.every_ms

    def manifest(self, number: int) -> Manifest:
        start, head = (BinlogCoordinates(self.file, 100 * each) for each in (number, number + 1))
        frozen_ms = self.sealed_ms(number) - 200
        window = Window(self.name, number, self.server_uuid, start, head, "", "", frozen_ms)
        receipts = tuple(
            TopicPartitionReceipt(table, partition, self.rows, 0, 100 * self.rows, 0, number, number + self.rows)
            for table in self.tables
            for partition in range(PARTITIONS)
        )
        rows = {table: {"c": PARTITIONS * self.rows} for table in self.tables}
        seconds = {"plan": 0.01, "start": 0.01, "prepare": 0.05, "ingest": 0.05}
        made = Manifest(window, 100, 3, 1, rows, 0, receipts, seconds)
        return replace(made, freshness_seconds=dict.fromkeys(self.tables, 0.5))

    def write(self, log: MemoryLog, numbers: Iterable[int], keep: int) -> None:
        """Write what runs write for the windows ``numbers``."""
        for number in numbers:
            manifest, attempt = self.manifest(number), f"{number:032x}"
            claim = ClaimRecord(attempt, None, "process 1 on host")
            log.now_ms = self.sealed_ms(number)
            log.log.keep(claim)
            log.log.keep(AttemptRecord(attempt))
            log.log.keep(BegunRecord(manifest.window))
            log.log.keep(*self._progress(manifest))
            log.log.seal(manifest, log.state, keep=keep)
            log.log.keep(forgotten=[claim])

    def _progress(self, manifest: Manifest) -> Iterator[ProgressRecord]:
        head = manifest.window.head
        for receipt in manifest.topics:
            progress = Progress(
                origin=head.file,
                position=head.position,
                sequence=0,
                window=manifest.window.number,
                source=self.server_uuid,
                messages=receipt.messages,
                partitions=PARTITIONS,
            )
            yield ProgressRecord(receipt.topic, receipt.partition, progress)

    def write_hours(self, log: MemoryLog, first: int, last: int) -> None:
        """Write the hours of the windows ``first`` to ``last``, as if all of them were merged."""
        numbers = range(first, last + 1)
        for hour in range(self.sealed_ms(first) // HOUR_MS, self.sealed_ms(last) // HOUR_MS + 1):
            begin = max(first, -((self.first_ms - hour * HOUR_MS) // self.every_ms))
            end = min(last + 1, -((self.first_ms - (hour + 1) * HOUR_MS) // self.every_ms))
            if begin < end:
                log.log.keep(PeriodRecord(self._hour(hour, begin, end - 1)))
        assert sum(record.sums.windows for record in log.state.of(PeriodRecord)) == len(numbers)

    def _hour(self, hour: int, first: int, last: int) -> SealedPeriod:
        count, one = last - first + 1, self.manifest(first)
        return replace(
            SealedPeriod.of_window(hour, one),
            windows=count,
            last=last,
            head=self.manifest(last).window.head,
            size_bytes=count * one.size_bytes,
            events=count * one.events,
            transactions=count * one.transactions,
            rows={table: {op: count * rows for op, rows in ops.items()} for table, ops in one.rows.items()},
            topics={topic: TopicSums(count * PARTITIONS * self.rows, count * 1000) for topic in self.tables},
            seconds={phase: count * seconds for phase, seconds in one.seconds.items()},
        )


def produce(bootstrap: str, topic: str, records: Iterable[KafkaRecord]) -> None:
    """Write ``records`` to ``topic`` fast, each with its time."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for count, record in enumerate(records):
        producer.produce(topic, record.value, record.key, 0, timestamp=record.timestamp_ms)
        if count % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
