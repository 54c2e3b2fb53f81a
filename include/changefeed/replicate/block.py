"""Records of several partitions in the order of the source's commits: many at a time, without an object each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from changefeed.formats.read_header import ReadHeader
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import TopicPartition
from changefeed.native.memory import Bytes, Words
from changefeed.records.block import DEFINITION_HEADER
from changefeed.records.index_kernel import (
    FIRST,
    GTID,
    OWN,
    POSITION_BITS,
    RECORD,
    RECORD_END,
    ROW,
    STEP_BITS,
    VALUE,
    VALUE_END,
)
from changefeed.records.record_index import RecordIndex
from changefeed.replicate.source_order import ChangeId, Turn

TURN = [FIRST, OWN, ROW]
"""The words of a turn."""
Packed = tuple[int, int, int]
"""A turn as the three words; they compare as turns do."""


def packed(turn: Turn) -> Packed:
    """Raises ValueError for a turn that the words have no room for."""
    words = (
        (turn.file << POSITION_BITS) + turn.position,
        (turn.own_file << POSITION_BITS) + turn.own_position,
        (turn.row << STEP_BITS) + turn.step,
    )
    if turn.step >> STEP_BITS or max(turn.position, turn.own_position) >> POSITION_BITS or max(words) >> 63:
        raise ValueError(f"{turn} is larger than any turn of a binlog")
    return words


def not_behind(words: Words, turn: Packed) -> int:
    """How many of ``words``, which are in order, are not behind ``turn``."""
    first, own, row = (words[:, number] for number in TURN)
    within = (first < turn[0]) | ((first == turn[0]) & ((own < turn[1]) | ((own == turn[1]) & (row <= turn[2]))))
    return int(np.count_nonzero(within))


@dataclass(frozen=True)
class RecordRun:
    """Records of one partition, in order; ``words`` are the first ORDER_WORDS of `records.index_kernel`, and
    point to ``data``.
    With ``read`` they are rows of a snapshot's chunk, which share one turn."""

    partition: TopicPartition
    first_offset: int
    data: Bytes
    words: Words
    read: ReadHeader | None = None

    def split(self, count: int) -> tuple[RecordRun, RecordRun]:
        """The first ``count`` records, and the others."""
        return (
            replace(self, words=self.words[:count]),
            replace(self, words=self.words[count:]),
        )

    @property
    def size_bytes(self) -> int:
        """Of its records."""
        return int(self.words[-1, RECORD_END] - self.words[0, RECORD]) if len(self.words) else 0


class OrderedRecords:
    """The records of ``stretches`` in the order of their turns. Of changes with the same turn there is the first; rows
    of snapshots come behind the change with their turn, in the order of ``stretches``."""

    def __init__(self, stretches: Sequence[RecordRun], behind: Packed | None) -> None:
        parts, size = [], 0
        words = np.concatenate([stretch.words for stretch in stretches])
        at = 0
        for stretch in stretches:
            begin, end = int(stretch.words[0, RECORD]), int(stretch.words[-1, RECORD_END])
            parts.append(stretch.data[begin:end])
            words[at : at + len(stretch.words), [VALUE, VALUE_END, RECORD, RECORD_END]] += size - begin
            size += end - begin
            at += len(stretch.words)
        order = np.lexsort((words[:, ROW], words[:, OWN], words[:, FIRST]))
        words = words[order]
        again = np.zeros(len(words), np.bool_)
        again[1:] = (words[1:, TURN] == words[:-1, TURN]).all(axis=1)  # published again, to another partition
        if behind is not None and len(words):
            again[: not_behind(words, behind)] = True
        of = np.repeat(np.arange(len(stretches)), [len(stretch.words) for stretch in stretches])[order]
        again &= ~np.array([stretch.read is not None for stretch in stretches], np.bool_)[of]
        self.data: Bytes = np.concatenate(parts)
        self.words: Words = words[~again]
        self._of = of[~again]
        self._stretches = stretches

    def __len__(self) -> int:
        return len(self.words)

    def pieces(self) -> Iterator[tuple[OrderedRecords, RecordRun | None]]:
        """The block in pieces, in order: changes, or the rows of a stretch that a snapshot read."""
        if all(stretch.read is None for stretch in self._stretches):
            yield self, None
            return
        is_read = np.array([stretch.read is not None for stretch in self._stretches], np.bool_)
        part = np.where(is_read[self._of], self._of, -1)
        bounds = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
        for first, last in pairwise(bounds):
            if first < last:
                yield self.piece(first, last), self._stretches[part[first]] if part[first] >= 0 else None

    def piece(self, first: int, last: int) -> OrderedRecords:
        """The records from number ``first`` to before ``last``."""
        piece = copy(self)
        for name in ("topic", "topics"):
            piece.__dict__.pop(name, None)
        piece.words, piece._of = self.words[first:last], self._of[first:last]
        return piece

    @cached_property
    def topics(self) -> list[str]:
        """The topics of the stretches, by number."""
        return sorted({stretch.partition[0] for stretch in self._stretches})

    @cached_property
    def topic(self) -> Words:
        """The number of each record's topic."""
        numbers = {name: number for number, name in enumerate(self.topics)}
        return np.array([numbers[stretch.partition[0]] for stretch in self._stretches], np.int64)[self._of]

    def turn(self, number: int) -> Packed:
        """A record's turn."""
        first, own, row = self.words[number, TURN]
        return int(first), int(own), int(row)

    def value(self, number: int) -> bytes:
        """A record's value."""
        begin, end = self.words[number, [VALUE, VALUE_END]]
        return self.data[int(begin) : int(end)].tobytes()

    def definition(self, number: int) -> bytes:
        """What a record of the topic of schema changes says of a definition: in a header, or else its value."""
        headers = dict(RecordIndex(self.data, self.words).record(number).headers)
        return headers.get(DEFINITION_HEADER) or self.value(number)

    def change_id(self, number: int) -> ChangeId:
        """A record's event id and GTID."""
        stretch = self._stretches[int(self._of[number])]
        record = RecordIndex(self.data, self.words).record(number)
        topic, partition = stretch.partition
        found = ChangeId.of(
            KafkaRecord(topic, partition, stretch.first_offset, None, None, tuple(record.headers), 0, False)
        )
        assert found is not None
        return found

    def changes_transaction(self, before: tuple[Packed, int] | None, commits: Words) -> Sequence[bool]:
        """Whether a commit lies before each record: its GTID is another than that of the record before it, or one of
        ``commits`` lies between. ``before`` are turn and GTID of the record before the first."""
        firsts, gtids = self.words[:, FIRST], self.words[:, GTID]
        turn, gtid = before or ((0, 0, 0), 0)
        windows = np.searchsorted(commits, firsts, side="right")
        last = np.searchsorted(commits, turn[0], side="right")
        found = (np.diff(gtids, prepend=gtid) != 0) | (np.diff(windows, prepend=last) > 0)
        return [bool(each) for each in found]
