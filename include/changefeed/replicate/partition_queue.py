"""What was read of one partition and not handed on yet: only records that are to be applied, each once, in order."""

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
from changefeed.records.record_index import RecordIndex, indexed
from changefeed.replicate.block import TURN, Packed, RecordRun, not_behind, packed
from changefeed.replicate.sealed import SealedStretch
from changefeed.replicate.source_order import ChangeId, turn_of


@dataclass
class PartitionQueue:
    """Records of ``partition`` from offset ``start`` to before offset ``end``, as far as they are of ``stretch``.

    ``shortened`` is the offset that the partition begins at, where nobody was given what was before: that has to be
    from before the stretch, as it is where the first record that is left is. ``offset`` is that from which on nothing
    was handed on yet.

    Rows of snapshots (op r) from offset ``reads`` on are among them, none where it is None. Their turn is right behind
    all changes before the coordinates that their header says, and not before a record that stands before them.
    """

    partition: TopicPartition
    start: int
    end: int
    stretch: SealedStretch
    shortened: int | None
    reads: int | None = None
    is_open: bool = True
    held_bytes: int = 0
    offset: int = field(init=False)
    _stretches: deque[RecordRun] = field(default_factory=deque)
    _last: Packed | None = None
    _floor: Packed = (0, 0, 0)
    """The turn that no row of a snapshot comes before: that of the record before it."""

    def __post_init__(self) -> None:
        self.offset = self.start
        self._read_to = self.start

    @property
    def last(self) -> Packed | None:
        """The turn of the last record that is held; None where none is."""
        return self._turn(self._stretches[-1].words[-1]) if self._stretches else None

    def take(self, batch: KafkaRecord) -> None:
        """Hold the records of ``batch``, a whole one, that are wanted.

        Raises BadRecordError for records that are none of changefeed's, or stand out of order, and TopicError where
        records of the stretch are in the topic no more.
        """
        if not self.is_open:
            return
        data, first = batch.value or b"", batch.offset
        try:
            index = indexed(*records_in(data), self.stretch.server_uuid, first)
        except ValueError as error:
            raise BadRecordError(f"the batch at offset {first} of {self.partition}: {error}") from error
        behind_batch = min(first + int(index.words[-1, OFFSET]) + 1, self.end) if len(index.words) else first
        if (read := self._read_by_snapshot(index)) is not None:
            self._take_read(read, index, behind_batch)
            return
        offsets, words = index.offsets, index.words[:, :ORDER_WORDS]
        words = words[(offsets >= self.start) & (offsets < self.end) & (words[:, VALUE] >= 0)]
        words = self._known(index, words, first)
        behind = words[:, FIRST] >= packed(turn_of(self.stretch.start))[0]
        if self.shortened is not None and len(words) and not behind[0]:
            self.shortened = None
        words = words[behind]
        if self.shortened is not None and len(words):
            raise removed(self.partition, self.shortened)
        words = self._in_order(words, batch)
        bound = packed(turn_of(self.stretch.watermark))[0]
        within = int(np.count_nonzero(words[:, FIRST] < bound))
        self.is_open = within == len(words) and behind_batch < self.end
        if within < len(words):  # the rest is for a run that has a later window sealed
            behind_batch = first + int(words[within, OFFSET])
        words = words[:within]
        if len(words):
            self._last = self._turn(words[-1])
            self._floor = max(self._floor, self._last)
            self._hold(RecordRun(self.partition, first, index.data, words))
        elif not self._stretches:
            self.offset = behind_batch
        self._read_to = behind_batch

    def _read_by_snapshot(self, index: RecordIndex) -> ReadHeader | None:
        """The header of a batch of rows that a snapshot read, which are all of one chunk; None for another batch."""
        words = index.words
        if self.reads is None or not len(words) or words[:, KNOWN].any():
            return None
        found = {self._chunk(index, number) for number in (0, len(words) - 1)}
        (chunk, *others) = found
        return None if others or chunk is None else chunk[1]

    def _chunk(self, index: RecordIndex, number: int) -> tuple[EventStream, ReadHeader] | None:
        event = EventId.parse(index.event_id(number))
        if event is None or event.server != self.stretch.server_uuid:
            return None
        try:
            read = ReadHeader.of(dict(index.record(number).headers)[READ_HEADER])
        except (KeyError, ValueError):
            return None
        return event.stream, read

    def _take_read(self, read: ReadHeader, index: RecordIndex, behind_batch: int) -> None:
        """Hold a batch of a snapshot's rows. What lies behind the end of the stretch comes with a later one."""
        offsets, words = index.offsets, index.words[:, :ORDER_WORDS]
        words = words[(offsets >= max(self.reads or 0, self.start)) & (offsets < self.end)]
        words = words[words[:, VALUE] >= 0]
        self.is_open = read.base <= self.stretch.watermark and behind_batch < self.end
        if read.base > self.stretch.watermark:
            return
        if len(words):
            self._floor = max(self._floor, packed(turn_of(read.base)))
            words[:, TURN] = self._floor
            self._hold(RecordRun(self.partition, index.first_offset, index.data, words, read))
        elif not self._stretches:
            self.offset = behind_batch
        self._read_to = behind_batch

    def handed(self, until: Packed | None) -> list[RecordRun]:
        """Take out the records that are not behind ``until``, or all."""
        given: list[RecordRun] = []
        while self._stretches:
            first = self._stretches[0]
            count = len(first.words) if until is None else not_behind(first.words, until)
            if not count:
                break
            self._stretches.popleft()
            self.held_bytes -= first.size_bytes
            one, other = first.split(count)
            given.append(one)
            if len(other.words):
                self._stretches.appendleft(other)
                self.held_bytes += other.size_bytes
                break
        self.offset = self._read_to
        if self._stretches:
            self.offset = self._stretches[0].first_offset + int(self._stretches[0].words[0, OFFSET])
        return given

    def _hold(self, stretch: RecordRun) -> None:
        self._stretches.append(stretch)
        self.held_bytes += stretch.size_bytes

    @staticmethod
    def _turn(words: Words) -> Packed:
        first, own, row = words[TURN]
        return int(first), int(own), int(row)

    def _known(self, index: RecordIndex, words: Words, first: int) -> Words:
        """``words`` without those of other servers' changes and of rows that a SELECT read, all turns known."""
        unknown = np.flatnonzero(words[:, KNOWN] == 0)
        if not len(unknown):
            return words
        wanted = np.ones(len(words), np.bool_)
        topic, partition = self.partition
        for number in unknown:
            record = RecordIndex(index.data, words).record(int(number))
            at = first + int(words[number, OFFSET])
            change = ChangeId.of(KafkaRecord(topic, partition, at, None, None, tuple(record.headers), 0, False))
            if change is None:
                wanted[number] = False
            elif change.server_uuid != self.stretch.server_uuid:
                wanted[number] = False
                self.shortened = None
            else:
                words[number, TURN] = packed(change.turn)
        return words[wanted]

    def _in_order(self, words: Words, batch: KafkaRecord) -> Words:
        """``words``, less those that were published again. Raises BadRecordError where they rise not."""
        last = self._last
        if not len(words) or (_rises(words) and (last is None or self._turn(words[0]) > last)):
            return words
        kept = []
        for number, word in enumerate(words):
            turn = self._turn(word)
            if last is None or turn > last:
                last = turn
                kept.append(number)
            elif not self.stretch.repeats:
                raise BadRecordError(
                    f"the record at offset {batch.offset + int(word[OFFSET])} of partition {batch.partition} of "
                    f"{batch.topic!r} comes after one of a later change: something else than changefeed wrote it. In "
                    "which order they are to be applied is not known."
                )
        return words[kept]


def _rises(words: Words) -> bool:
    before, after = words[:-1, TURN].T, words[1:, TURN].T
    rises = (after[0] > before[0]) | (
        (after[0] == before[0]) & ((after[1] > before[1]) | ((after[1] == before[1]) & (after[2] > before[2])))
    )
    return bool(rises.all())


def removed(partition: TopicPartition, first: int) -> TopicError:
    """The error of a partition that has lost records which the follower was not given; it begins at ``first`` now."""
    return TopicError(
        f"partition {partition[1]} of {partition[0]!r} begins at offset {first}, behind records that the follower was "
        "not given: they were removed (retention.ms, retention.bytes), or the topic was made anew. Copy the source's "
        "tables to the follower anew, and give the coordinates of the copy with --from; and keep topics for longer "
        "than a follower may lag."
    )
