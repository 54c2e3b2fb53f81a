"""Checksums of rows that are JSON objects, and of keys."""

from __future__ import annotations

import numpy as np

from changefeed.native.checksum import (
    OTHER_SEED,
    SEED,
    first_checksum,
    mixed,
    other_checksum,
)
from changefeed.native.compiled import entry
from changefeed.native.json_scan import end_of_name, end_of_value, is_null, next_member
from changefeed.native.memory import Bytes, Words, put32, put64, u8, wrap
from changefeed.native.same_bytes import is_same
from changefeed.native.span import length, span

CHECKSUM_BYTES = 16
CELL_BYTES = 8
_NOT_SENT = np.frombuffer(b'"__debezium_unavailable_value"', np.uint8).copy()
"""Debezium's word for a value that the binlog does not hold (binlog_row_image NOBLOB)."""


@entry("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def key_checksums(data: Bytes, starts: Words, ends: Words, seeds: Words, out: Words) -> None:
    """Put into ``out`` a word of each ``data[start:end]`` and its seed."""
    data, starts, ends, seeds, out = span(data), span(starts), span(ends), span(seeds), span(out)
    for row in range(length(out)):
        out[row] = mixed(first_checksum(data, starts[row], ends[row], int(seeds[row])))


@entry("int64(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1])")
def row_checksums(data: Bytes, starts: Words, ends: Words, out: Bytes, out_ends: Words) -> int:
    """Write to ``out`` the checksum of each ``data[start:end]``; nothing for a start below 0.

    Of a row: CHECKSUM_BYTES of the values that are not null and their columns, in whatever order they come, then of
    each column CELL_BYTES: of its name, and of its value. ``out`` has to have CHECKSUM_BYTES for each row, and twice
    the bytes of all. Returns 0, or -1 - n where row n is no object.
    """
    data, starts, ends, out, out_ends = span(data), span(starts), span(ends), span(out), span(out_ends)
    at = 0
    for row in range(length(starts)):
        here = starts[row]
        end = ends[row]
        if here >= 0:
            if here >= end or u8(data, here) != 123:
                return -1 - row
            first = 0
            other = 0
            begin = at
            at += CHECKSUM_BYTES
            here = next_member(data, here + 1, end)
            while 0 <= here < end:
                value = end_of_name(data, here, end)
                if value < 0:
                    return -1 - row
                stop = end_of_value(data, value, end)
                if stop < 0:
                    return -1 - row
                if not is_same(data, value, stop, _NOT_SENT, 0, length(_NOT_SENT)):
                    name = first_checksum(data, here, value, SEED)
                    cell = first_checksum(data, value, stop, name)
                    if not is_null(data, value, stop):
                        first = wrap(first + mixed(cell))
                        name_too = other_checksum(data, here, value, OTHER_SEED)
                        other = wrap(other + mixed(other_checksum(data, value, stop, name_too)))
                    put32(out, at, mixed(name))
                    put32(out, at + 4, mixed(cell))
                    at += CELL_BYTES
                here = next_member(data, stop, end)
            if here < 0:
                return -1 - row
            put64(out, begin, first)
            put64(out, begin + 8, other)
        out_ends[row] = at
    return 0
