"""Copies byte strings of a column in another order."""

from __future__ import annotations

from changefeed.native.compiled import entry
from changefeed.native.memory import Bytes, Words, copy
from changefeed.native.span import length, span


@entry("void(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1])")
def gather(data: Bytes, starts: Words, ends: Words, out: Bytes, out_ends: Words) -> None:
    """Write each ``data[start:end]`` to ``out``, one after another, and the ends in ``out`` to ``out_ends``."""
    data, starts, ends, out, out_ends = span(data), span(starts), span(ends), span(out), span(out_ends)
    at = 0
    for row in range(length(starts)):
        size = ends[row] - starts[row]
        copy(out, at, data, starts[row], size)
        at += size
        out_ends[row] = at
