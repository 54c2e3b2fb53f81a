"""The kernel's input: chunks of any size in, a buffer with complete events out."""

from __future__ import annotations

import numpy as np

from changefeed.binlog.events.framing import HEADER
from changefeed.native.memory import Bytes

_START_BYTES = 2 << 20


class Input:
    """A buffer that grows as bytes arrive, never by the size that an event claims."""

    def __init__(self, size: int = _START_BYTES) -> None:
        self.data: Bytes = np.empty(size, np.uint8)
        self.filled = 0
        self.at = 0

    def append(self, chunk: memoryview) -> int:
        """Copy as many bytes of ``chunk`` as fit, and make room if none fit; returns their number."""
        self._make_room()
        taken = min(len(chunk), len(self.data) - self.filled)
        self.data[self.filled : self.filled + taken] = np.frombuffer(chunk[:taken], np.uint8)
        self.filled += taken
        return taken

    def room(self) -> memoryview:
        """The free part of the buffer; the caller adds to ``filled`` the number of bytes that it wrote."""
        if self.at > 0:
            self.compact()
        self._make_room()
        return memoryview(self.data)[self.filled :]  # type: ignore[arg-type]

    def _make_room(self) -> None:
        if self.at > 0 and self.filled == len(self.data):
            self.compact()
        if self.filled == len(self.data):
            grown = np.empty(2 * len(self.data), np.uint8)
            grown[: self.filled] = self.data[: self.filled]
            self.data = grown

    def compact(self) -> None:
        """Move the remaining bytes to the front."""
        left = self.filled - self.at
        self.data[:left] = self.data[self.at : self.filled].copy()
        self.filled = left
        self.at = 0

    def header(self) -> tuple[int, int, int, int, int, int]:
        """The fields of the current header: see `framing.HEADER`."""
        head = self.data[self.at : self.at + HEADER.size].tobytes()
        seconds, kind, server_id, size, position, flags = HEADER.unpack(head)
        return seconds, kind, server_id, size, position, flags

    def event(self, size: int) -> bytes:
        """A copy of the current event."""
        return self.data[self.at : self.at + size].tobytes()
