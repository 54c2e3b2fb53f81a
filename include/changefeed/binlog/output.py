"""Where the kernel writes finished messages: bytes, and for each its position, group, ends and time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, cast

import numpy as np

from changefeed.native.memory import Bytes, Ends, Words
from changefeed.records.block import Arrays, Message, messages_of

ArrayT = TypeVar("ArrayT", Bytes, Words, Ends)

_BYTES = 4 << 20
_MAX_BYTES = (1 << 32) - 1
_MESSAGES = 16384


class Output:
    """Buffers that a decoder keeps from slice to slice."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_BYTES, np.uint8)
        self.positions: Words = np.empty(_MESSAGES, np.int64)
        self.sequences: Words = np.empty(_MESSAGES, np.int64)
        self.groups: Words = np.empty(_MESSAGES, np.int64)
        self.ends: Ends = np.empty(4 * _MESSAGES, np.uint32)
        self.seconds: Ends = np.empty(_MESSAGES, np.uint32)
        self.nulls: Bytes = np.empty(_MESSAGES, np.uint8)

    def taken_back(self, count: int, begin: int) -> tuple[int, list[tuple[int, Message]]]:
        """Of ``count`` messages those from position ``begin`` on, each with its group, and the number of the first."""
        first = int(np.searchsorted(self.positions[:count], begin))
        return first, list(zip(self.groups[first:count].tolist(), self.messages(first, count), strict=True))

    def messages(self, first: int, last: int) -> Iterator[Message]:
        """Messages ``first`` to ``last`` - 1, each as an object."""
        return messages_of(self.piece(first, last))

    def piece(self, first: int, last: int) -> Arrays:
        """Messages ``first`` to ``last`` - 1 as arrays of their own; ends count from the first one's beginning."""
        begin = int(self.ends[4 * first - 1]) if first else 0
        end = int(self.ends[4 * last - 1]) if last else 0
        return Arrays(
            self.positions[first:last].data,
            self.sequences[first:last].data,
            (self.ends[4 * first : 4 * last] - np.uint32(begin)).data,
            self.seconds[first:last].data,
            self.nulls[first:last].data,
            self.data[begin:end].data,
        )

    def selected(self, order: Words) -> Output:
        """An output of its own with the messages whose numbers are ``order``, in that order."""
        from changefeed.binlog.kernel.plain_rows import texts  # a kernel that only pipelines with functions load

        ends = self.ends.reshape(-1, 4)
        begins = np.zeros(len(ends), np.int64)
        begins[1:] = ends[:-1, 3]
        starts = begins[order]
        sizes = ends[order, 3] - starts
        selected = type(self).__new__(type(self))
        selected.data = np.empty(int(sizes.sum()), np.uint8)
        offsets = np.empty(len(order) + 1, np.uint32)
        texts(self.data, starts, sizes, 0, selected.data, offsets)
        selected.ends = (ends[order] - starts[:, None] + offsets[:-1, None]).astype(np.uint32).reshape(-1)
        selected.positions, selected.sequences = self.positions[order], self.sequences[order]
        selected.groups, selected.seconds, selected.nulls = self.groups[order], self.seconds[order], self.nulls[order]
        return selected

    @classmethod
    def joined(cls, pieces: Sequence[Arrays], groups: Words) -> Output:
        """An output that holds the messages of ``pieces``, in order, each with its group.

        Raises OverflowError at 4 GB: ends have 32 bits.
        """
        output = cls.__new__(cls)
        bases = [0, *accumulate(len(piece.data) for piece in pieces)]
        if bases[-1] > _MAX_BYTES:
            raise OverflowError(f"messages made of rows take more than {_MAX_BYTES} bytes")
        output.data = np.concatenate([np.frombuffer(piece.data, np.uint8) for piece in pieces])
        output.positions = np.concatenate([np.frombuffer(piece.positions, np.int64) for piece in pieces])
        output.sequences = np.concatenate([np.frombuffer(piece.sequences, np.int64) for piece in pieces])
        output.ends = np.concatenate(
            [np.frombuffer(piece.ends, np.uint32) + np.uint32(base) for piece, base in zip(pieces, bases, strict=False)]
        )
        output.seconds = np.concatenate([np.frombuffer(piece.seconds, np.uint32) for piece in pieces])
        output.nulls = np.concatenate([np.frombuffer(piece.nulls, np.uint8) for piece in pieces])
        output.groups = groups
        return output

    def rewritten(self, data: Bytes, ends: Ends) -> Output:
        """The same messages with other bytes, as many as ``ends`` are of."""
        output = self.__class__.__new__(self.__class__)
        output.positions, output.sequences, output.groups = self.positions, self.sequences, self.groups
        output.seconds, output.nulls, output.data, output.ends = self.seconds, self.nulls, data, ends
        return output

    def keep(self, first: int, count: int) -> int:
        """Of ``count`` messages move those from ``first`` on to the front; returns how many bytes they have."""
        begin, end = (int(self.ends[4 * number - 1]) if number else 0 for number in (first, count))
        for array in (self.positions, self.sequences, self.groups, self.seconds, self.nulls):
            array[: count - first] = array[first:count].copy()
        self.ends[: 4 * (count - first)] = self.ends[4 * first : 4 * count] - np.uint32(begin)
        self.data[: end - begin] = self.data[begin:end].copy()
        return end - begin

    def widen(self, count: int, most_messages: int, most_bytes: int) -> bool:
        """Make room for more messages behind the ``count`` that there are; False where there is as much as was said."""
        if count < len(self.positions):
            if len(self.data) > most_bytes:
                return False
            self.data = _twice(self.data)
            return True
        if count > most_messages:
            return False
        self.positions, self.sequences, self.groups = (
            _twice(array) for array in (self.positions, self.sequences, self.groups)
        )
        self.ends, self.seconds, self.nulls = _twice(self.ends), _twice(self.seconds), _twice(self.nulls)
        return True

    @property
    def has_grown(self) -> bool:
        """Whether a row needed more room than there is at first."""
        return len(self.data) > _BYTES

    def grow(self) -> None:
        """Make room for longer rows; what was written is lost. Raises OverflowError at 4 GB: ends have 32 bits."""
        if len(self.data) >= _MAX_BYTES:
            raise OverflowError(f"a row's messages take more than {_MAX_BYTES} bytes")
        self.data = np.empty(min(2 * len(self.data), _MAX_BYTES), np.uint8)


def _twice(array: ArrayT) -> ArrayT:
    """``array`` with as much room again behind what it has."""
    grown = np.empty(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return cast(ArrayT, grown)
