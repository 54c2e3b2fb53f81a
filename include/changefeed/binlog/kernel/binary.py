"""Writes column values in binary: numbers as zigzag varints or in their memory format, other values after their length.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.decimals import WRONG_DIGITS, put_unscaled_bytes, unscaled_number
from changefeed.binlog.kernel.faults import DECIMAL_DIGITS, FULL, SHORT, VECTOR_WIDTH
from changefeed.binlog.kernel.json_binary import put_json
from changefeed.binlog.kernel.temporal import put_temporal
from changefeed.binlog.kernel.text import put_plain_utf8, put_table, put_utf16, put_utf32
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import (
    STEP,
    Bytes,
    big_endian,
    copy,
    i64,
    little_endian,
    put8,
    put64,
    u8,
    u32,
    wrap,
)
from changefeed.native.numbers import rounded_double
from changefeed.native.span import part
from changefeed.native.varint import put_length, put_varint, size_of_varint

_WORD_DIGITS = 18
"""The most digits with which every number fits a word."""
_POINT_BYTES = 21
"""The size of a point's well-known binary: byte order, type, and two doubles."""


@inline
def _put_integer(out: Bytes, at: int, data: Bytes, start: int, width: int, has_sign: int) -> int:
    value = little_endian(data, start, width)
    if has_sign:
        unused = 64 - 8 * width
        value = wrap(value << unused) >> unused
    return put_varint(out, at, value)


@inline
def _put_widened(out: Bytes, at: int, bits: int) -> int:
    """Write a single-precision number as a double."""
    sign = bits >> 31
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 0xFF:
        exponent = 0x7FF
    elif exponent > 0:
        exponent += 1023 - 127
    elif fraction > 0:  # a subnormal single is a normal double
        exponent = 1023 - 126
        while fraction & 0x800000 == 0:
            fraction <<= 1
            exponent -= 1
        fraction &= 0x7FFFFF
    put64(out, at, wrap(sign << 63) | exponent << 52 | fraction << 29)
    return at + 8


@inline
def _put_unscaled(work: Workspace, at: int, start: int, precision: int, scale: int) -> int:
    out, data = work.out, work.data
    if precision > _WORD_DIGITS:
        limbs = part(work.scratch, layout.LIMBS, layout.LIMBS + 16)
        first = put_unscaled_bytes(data, start, precision, scale, work.bytes_scratch, limbs)
        if first < 0:
            return first
        at = put_varint(out, at, 32 - first)
        copy(out, at, work.bytes_scratch, first, 32 - first)
        return at + 32 - first
    value = unscaled_number(data, start, precision, scale)
    if value == WRONG_DIGITS:
        return DECIMAL_DIGITS
    rest = (value ^ (value >> 63)) >> 7
    size = 1
    while rest > 0:
        rest >>= 8
        size += 1
    put8(out, at, size << 1)
    for byte in range(1, size + 1):
        put8(out, at + byte, value >> (8 * (size - byte)))
    return at + 1 + size


@inline
def _put_unsigned_word(out: Bytes, at: int, data: Bytes, start: int, width: int) -> int:
    """Write the two's complement of an unsigned integer in as few bytes as possible, the highest byte first."""
    size = width
    while size > 1 and u8(data, start + size - 1) == 0 and u8(data, start + size - 2) < 128:
        size -= 1
    has_zero = u8(data, start + size - 1) >> 7
    put8(out, at, (size + has_zero) << 1)
    at += 1
    if has_zero:
        put8(out, at, 0)
        at += 1
    for index in range(size):
        put8(out, at + index, u8(data, start + size - 1 - index))
    return at + size


@inline
def _put_bytes(out: Bytes, at: int, room: int, data: Bytes, start: int, size: int, padded: int) -> int:
    padded_size = max(size, padded)
    if at + 16 + padded_size > room:
        return FULL
    at = put_varint(out, at, padded_size)
    copy(out, at, data, start, size)
    for index in range(size, padded_size):
        put8(out, at + index, 0)
    return at + padded_size


@inline
def _put_bits(out: Bytes, at: int, data: Bytes, start: int, width: int) -> int:
    """Write the bits as bytes, the lowest byte first."""
    put8(out, at, width << 1)
    for index in range(width):
        put8(out, at + 1 + index, u8(data, start + width - 1 - index))
    return at + 1 + width


@inline
def _put_text(work: Workspace, at: int, room: int, start: int, size: int, kind: int, a: int, b: int) -> int:
    out, data = work.out, work.data
    end = start + size
    reserved = size_of_varint(size)
    text = at + reserved
    if kind == layout.SIZED_UTF8:
        text_end = put_plain_utf8(out, text, room, data, start, end)
    elif kind == layout.SIZED_TABLE:
        text_end = put_table(out, text, room, data, start, end, work.words, a, b, 0)
    elif kind == layout.SIZED_UTF16:
        text_end = put_utf16(out, text, room, data, start, end, a, 0)
    elif kind == layout.SIZED_UTF32:
        text_end = put_utf32(out, text, room, data, start, end, 0)
    else:
        stack = part(work.scratch, layout.STACK, layout.LIMBS)
        text_end = put_json(out, text, room, data, start, end, 1, False, stack)
    return put_length(out, at, reserved, text_end) if text_end >= 0 else text_end


@inline
def _put_shape(out: Bytes, at: int, room: int, data: Bytes, start: int, size: int, kind: int) -> int:
    """Write a geometry's well-known binary and its SRID, which is null for 0.

    Before them come a point's coordinates.
    """
    if size < 4:
        return SHORT
    if at + 64 + size > room:
        return FULL
    srid = u32(data, start)
    if kind == layout.SHAPE_POINT:
        if size < 4 + _POINT_BYTES or u8(data, start + 4) != 1:
            return SHORT
        copy(out, at, data, start + 9, 16)
        put8(out, at + 16, 2)
        at += 17
    at = _put_bytes(out, at, room, data, start + 4, size - 4, 0)
    if srid == 0:
        put8(out, at, 0)
        return at + 1
    put8(out, at, 2)
    return put_varint(out, at + 1, srid)


@inline
def _put_singles(out: Bytes, at: int, room: int, data: Bytes, start: int, size: int) -> int:
    """Write an array of single-precision numbers: their count, the numbers, and 0."""
    if size % 4 != 0:
        return VECTOR_WIDTH
    if at + 16 + size > room:
        return FULL
    if size > 0:
        at = put_varint(out, at, size // 4)
        copy(out, at, data, start, size)
        at += size
    put8(out, at, 0)
    return at + 1


@inline
def put_binary(work: Workspace, at: int, room: int, start: int, size: int, spec: int, kind: int) -> int:
    """Write the value ``data[start:start + size]`` in binary; returns the new end, FULL, NULL_VALUE or a fault.

    The column's spec is at ``words[spec]``; its ``kind`` is in the group `layout.BINARIES`."""
    out, data, words = work.out, work.data, work.words
    a = words[spec + layout.SPEC_A]
    b = words[spec + layout.SPEC_B]
    if kind == layout.LONG:
        return _put_integer(out, at, data, start, a, b)
    if kind == layout.LONG_TIME:
        return put_temporal(out, at, data, start, words[spec + layout.SPEC_C], a, b, layout.VARINT)
    if kind == layout.UNSCALED:
        return _put_unscaled(work, at, start, a, b)
    if kind == layout.UNSIGNED_WORD:
        return _put_unsigned_word(out, at, data, start, a)
    if kind == layout.COPY:
        copy(out, at, data, start, a)
        return at + int(a)
    if kind == layout.WRITTEN:
        if at + size + STEP > room:
            return FULL
        copy(out, at, data, start, size)
        return at + size
    if kind == layout.SIZED_BYTES:
        return _put_bytes(out, at, room, data, start, size, a)
    if kind == layout.LONG_YEAR:
        year = u8(data, start)
        return put_varint(out, at, year + 1900 if year > 0 else 0)
    if kind == layout.FLAG:
        put8(out, at, int(big_endian(data, start, a) != 0))
        return at + 1
    if kind == layout.SIZED_BITS:
        return _put_bits(out, at, data, start, a)
    if kind == layout.ROUNDED:
        put64(out, at, rounded_double(i64(data, start), a - 1))
        return at + 8
    if kind == layout.WIDE_FLOAT:
        return _put_widened(out, at, u32(data, start))
    if kind == layout.SHAPE or kind == layout.SHAPE_POINT:
        return _put_shape(out, at, room, data, start, size, kind)
    if kind == layout.SINGLES:
        return _put_singles(out, at, room, data, start, size)
    return _put_text(work, at, room, start, size, kind, a, b)
