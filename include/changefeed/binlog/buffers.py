"""Memory that decoding works in, and that the decoders of a process hand on to each other."""

from __future__ import annotations

import weakref

from changefeed.binlog.groups import Arena
from changefeed.binlog.output import Output


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
