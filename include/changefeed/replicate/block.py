"""Blocks of records of several partitions in the source's commit order, stored as arrays, not as one object each."""

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
from changefeed.replicate.source_order import ChangeId, CommitOrder

ORDER = [FIRST, OWN, ROW]
"""The words of a record (see `index_kernel`) that make up its commit order."""
PackedOrder = tuple[int, int, int]
"""A commit order as three integers; they sort in the same order as `CommitOrder`."""


def pack_order(order: CommitOrder) -> PackedOrder:
    """A commit order as three integers of 63 bits. Raises ValueError if a part of it is too large."""
    words = (
        (order.file << POSITION_BITS) + order.position,
        (order.own_file << POSITION_BITS) + order.own_position,
        (order.row << STEP_BITS) + order.step,
    )
    if order.step >> STEP_BITS or max(order.position, order.own_position) >> POSITION_BITS or max(words) >> 63:
        raise ValueError(f"{order} is larger than any position in a binlog")
    return words


def count_up_to(words: Words, order: PackedOrder) -> int:
    """The number of records of ``words`` with a commit order up to and including ``order``."""
    first, own, row = (words[:, number] for number in ORDER)
    within = (first < order[0]) | ((first == order[0]) & ((own < order[1]) | ((own == order[1]) & (row <= order[2]))))
    return int(np.count_nonzero(within))


@dataclass(frozen=True)
class RecordRun:
    """Consecutive records of one partition.

    ``words`` has a row for each record: the first ORDER_WORDS of `records.index_kernel`, with offsets into ``data``. If
    ``read`` is not None, the records are rows of one chunk of a snapshot, and have the same commit order.
    """

    partition: TopicPartition
    first_offset: int
    data: Bytes
    words: Words
    read: ReadHeader | None = None

    def split(self, count: int) -> tuple[RecordRun, RecordRun]:
        """A run of the first ``count`` records, and a run of the others."""
        return (
            replace(self, words=self.words[:count]),
            replace(self, words=self.words[count:]),
        )

    @property
    def size_bytes(self) -> int:
        """The size of the records in bytes."""
        return int(self.words[-1, RECORD_END] - self.words[0, RECORD]) if len(self.words) else 0


class OrderedRecords:
    """The records of ``runs`` after the commit order ``after``, sorted by commit order.

    If several changes have the same order, only the first is kept: the others were published again. Rows of snapshots
    come after the change with the same order; they are not removed by ``after``, and keep the order of ``runs``.
    """

    def __init__(self, runs: Sequence[RecordRun], after: PackedOrder | None) -> None:
        parts, size = [], 0
        words = np.concatenate([run.words for run in runs])
        row = 0
        for run in runs:
            begin, end = int(run.words[0, RECORD]), int(run.words[-1, RECORD_END])
            parts.append(run.data[begin:end])
            words[row : row + len(run.words), [VALUE, VALUE_END, RECORD, RECORD_END]] += size - begin
            size += end - begin
            row += len(run.words)
        sorted_rows = np.lexsort((words[:, ROW], words[:, OWN], words[:, FIRST]))
        words = words[sorted_rows]
        is_removed = np.zeros(len(words), np.bool_)
        # A change that was published again, to another partition, has the same order.
        is_removed[1:] = (words[1:, ORDER] == words[:-1, ORDER]).all(axis=1)
        if after is not None and len(words):
            is_removed[: count_up_to(words, after)] = True
        run_numbers = np.repeat(np.arange(len(runs)), [len(run.words) for run in runs])[sorted_rows]
        is_removed &= ~np.array([run.read is not None for run in runs], np.bool_)[run_numbers]
        self.data: Bytes = np.concatenate(parts)
        self.words: Words = words[~is_removed]
        self._run_numbers = run_numbers[~is_removed]
        self._runs = runs

    def __len__(self) -> int:
        return len(self.words)

    def parts(self) -> Iterator[tuple[OrderedRecords, RecordRun | None]]:
        """Yield the block in parts, in order: changes with None, rows of a snapshot with their run."""
        if all(run.read is None for run in self._runs):
            yield self, None
            return
        is_read = np.array([run.read is not None for run in self._runs], np.bool_)
        source = np.where(is_read[self._run_numbers], self._run_numbers, -1)
        bounds = [0, *(np.flatnonzero(np.diff(source)) + 1).tolist(), len(source)]
        for first, last in pairwise(bounds):
            if first < last:
                yield self.part(first, last), self._runs[source[first]] if source[first] >= 0 else None

    def part(self, first: int, last: int) -> OrderedRecords:
        """The records with the numbers ``first`` to ``last - 1``."""
        part = copy(self)
        for name in ("topic", "topics"):
            part.__dict__.pop(name, None)
        part.words, part._run_numbers = self.words[first:last], self._run_numbers[first:last]
        return part

    @cached_property
    def topics(self) -> list[str]:
        """The names of the topics, sorted. The numbers in `topic` are indexes of this list."""
        return sorted({run.partition[0] for run in self._runs})

    @cached_property
    def topic(self) -> Words:
        """For each record, the index of its topic in `topics`."""
        numbers = {name: number for number, name in enumerate(self.topics)}
        return np.array([numbers[run.partition[0]] for run in self._runs], np.int64)[self._run_numbers]

    def order(self, number: int) -> PackedOrder:
        """The commit order of record ``number``."""
        first, own, row = self.words[number, ORDER]
        return int(first), int(own), int(row)

    def value(self, number: int) -> bytes:
        """The value of record ``number``."""
        begin, end = self.words[number, [VALUE, VALUE_END]]
        return self.data[int(begin) : int(end)].tobytes()

    def ddl(self, number: int) -> bytes:
        """The DDL in record ``number`` of the schema-changes topic: a header has it, or else the value."""
        headers = dict(RecordIndex(self.data, self.words).record(number).headers)
        return headers.get(DEFINITION_HEADER) or self.value(number)

    def change_id(self, number: int) -> ChangeId:
        """The event id and GTID of record ``number``, which must be a change."""
        run = self._runs[int(self._run_numbers[number])]
        record = RecordIndex(self.data, self.words).record(number)
        topic, partition = run.partition
        change_id = ChangeId.of(
            KafkaRecord(topic, partition, run.first_offset, None, None, tuple(record.headers), 0, False)
        )
        assert change_id is not None
        return change_id

    def commits_before(self, before: tuple[PackedOrder, int] | None, commits: Words) -> Sequence[bool]:
        """For each record, whether the source is known to have committed between the previous record and this one.

        That is so if their GTIDs differ, or one of ``commits`` is between them. ``before`` is the order and the GTID
        digest of the record before the block; None if there is none.
        """
        firsts, gtids = self.words[:, FIRST], self.words[:, GTID]
        order, gtid = before or ((0, 0, 0), 0)
        windows = np.searchsorted(commits, firsts, side="right")
        last = np.searchsorted(commits, order[0], side="right")
        has_commit = (np.diff(gtids, prepend=gtid) != 0) | (np.diff(windows, prepend=last) > 0)
        return [bool(each) for each in has_commit]
