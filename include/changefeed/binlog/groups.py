"""Collects a slice's messages by topic and partition, and hands them over in blocks.

The kernel writes messages in binlog order. A second, small kernel sorts one batch of them by group (counting sort),
so that each group's part is contiguous; parts wait until a block's worth of bytes is there.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from changefeed.binlog.joined_rows import JoinedRows, joined_messages
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics
from changefeed.native.memory import Bytes, Words
from changefeed.native.scatter import scatter
from changefeed.records.block import Message, MessageBlock, join_arrays, pack, unpack

PENDING_BYTES = 64 << 20
"""Batches that parts of may wait, together: beyond it all parts are handed over, whatever their size."""
_ARENA_MARGIN = 8 << 20


@dataclass
class _Part:
    positions: Words
    sequences: Words
    ends: NDArray[np.uint32]
    seconds: NDArray[np.uint32]
    nulls: Bytes
    data: Bytes


@dataclass
class _Waiting:
    size: int = 0
    parts: list[_Part] = field(default_factory=list)


class Arena:
    """Memory for the bytes of messages that wait. Lent to one Grouper at a time."""

    def __init__(self) -> None:
        self._data: Bytes = np.empty(PENDING_BYTES + _ARENA_MARGIN, np.uint8)  # touched only as far as it is used

    def part(self, at: int, size: int) -> Bytes:
        """``size`` bytes at ``at``; an array of its own for a batch that does not fit."""
        if at + size > len(self._data):
            return np.empty(size, np.uint8)
        return self._data[at : at + size]


class Grouper:
    """The messages of one slice or chunk that were not handed over yet; with ``joins_rows`` one for each event."""

    def __init__(
        self,
        topics: Topics,
        arena: Arena,
        origin: str,
        slice_number: int,
        block_bytes: int,
        *,
        joins_rows: bool = False,
    ) -> None:
        self._topics = topics
        self._arena = arena
        self._origin = origin
        self._slice = slice_number
        self._block_bytes = block_bytes
        self._waiting: dict[int, _Waiting] = {}
        self._pending = 0
        self._number = 0
        self._joined = JoinedRows() if joins_rows else None

    def add(self, count: int, output: Output) -> Iterator[MessageBlock]:
        """Take over the first ``count`` messages of ``output``; yield the blocks that are full."""
        if count == 0:
            return
        firsts = np.zeros(len(self._topics.groups) + 1, np.int64)
        begins = np.zeros(len(self._topics.groups) + 1, np.int64)
        size = int(output.ends[4 * count - 1])
        sorted_data = self._arena.part(self._pending, size)
        sorted_positions = np.empty(count, np.int64)
        sorted_sequences = np.empty(count, np.int64)
        sorted_ends = np.empty(4 * count, np.uint32)
        sorted_seconds = np.empty(count, np.uint32)
        sorted_nulls = np.empty(count, np.uint8)
        scatter(
            count,
            output.data,
            output.positions,
            output.sequences,
            output.groups,
            output.ends,
            output.seconds,
            output.nulls,
            firsts,
            begins,
            np.empty_like(firsts),
            np.empty_like(begins),
            sorted_data,
            sorted_positions,
            sorted_sequences,
            sorted_ends,
            sorted_seconds,
            sorted_nulls,
        )
        for group in np.flatnonzero(np.diff(firsts)).tolist():
            first, last = int(firsts[group]), int(firsts[group + 1])
            begin, end = int(begins[group]), int(begins[group + 1])
            part = _Part(
                sorted_positions[first:last],
                sorted_sequences[first:last],
                sorted_ends[4 * first : 4 * last],
                sorted_seconds[first:last],
                sorted_nulls[first:last],
                sorted_data[begin:end],
            )
            waiting = self._waiting.setdefault(group, _Waiting())
            waiting.parts.append(part)
            waiting.size += end - begin + 37 * (last - first)
            if waiting.size >= self._block_bytes:
                yield from self._blocks(group)
        # A part keeps its whole batch in memory, so batches are what is counted.
        self._pending += size
        if self._pending >= PENDING_BYTES:
            yield from self._empty()

    def finish(self) -> Iterator[MessageBlock]:
        """Yield blocks of all messages that wait, whatever their size: no event goes on after them."""
        yield from self._empty()
        if self._joined is not None:
            for group, message in self._joined.left():
                yield self._made(group, pack([message]))

    def _empty(self) -> Iterator[MessageBlock]:
        for group in sorted(self._waiting):
            yield from self._blocks(group)
        self._pending = 0

    def block(self, topic: str, partition: int, messages: Iterable[Message]) -> MessageBlock:
        """A block of messages that were made elsewhere, behind those that were handed over."""
        self._number += 1
        given = messages if self._joined is None else joined_messages(messages)
        return MessageBlock(topic, partition, self._origin, self._slice, self._number - 1, pack(given))

    def _blocks(self, group: int) -> Iterator[MessageBlock]:
        payload = self._payload(group)
        if self._joined is None:
            yield self._made(group, payload)
        elif messages := self._joined.take(group, unpack(payload)):
            yield self._made(group, pack(messages))

    def _made(self, group: int, payload: bytearray) -> MessageBlock:
        topic, partition = self._topics.groups[group]
        self._number += 1
        return MessageBlock(topic, partition, self._origin, self._slice, self._number - 1, payload)

    def _payload(self, group: int) -> bytearray:
        waiting = self._waiting.pop(group)
        base = 0
        ends = []
        for part in waiting.parts:
            ends.append(part.ends + np.uint32(base) if base else part.ends)
            base += len(part.data)
        count = sum(len(part.nulls) for part in waiting.parts)
        return join_arrays(
            count,
            (
                *(part.positions.data for part in waiting.parts),
                *(part.sequences.data for part in waiting.parts),
                *(part.data for part in ends),
                *(part.seconds.data for part in waiting.parts),
                *(part.nulls.data for part in waiting.parts),
                *(part.data.data for part in waiting.parts),
            ),
        )


class Buffers:
    """An `Output` and an `Arena`, lent to whoever holds this object; one slice or chunk at a time uses them.

    They are taken back when nobody holds it any more, and lent to the next: a Spark worker makes a decoder for each of
    its tasks, and fresh pages from the system would cost it a quarter of all decoding.
    """

    def __init__(self) -> None:
        try:
            lent = _free.pop()
        except IndexError:
            lent = Output(), Arena()
        self.output, self.arena = lent
        weakref.finalize(self, _take_back, *lent)


def _take_back(output: Output, arena: Arena) -> None:
    # One that has grown for a huge row would be filled by the small rows of all slices after it.
    _free.append((Output() if output.has_grown else output, arena))


_free: list[tuple[Output, Arena]] = []
