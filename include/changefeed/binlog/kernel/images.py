"""Reads the row images of a rows event: the addresses of their values, and the differences between two images."""

# ruff: noqa: SIM110 - numba compiles loops, and no generators
from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import ROW_BYTES, SHORT
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, little_endian, u8


@inline
def count_bits(data: Bytes, at: int, bits: int) -> int:
    """The number of set bits among the first ``bits``."""
    count = 0
    for index in range(bits):
        count += (u8(data, at + (index >> 3)) >> (index & 7)) & 1
    return count


@inline
def read_image(
    work: Workspace,
    at: int,
    end: int,
    present: int,
    all_present: bool,
    columns: int,
    values: int,
    specs: int,
    image: int,
) -> int:
    """Store the addresses of the values of the image at ``at``; returns the image's end, or a fault.

    ``present`` is the address of the event's bitmap of columns, ``values`` the number of bits set in it. An image: a
    bit for each present column (1: NULL), then the values that are not NULL.
    """
    data, words, scratch = work.data, work.words, work.scratch
    nulls = at
    at += (values + 7) >> 3
    if at > end:
        return ROW_BYTES
    bit = 0
    spec = specs
    for column in range(columns):
        if not all_present and (u8(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            scratch[image + column] = layout.ABSENT
        else:
            if (u8(data, nulls + (bit >> 3)) >> (bit & 7)) & 1:
                scratch[image + column] = layout.NULL
            else:
                prefix = words[spec + layout.SPEC_PREFIX]
                size = words[spec + layout.SPEC_FIXED]
                if prefix > 0:
                    if at + prefix > end:
                        return SHORT
                    size = little_endian(data, at, prefix)
                    at += prefix
                if size > end - at:
                    return SHORT
                scratch[image + column] = at
                scratch[image + layout.MAX_COLUMNS + column] = size
                at += size
            bit += 1
        spec += layout.SPEC
    return at


@inline
def holds_key(data: Bytes, present: int, columns: int, words: Words, key_columns: int) -> bool:
    """Whether the event's bitmap of ``columns`` at ``present`` has all columns of the key that images have."""
    for index in range(words[key_columns]):
        column = words[key_columns + 1 + index]
        if column < columns and (u8(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            return False
    return True


@inline
def complete_image(columns: int, scratch: Words) -> None:
    """Add to the after image the columns that only the before image has: they did not change."""
    for column in range(columns):
        if scratch[layout.IMAGE + column] == layout.ABSENT:
            scratch[layout.IMAGE + column] = scratch[column]
            scratch[layout.IMAGE + layout.MAX_COLUMNS + column] = scratch[layout.MAX_COLUMNS + column]


@inline
def differs(data: Bytes, scratch: Words, column: int) -> bool:
    """Whether a column has other bytes in the after image; False if that image does not have it."""
    before = scratch[column]
    after = scratch[layout.IMAGE + column]
    if before < 0 or after < 0:
        return bool(before != after and after != layout.ABSENT)
    size = scratch[layout.MAX_COLUMNS + column]
    if size != scratch[layout.IMAGE + layout.MAX_COLUMNS + column]:
        return True
    for byte in range(size):
        if u8(data, before + byte) != u8(data, after + byte):
            return True
    return False


@inline
def key_changed(work: Workspace, key_columns: int) -> bool:
    """Whether a column of the key has other bytes in the after image."""
    data, words, scratch = work.data, work.words, work.scratch
    for index in range(words[key_columns]):
        if differs(data, scratch, words[key_columns + 1 + index]):
            return True
    return False
