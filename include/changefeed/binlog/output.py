"""Where the kernel writes finished messages: bytes, and for each its position, group, ends and time."""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel.memory import Bytes, Ends, Words
from changefeed.block import Arrays, Message, messages_of

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
        arrays = Arrays(
            self.positions[:count].data,
            self.sequences[:count].data,
            self.ends[: 4 * count].data,
            self.seconds[:count].data,
            self.nulls[:count].data,
            self.data.data,
        )
        return first, list(zip(self.groups[first:count].tolist(), messages_of(arrays, first), strict=True))

    @property
    def has_grown(self) -> bool:
        """Whether a row needed more room than there is at first."""
        return len(self.data) > _BYTES

    def grow(self) -> None:
        """Make room for longer rows; what was written is lost. Raises OverflowError at 4 GB: ends have 32 bits."""
        if len(self.data) >= _MAX_BYTES:
            raise OverflowError(f"a row's messages take more than {_MAX_BYTES} bytes")
        self.data = np.empty(min(2 * len(self.data), _MAX_BYTES), np.uint8)
