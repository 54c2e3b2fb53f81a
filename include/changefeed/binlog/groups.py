"""Collects a slice's messages by topic and partition, and emits them in blocks.

The kernel writes messages in binlog order. A second, small kernel sorts one batch of them by group (counting sort),
so that each group's part is contiguous; parts wait until they fill a block.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from changefeed.binlog.joined_rows import JoinedRows, join_messages
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics
from changefeed.native.memory import Bytes, Words
from changefeed.native.scatter import scatter
from changefeed.records.block import Message, MessageBlock, join_arrays, pack, unpack

PENDING_BYTES = 64 << 20
"""The limit, in bytes, for the batches of waiting parts. Beyond it all parts are emitted, also small ones."""
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
    """Memory for the bytes of waiting messages. One Grouper at a time uses it."""

    def __init__(self) -> None:
        self._data: Bytes = np.empty(PENDING_BYTES + _ARENA_MARGIN, np.uint8)  # pages are allocated at their first use

    def part(self, at: int, size: int) -> Bytes:
        """The ``size`` bytes at ``at``, or a new array if a batch does not fit."""
        if at + size > len(self._data):
            return np.empty(size, np.uint8)
        return self._data[at : at + size]


class Grouper:
    """Collects the messages of one slice or chunk; with ``joins_rows`` the rows of an event become one message."""

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
        """Add the first ``count`` messages of ``output``; yields the full blocks."""
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
        # A waiting part keeps its complete batch in memory, so the limit applies to the sizes of batches.
        self._pending += size
        if self._pending >= PENDING_BYTES:
            yield from self._empty()

    def finish(self) -> Iterator[MessageBlock]:
        """Yield blocks of all waiting messages, also small blocks; call it when all events are complete."""
        yield from self._empty()
        if self._joined is not None:
            for group, message in self._joined.left():
                yield self._new_block(group, pack([message]))

    def _empty(self) -> Iterator[MessageBlock]:
        for group in sorted(self._waiting):
            yield from self._blocks(group)
        self._pending = 0

    def block(self, topic: str, partition: int, messages: Iterable[Message]) -> MessageBlock:
        """A block of ``messages`` that the kernel has not written; its number follows those of the emitted blocks."""
        self._number += 1
        joined = messages if self._joined is None else join_messages(messages)
        return MessageBlock(topic, partition, self._origin, self._slice, self._number - 1, pack(joined))

    def _blocks(self, group: int) -> Iterator[MessageBlock]:
        payload = self._payload(group)
        if self._joined is None:
            yield self._new_block(group, payload)
        elif messages := self._joined.take(group, unpack(payload)):
            yield self._new_block(group, pack(messages))

    def _new_block(self, group: int, payload: bytearray) -> MessageBlock:
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
    """An `Output` and an `Arena` for one owner, which uses them for one slice or chunk at a time.

    When this object is garbage-collected, the next object gets them. The reason: a Spark worker creates a decoder for
    each task, and with new memory page faults would take a quarter of the decoding time.
    """

    def __init__(self) -> None:
        try:
            lent = _free.pop()
        except IndexError:
            lent = Output(), Arena()
        self.output, self.arena = lent
        weakref.finalize(self, _take_back, *lent)


def _take_back(output: Output, arena: Arena) -> None:
    # An output that grew for a huge row is not reused, because small rows would fill all of it.
    _free.append((Output() if output.has_grown else output, arena))


_free: list[tuple[Output, Arena]] = []
