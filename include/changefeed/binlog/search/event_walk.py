"""Passes the bytes of a file's events to a kernel, and reads the few events that the kernel leaves to Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    DamagedEvent,
    EventType,
    FormatDescription,
    is_in_file,
)
from changefeed.binlog.events.input import Input
from changefeed.binlog.kernel import hop
from changefeed.errors import BinlogFormatError
from changefeed.model.window import Slice
from changefeed.native.memory import Words


class EventWalk:
    """Passes the bytes of ``slice`` to a kernel, whose state begins with the words of `hop`."""

    def __init__(self, slice: Slice, state_words: int = hop.STATE_WORDS) -> None:
        self.slice, self.source = slice, Input()
        self.checksum_size = 0
        self.state: Words = np.zeros(state_words, np.int64)
        self.state[hop.POSITION], self.state[hop.END] = slice.start, slice.end

    @property
    def position(self) -> int:
        """The position of the next event in its file."""
        return int(self.state[hop.POSITION])

    def read(self, chunks: Iterable[bytes | bytearray | memoryview], go_on: Callable[[], int]) -> Iterator[None]:
        """Call ``go_on``, which calls `run`, for the bytes of each chunk; yields after each chunk.

        Raises BinlogFormatError, with coordinates, for bytes that are not a sequence of events.
        """
        source = self.source
        with self.add_coordinates():
            for chunk in chunks:
                view = memoryview(chunk).cast("B")
                while len(view):
                    view = view[source.append(view) :]
                    if go_on() == hop.DONE:
                        yield
                        return
                yield
            if source.filled > source.at:
                raise DamagedEvent(f"{source.filled - source.at} bytes of a broken event are left over")

    def run(self, kernel: Callable[[], int]) -> int:
        """Call a kernel over the available bytes; returns its code."""
        state = self.state
        state[hop.AT], state[hop.FILLED] = self.source.at, self.source.filled
        code = kernel()
        self.source.at = int(state[hop.AT])
        return code

    def event(self) -> bytes | None:
        """The event that the kernel left to Python; None for an artificial event, which is skipped."""
        _, kind, _, size, next_position, flags = self.source.header()
        left = self.slice.end - self.position
        if not HEADER_SIZE + self.checksum_size <= size <= max(left, hop.LARGEST_ARTIFICIAL):
            raise DamagedEvent(
                f"an event claims {size} bytes: its header alone has {HEADER_SIZE}, and only {left} are left to read"
            )
        event = self.source.event(size)
        if kind == EventType.FORMAT_DESCRIPTION:
            self.checksum_size = CHECKSUM_SIZE * FormatDescription.parse(event[HEADER_SIZE:]).checksum
        if is_in_file(kind, next_position, flags, self.position):
            return event
        self.source.at += size
        return None

    def skip_event(self, event: bytes) -> None:
        """Go to the event after ``event``."""
        self.source.at += len(event)
        self.state[hop.POSITION] += len(event)
        self.state[hop.EVENTS] += 1

    @contextmanager
    def add_coordinates(self) -> Iterator[None]:
        """Turn DamagedEvent into a BinlogFormatError with coordinates."""
        try:
            yield
        except DamagedEvent as damage:
            raise BinlogFormatError(f"binlog {self.slice.file}:{self.position}: {damage}") from damage
