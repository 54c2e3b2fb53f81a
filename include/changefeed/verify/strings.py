"""Columns of byte strings in the form that kernels take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from changefeed.native.gathering import gather
from changefeed.native.memory import Bytes, Words


@dataclass(frozen=True)
class Strings:
    """Byte strings in one array: string n ends at ``ends[n]`` and begins at the end of string n - 1."""

    data: Bytes
    ends: Words

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Strings:
        """A column from a list of strings."""
        ends = np.fromiter(accumulate(map(len, strings)), np.int64, len(strings))
        return cls(np.frombuffer(bytearray(b"".join(strings)), np.uint8), ends)

    @classmethod
    def parts(cls, data: Bytes, starts: Words, ends: Words) -> Strings:
        """A column of the strings ``data[start:end]``."""
        starts, ends = np.ascontiguousarray(starts), np.ascontiguousarray(ends)
        strings = cls(np.empty(int((ends - starts).sum()), np.uint8), np.empty(len(starts), np.int64))
        gather(data, starts, ends, strings.data, strings.ends)
        return strings

    @classmethod
    def concat(cls, columns: Sequence[Strings]) -> Strings:
        """A column of the strings of all ``columns``; there must be at least one column."""
        before = accumulate((len(column.data) for column in columns), initial=0)
        ends = [column.ends + size for column, size in zip(columns, before, strict=False)]
        return cls(np.concatenate([column.data for column in columns]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def starts(self) -> Words:
        """The start of each string."""
        starts = np.empty_like(self.ends)
        starts[:1], starts[1:] = 0, self.ends[:-1]
        return starts

    def take(self, index: Words) -> Strings:
        """The strings at ``index``."""
        return Strings.parts(self.data, self.starts[index], self.ends[index])

    def first_bytes(self, size: int) -> Strings:
        """The first ``size`` bytes of each string. No string may be shorter."""
        return Strings.parts(self.data, self.starts, self.starts + size)

    def __getitem__(self, number: int) -> bytes:
        return self.data[int(self.ends[number - 1]) if number else 0 : int(self.ends[number])].tobytes()
