"""Going over a file's events: chunks of bytes to a kernel, and the few events that it leaves to Python."""

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
    stands_in_file,
)
from changefeed.binlog.events.input import Input
from changefeed.binlog.kernel import hop
from changefeed.errors import BinlogFormatError
from changefeed.model.window import Slice
from changefeed.native.memory import Words


class EventWalk:
    """The bytes of ``piece`` on their way through a kernel whose state begins as that of `hop` does."""

    def __init__(self, piece: Slice, state_words: int = hop.STATE_WORDS) -> None:
        self.piece, self.source = piece, Input()
        self.checksum_size = 0
        self.state: Words = np.zeros(state_words, np.int64)
        self.state[hop.POSITION], self.state[hop.END] = piece.start, piece.end

    @property
    def position(self) -> int:
        """That of the next event, in its file."""
        return int(self.state[hop.POSITION])

    def read(self, chunks: Iterable[bytes | bytearray | memoryview], go_on: Callable[[], int]) -> Iterator[None]:
        """Let ``go_on``, which calls `run`, take what is there of ``chunks``, and yield after each.

        Raises BinlogFormatError, with coordinates, for bytes that cannot be followed.
        """
        source = self.source
        with self.located():
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
        """One call of a kernel over the bytes that are there; returns what it returns."""
        state = self.state
        state[hop.AT], state[hop.FILLED] = self.source.at, self.source.filled
        code = kernel()
        self.source.at = int(state[hop.AT])
        return code

    def event(self) -> bytes | None:
        """The event that the kernel left to Python; None for one that stands in no file, which is passed over."""
        _, kind, _, size, next_position, flags = self.source.header()
        left = self.piece.end - self.position
        if not HEADER_SIZE + self.checksum_size <= size <= max(left, hop.MOST_MADE_UP):
            raise DamagedEvent(
                f"an event says that it has {size} bytes: its header alone has {HEADER_SIZE}, and all that is left to "
                f"read {left}"
            )
        event = self.source.event(size)
        if kind == EventType.FORMAT_DESCRIPTION:
            self.checksum_size = CHECKSUM_SIZE * FormatDescription.parse(event[HEADER_SIZE:]).checksum
        if stands_in_file(kind, next_position, flags, self.position):
            return event
        self.source.at += size
        return None

    def pass_over(self, event: bytes) -> None:
        """Go on behind ``event``."""
        self.source.at += len(event)
        self.state[hop.POSITION] += len(event)
        self.state[hop.EVENTS] += 1

    @contextmanager
    def located(self) -> Iterator[None]:
        """Raise a BinlogFormatError with coordinates for the damage of an event."""
        try:
            yield
        except DamagedEvent as damage:
            raise BinlogFormatError(f"binlog {self.piece.file}:{self.position}: {damage}") from damage
