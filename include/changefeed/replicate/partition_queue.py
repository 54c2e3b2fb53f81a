"""Queues the records of one partition that must be applied, each once, in commit order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from changefeed.errors import BadRecordError, TopicError
from changefeed.formats.read_header import ReadHeader
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.native.memory import Words
from changefeed.records.block import READ_HEADER
from changefeed.records.event_id import EventId, EventStream
from changefeed.records.index_kernel import FIRST, KNOWN, OFFSET, ORDER_WORDS, VALUE
from changefeed.records.record_batch import records_in
from changefeed.records.record_index import RecordIndex, build_index
from changefeed.replicate.block import ORDER, PackedOrder, RecordRun, count_up_to, pack_order
from changefeed.replicate.sealed_range import SealedRange
from changefeed.replicate.source_order import ChangeId, order_at


@dataclass
class PartitionQueue:
    """The records of ``partition`` in offsets ``[start, end)`` that are in ``sealed_range`` and not returned yet.

    - ``truncated_at``: the partition's first offset, if earlier records were removed and the follower never read them.
      The removed records must belong to changes before the range. This is proved if the first remaining record belongs
      to a change before the range.
    - ``offset``: no record from this offset on was returned yet.
    - ``reads``: if it is not None, rows of snapshots (op r) from this offset on are included.

    A row of a snapshot comes directly after all changes before the coordinates in its header, but not before the
    previous record of the partition.
    """

    partition: TopicPartition
    start: int
    end: int
    sealed_range: SealedRange
    truncated_at: int | None
    reads: int | None = None
    is_open: bool = True
    held_bytes: int = 0
    offset: int = field(init=False)
    _runs: deque[RecordRun] = field(default_factory=deque)
    _last: PackedOrder | None = None
    _floor: PackedOrder = (0, 0, 0)
    """The smallest commit order for the next row of a snapshot: the order of the record before it."""

    def __post_init__(self) -> None:
        self.offset = self.start
        self._read_to = self.start

    @property
    def last(self) -> PackedOrder | None:
        """The commit order of the last record in the queue; None if it is empty."""
        return self._order_of(self._runs[-1].words[-1]) if self._runs else None

    def take(self, batch: KafkaRecord) -> None:
        """Add the records of a complete ``batch`` that must be applied.

        Raises BadRecordError for records that changefeed did not write or that are out of order, and TopicError if
        records of the range were removed from the topic.
        """
        if not self.is_open:
            return
        data, first = batch.value or b"", batch.offset
        try:
            index = build_index(*records_in(data), self.sealed_range.server_uuid, first)
        except ValueError as error:
            raise BadRecordError(f"the batch at offset {first} of {self.partition}: {error}") from error
        batch_end = min(first + int(index.words[-1, OFFSET]) + 1, self.end) if len(index.words) else first
        if (read := self._snapshot_header(index)) is not None:
            self._hold_snapshot_rows(read, index, batch_end)
            return
        offsets, words = index.offsets, index.words[:, :ORDER_WORDS]
        words = words[(offsets >= self.start) & (offsets < self.end) & (words[:, VALUE] >= 0)]
        words = self._with_known_orders(index, words, first)
        in_range = words[:, FIRST] >= pack_order(order_at(self.sealed_range.start))[0]
        if self.truncated_at is not None and len(words) and not in_range[0]:
            self.truncated_at = None
        words = words[in_range]
        if self.truncated_at is not None and len(words):
            raise removed_records_error(self.partition, self.truncated_at)
        words = self._without_repeats(words, batch)
        bound = pack_order(order_at(self.sealed_range.watermark))[0]
        within = int(np.count_nonzero(words[:, FIRST] < bound))
        self.is_open = within == len(words) and batch_end < self.end
        if within < len(words):  # the other records belong to windows that are sealed later
            batch_end = first + int(words[within, OFFSET])
        words = words[:within]
        if len(words):
            self._last = self._order_of(words[-1])
            self._floor = max(self._floor, self._last)
            self._hold(RecordRun(self.partition, first, index.data, words))
        elif not self._runs:
            self.offset = batch_end
        self._read_to = batch_end

    def _snapshot_header(self, index: RecordIndex) -> ReadHeader | None:
        """The header of a batch with rows of a snapshot, which are all of one chunk; None for other batches."""
        words = index.words
        if self.reads is None or not len(words) or words[:, KNOWN].any():
            return None
        found = {self._chunk(index, number) for number in (0, len(words) - 1)}
        (chunk, *others) = found
        return None if others or chunk is None else chunk[1]

    def _chunk(self, index: RecordIndex, number: int) -> tuple[EventStream, ReadHeader] | None:
        event = EventId.parse(index.event_id(number))
        if event is None or event.server != self.sealed_range.server_uuid:
            return None
        try:
            read = ReadHeader.of(dict(index.record(number).headers)[READ_HEADER])
        except (KeyError, ValueError):
            return None
        return event.stream, read

    def _hold_snapshot_rows(self, read: ReadHeader, index: RecordIndex, batch_end: int) -> None:
        """Add a batch with rows of a snapshot. A batch after the end of the range is left to a later run."""
        offsets, words = index.offsets, index.words[:, :ORDER_WORDS]
        words = words[(offsets >= max(self.reads or 0, self.start)) & (offsets < self.end)]
        words = words[words[:, VALUE] >= 0]
        self.is_open = read.base <= self.sealed_range.watermark and batch_end < self.end
        if read.base > self.sealed_range.watermark:
            return
        if len(words):
            self._floor = max(self._floor, pack_order(order_at(read.base)))
            words[:, ORDER] = self._floor
            self._hold(RecordRun(self.partition, index.first_offset, index.data, words, read))
        elif not self._runs:
            self.offset = batch_end
        self._read_to = batch_end

    def take_until(self, until: PackedOrder | None) -> list[RecordRun]:
        """Remove and return the records at or before ``until``; all records if it is None."""
        runs: list[RecordRun] = []
        while self._runs:
            first = self._runs[0]
            count = len(first.words) if until is None else count_up_to(first.words, until)
            if not count:
                break
            self._runs.popleft()
            self.held_bytes -= first.size_bytes
            one, other = first.split(count)
            runs.append(one)
            if len(other.words):
                self._runs.appendleft(other)
                self.held_bytes += other.size_bytes
                break
        self.offset = self._read_to
        if self._runs:
            self.offset = self._runs[0].first_offset + int(self._runs[0].words[0, OFFSET])
        return runs

    def _hold(self, sealed_range: RecordRun) -> None:
        self._runs.append(sealed_range)
        self.held_bytes += sealed_range.size_bytes

    @staticmethod
    def _order_of(words: Words) -> PackedOrder:
        first, own, row = words[ORDER]
        return int(first), int(own), int(row)

    def _with_known_orders(self, index: RecordIndex, words: Words, first: int) -> Words:
        """``words`` with all commit orders, and without changes of other servers and rows of snapshots."""
        unknown = np.flatnonzero(words[:, KNOWN] == 0)
        if not len(unknown):
            return words
        is_followed = np.ones(len(words), np.bool_)
        topic, partition = self.partition
        for number in unknown:
            record = RecordIndex(index.data, words).record(int(number))
            at = first + int(words[number, OFFSET])
            change = ChangeId.of(KafkaRecord(topic, partition, at, None, None, tuple(record.headers), 0, False))
            if change is None:
                is_followed[number] = False
            elif change.server_uuid != self.sealed_range.server_uuid:
                is_followed[number] = False
                self.truncated_at = None
            else:
                words[number, ORDER] = pack_order(change.order)
        return words[is_followed]

    def _without_repeats(self, words: Words, batch: KafkaRecord) -> Words:
        """``words`` without records that were published again because of a seek.

        Raises BadRecordError if records are not in ascending order and no seek explains it.
        """
        last = self._last
        if not len(words) or (_is_ascending(words) and (last is None or self._order_of(words[0]) > last)):
            return words
        kept = []
        for number, word in enumerate(words):
            order = self._order_of(word)
            if last is None or order > last:
                last = order
                kept.append(number)
            elif not self.sealed_range.repeats:
                raise BadRecordError(
                    f"the record at offset {batch.offset + int(word[OFFSET])} of partition {batch.partition} of "
                    f"{batch.topic!r} comes after one of a later change: something else than changefeed wrote it, and "
                    "the order in which to apply them is not known."
                )
        return words[kept]


def _is_ascending(words: Words) -> bool:
    before, after = words[:-1, ORDER].T, words[1:, ORDER].T
    is_higher = (after[0] > before[0]) | (
        (after[0] == before[0]) & ((after[1] > before[1]) | ((after[1] == before[1]) & (after[2] > before[2])))
    )
    return bool(is_higher.all())


def removed_records_error(partition: TopicPartition, first: int) -> TopicError:
    """The error for a partition whose records before ``first`` were removed before the follower read them."""
    return TopicError(
        f"partition {partition[1]} of {partition[0]!r} begins at offset {first}, after records that the follower did "
        "not read: they were removed (retention.ms, retention.bytes), or the topic was created again. Copy the "
        "source's tables to the follower again, and give the coordinates of the copy with --from; and set the topics' "
        "retention to more than a follower may lag."
    )
