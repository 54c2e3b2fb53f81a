"""Checksums of rows that are JSON objects, and of keys."""

from __future__ import annotations

import numpy as np

from changefeed.native.checksum import (
    OTHER_SEED,
    SEED,
    first_checksum,
    mix,
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
"""Debezium's placeholder for a value that the binlog does not have (binlog_row_image NOBLOB)."""


@entry("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def key_checksums(data: Bytes, starts: Words, ends: Words, seeds: Words, out: Words) -> None:
    """Write to ``out`` the checksum of each ``data[start:end]`` with its seed."""
    data, starts, ends, seeds, out = span(data), span(starts), span(ends), span(seeds), span(out)
    for row in range(length(out)):
        out[row] = mix(first_checksum(data, starts[row], ends[row], int(seeds[row])))


@entry("int64(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1])")
def row_checksums(data: Bytes, starts: Words, ends: Words, out: Bytes, out_ends: Words) -> int:
    """Write to ``out`` the checksums of each row ``data[start:end]``; nothing for a start below 0.

    The checksums of a row are:
    1. CHECKSUM_BYTES for all columns whose values are not null; the order of the columns does not matter.
    2. CELL_BYTES for each column: a checksum of its name and a checksum of its value.

    The size of ``out`` must be CHECKSUM_BYTES for each row, plus twice the bytes of all rows. Returns 0, or -1 - n if
    row n is not a JSON object.
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
                        first = wrap(first + mix(cell))
                        name_too = other_checksum(data, here, value, OTHER_SEED)
                        other = wrap(other + mix(other_checksum(data, value, stop, name_too)))
                    put32(out, at, mix(name))
                    put32(out, at + 4, mix(cell))
                    at += CELL_BYTES
                here = next_member(data, stop, end)
            if here < 0:
                return -1 - row
            put64(out, begin, first)
            put64(out, begin + 8, other)
        out_ends[row] = at
    return 0
