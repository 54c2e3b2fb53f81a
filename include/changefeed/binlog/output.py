"""The buffers for finished messages: their bytes, and for each message its position, group, ends and time."""

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
    """The buffers of the kernel's output, which a decoder reuses for each slice."""

    def __init__(self) -> None:
        self.data: Bytes = np.empty(_BYTES, np.uint8)
        self.positions: Words = np.empty(_MESSAGES, np.int64)
        self.sequences: Words = np.empty(_MESSAGES, np.int64)
        self.groups: Words = np.empty(_MESSAGES, np.int64)
        self.ends: Ends = np.empty(4 * _MESSAGES, np.uint32)
        self.seconds: Ends = np.empty(_MESSAGES, np.uint32)
        self.nulls: Bytes = np.empty(_MESSAGES, np.uint8)

    def messages_from(self, count: int, begin: int) -> tuple[int, list[tuple[int, Message]]]:
        """The messages from position ``begin`` on, among the first ``count``.

        Returns the number of the first of them, and a list of (group, message)."""
        first = int(np.searchsorted(self.positions[:count], begin))
        return first, list(zip(self.groups[first:count].tolist(), self.messages(first, count), strict=True))

    def messages(self, first: int, last: int) -> Iterator[Message]:
        """Yield messages ``first`` to ``last`` - 1 as objects."""
        return messages_of(self.arrays(first, last))

    def arrays(self, first: int, last: int) -> Arrays:
        """Messages ``first`` to ``last`` - 1 as copied arrays; ends count from the beginning of message ``first``."""
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

    def selected_output(self, order: Words) -> Output:
        """A new output with the messages whose numbers are ``order``, in that order."""
        from changefeed.binlog.kernel.plain_rows import (
            texts,
        )  # imported here: only pipelines with functions need this kernel

        ends = self.ends.reshape(-1, 4)
        begins = np.zeros(len(ends), np.int64)
        begins[1:] = ends[:-1, 3]
        starts = begins[order]
        sizes = ends[order, 3] - starts
        selected_output = type(self).__new__(type(self))
        selected_output.data = np.empty(int(sizes.sum()), np.uint8)
        offsets = np.empty(len(order) + 1, np.uint32)
        texts(self.data, starts, sizes, 0, selected_output.data, offsets)
        selected_output.ends = (ends[order] - starts[:, None] + offsets[:-1, None]).astype(np.uint32).reshape(-1)
        selected_output.positions, selected_output.sequences = self.positions[order], self.sequences[order]
        selected_output.groups, selected_output.seconds, selected_output.nulls = (
            self.groups[order],
            self.seconds[order],
            self.nulls[order],
        )
        return selected_output

    @classmethod
    def joined_output(cls, parts: Sequence[Arrays], groups: Words) -> Output:
        """An output with the messages of ``parts``, in order, each with its group.

        Raises OverflowError at 4 GB: ends have 32 bits.
        """
        output = cls.__new__(cls)
        bases = [0, *accumulate(len(arrays.data) for arrays in parts)]
        if bases[-1] > _MAX_BYTES:
            raise OverflowError(f"messages made of rows take more than {_MAX_BYTES} bytes")
        output.data = np.concatenate([np.frombuffer(arrays.data, np.uint8) for arrays in parts])
        output.positions = np.concatenate([np.frombuffer(arrays.positions, np.int64) for arrays in parts])
        output.sequences = np.concatenate([np.frombuffer(arrays.sequences, np.int64) for arrays in parts])
        output.ends = np.concatenate(
            [
                np.frombuffer(arrays.ends, np.uint32) + np.uint32(base)
                for arrays, base in zip(parts, bases, strict=False)
            ]
        )
        output.seconds = np.concatenate([np.frombuffer(arrays.seconds, np.uint32) for arrays in parts])
        output.nulls = np.concatenate([np.frombuffer(arrays.nulls, np.uint8) for arrays in parts])
        output.groups = groups
        return output

    def with_bytes(self, data: Bytes, ends: Ends) -> Output:
        """The same messages with other bytes, which end at ``ends``."""
        output = self.__class__.__new__(self.__class__)
        output.positions, output.sequences, output.groups = self.positions, self.sequences, self.groups
        output.seconds, output.nulls, output.data, output.ends = self.seconds, self.nulls, data, ends
        return output

    def keep(self, first: int, count: int) -> int:
        """Move the messages from ``first`` to ``count`` to the front; returns the size of their bytes."""
        begin, end = (int(self.ends[4 * number - 1]) if number else 0 for number in (first, count))
        for array in (self.positions, self.sequences, self.groups, self.seconds, self.nulls):
            array[: count - first] = array[first:count].copy()
        self.ends[: 4 * (count - first)] = self.ends[4 * first : 4 * count] - np.uint32(begin)
        self.data[: end - begin] = self.data[begin:end].copy()
        return end - begin

    def widen(self, count: int, most_messages: int, most_bytes: int) -> bool:
        """Make room for more messages after the first ``count``; False if the limits are reached."""
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
        """Whether a row needed more room than the initial size."""
        return len(self.data) > _BYTES

    def grow(self) -> None:
        """Make room for longer rows; the current content is lost. Raises OverflowError at 4 GB: ends have 32 bits."""
        if len(self.data) >= _MAX_BYTES:
            raise OverflowError(f"a row's messages take more than {_MAX_BYTES} bytes")
        self.data = np.empty(min(2 * len(self.data), _MAX_BYTES), np.uint8)


def _twice(array: ArrayT) -> ArrayT:
    """An array of twice the size that begins with the items of ``array``."""
    grown = np.empty(2 * len(array), array.dtype)
    grown[: len(array)] = array
    return cast(ArrayT, grown)
