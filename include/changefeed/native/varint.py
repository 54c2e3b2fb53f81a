"""Numbers of variable length, as in Kafka's records. They are zigzag-encoded, so that small numbers of either sign are
short.

Source: https://kafka.apache.org/protocol#protocol_types, "VARINT"
"""

from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import FULL, Bytes, put8, shift_right, u8, wrap
from changefeed.native.span import length

CUT = -1
"""Returned instead of an end if the number is cut off."""


@inline
def read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at``, and the address after it, or CUT."""
    value = 0
    shift = 0
    while at < end and shift < 64:
        byte = u8(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return shift_right(value, 1) ^ -(value & 1), at
        shift += 7
    return 0, CUT


@inline
def size_of_varint(value: int) -> int:
    """The size of the varint of ``value``, which must be 0 or more, in bytes."""
    size = 1
    rest = value >> 6
    while rest > 0:
        rest >>= 7
        size += 1
    return size


@inline
def put_varint(out: Bytes, at: int, value: int) -> int:
    """Write the signed 64-bit number ``value`` in at most ten bytes; returns the new end."""
    rest = wrap(value << 1) ^ (value >> 63)
    while rest < 0 or rest > 127:
        put8(out, at, (rest & 127) | 128)
        rest = shift_right(rest, 7)
        at += 1
    put8(out, at, rest)
    return at + 1


@inline
def put_length(out: Bytes, begin: int, reserved: int, end: int) -> int:
    """Write the length of ``out[begin + reserved:end]`` before it; returns the new end, or FULL.

    If the length does not have ``reserved`` bytes, the content is moved."""
    text = begin + reserved
    size = end - text
    shift = size_of_varint(size) - reserved
    if shift > 0:
        if end + shift > length(out):
            return FULL
        for back in range(1, size + 1):
            put8(out, end + shift - back, u8(out, end - back))
    elif shift < 0:
        for byte in range(text, end):
            put8(out, byte + shift, u8(out, byte))
    put_varint(out, begin, size)
    return end + shift
