"""Writes a column value as JSON text or in binary, by the kind of the column."""

# ruff: noqa: SIM108 - a kernel reads more easily as branches
from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.addresses import put_address
from changefeed.binlog.kernel.binary import put_binary
from changefeed.binlog.kernel.decimals import put_decimal, put_decimal_bytes
from changefeed.binlog.kernel.faults import FULL, LABEL, SHORT, VECTOR_WIDTH
from changefeed.binlog.kernel.json_binary import put_json
from changefeed.binlog.kernel.null import put_null
from changefeed.binlog.kernel.temporal import put_temporal
from changefeed.binlog.kernel.text import is_utf8, put_table, put_utf8, put_utf16, put_utf32
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.encoding import put_base64, put_base64_url, put_hex
from changefeed.native.memory import (
    Bytes,
    Words,
    big_endian,
    copy,
    copy_short,
    i64,
    little_endian,
    put8,
    put16,
    put32,
    u8,
    u32,
    wrap,
)
from changefeed.native.numbers import put_float32, put_float64, put_number, put_unsigned, rounded_double
from changefeed.native.span import part
from changefeed.native.varint import put_length

_POINT_BYTES = 21
"""The size of a point's well-known binary: byte order, type, and two doubles."""
ROOM_FOR_VALUE = 512
"""The room that is checked for a value of a fixed size; the other kinds check the room themselves."""


@inline
def _put_binary(
    out: Bytes, at: int, room: int, data: Bytes, start: int, size: int, padded: int, kind: int, scratch: Bytes
) -> int:
    padded_size = max(size, padded)
    if at + 8 + padded_size * 2 > room:
        return FULL
    put8(out, at, 34)
    at += 1
    end = start + size
    if padded_size > size and size + padded_size <= 2048:
        copy(scratch, 0, data, start, size)
        for index in range(size, padded_size):
            put8(scratch, index, 0)
        at = _put_coded(out, at, scratch, 0, padded_size, kind)
    else:
        at = _put_coded(out, at, data, start, end, kind)
    put8(out, at, 34)
    return at + 1


@inline
def _put_coded(out: Bytes, at: int, data: Bytes, start: int, end: int, kind: int) -> int:
    if kind == layout.HEX:
        return put_hex(out, at, data, start, end)
    if kind == layout.BASE64_URL:
        return put_base64_url(out, at, data, start, end)
    return put_base64(out, at, data, start, end)


@inline
def _put_byte_numbers(out: Bytes, at: int, room: int, data: Bytes, start: int, size: int, padded: int) -> int:
    """Write the bytes as an array of numbers, with zeros up to the size ``padded``."""
    padded_size = max(size, padded)
    if at + 4 * padded_size + 32 > room:
        return FULL
    put8(out, at, 91)
    at += 1
    for index in range(padded_size):
        if index > 0:
            put8(out, at, 44)
            at += 1
        at = put_number(out, at, u8(data, start + index) if index < size else 0)
    put8(out, at, 93)
    return at + 1


@inline
def _put_text(
    out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, words: Words, kind: int, a: int, b: int
) -> int:
    put8(out, at, 34)
    at += 1
    if kind == layout.UTF8:
        at = put_utf8(out, at, room, data, start, end, 1)
    elif kind == layout.CODE_TABLE:
        at = put_table(out, at, room, data, start, end, words, a, b, 1)
    elif kind == layout.UTF16:
        at = put_utf16(out, at, room, data, start, end, a, 1)
    else:
        at = put_utf32(out, at, room, data, start, end, 1)
    if at < 0:
        return at
    if at + 1 > room:
        return FULL
    put8(out, at, 34)
    return at + 1


@inline
def _put_label(out: Bytes, at: int, room: int, words: Words, literals: Bytes, pair: int) -> int:
    size = int(words[pair + 1])
    if at + size + 16 > room:
        return FULL
    copy_short(out, at, literals, words[pair], size)
    return at + size


@inline
def _put_label_array(
    out: Bytes, at: int, room: int, value: int, words: Words, literals: Bytes, pairs: int, count: int
) -> int:
    if count < 64 and (value >> count) != 0:
        return LABEL
    put8(out, at, 91)
    begin = at + 1
    at = begin
    for index in range(count):
        if (value >> index) & 1:
            if at > begin:
                put8(out, at, 44)
                at += 1
            put8(out, at, 34)
            at = _put_label(out, at + 1, room, words, literals, pairs + 2 * index)
            if at < 0:
                return at
            put8(out, at, 34)
            at += 1
    put8(out, at, 93)
    return at + 1


@inline
def _put_labels(
    out: Bytes, at: int, room: int, value: int, kind: int, words: Words, literals: Bytes, pairs: int, count: int
) -> int:
    if kind == layout.SET_ARRAY:
        return _put_label_array(out, at, room, value, words, literals, pairs, count)
    put8(out, at, 34)
    at += 1
    if kind == layout.ENUM:
        if value > count or value < 0:
            return LABEL
        if value > 0:
            at = _put_label(out, at, room, words, literals, pairs + 2 * (value - 1))
    else:
        if count < 64 and (value >> count) != 0:
            return LABEL
        first = True
        for index in range(count):
            if (value >> index) & 1:
                if not first:
                    put8(out, at, 44)
                    at += 1
                first = False
                at = _put_label(out, at, room, words, literals, pairs + 2 * index)
                if at < 0:
                    return at
    if at < 0:
        return at
    put8(out, at, 34)
    return at + 1


@inline
def _put_geometry(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, hexed: int) -> int:
    if end - start < 4:
        return SHORT
    if at + 64 + 2 * (end - start) > room:
        return FULL
    put32(out, at, 0x7273227B)  # {"sr
    put32(out, at + 4, 0x3A226469)  # id":
    at = put_number(out, at + 8, u32(data, start))
    put32(out, at, 0x6B77222C)  # ,"wk
    put32(out, at + 4, 0x223A2262)  # b":"
    at += 8
    if hexed:
        at = put_hex(out, at, data, start + 4, end)
    else:
        at = put_base64(out, at, data, start + 4, end)
    put16(out, at, 0x7D22)
    return at + 2


@inline
def _put_geometry_struct(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, is_point: int) -> int:
    """Write `{"wkb":…,"srid":…}`, with null for SRID 0. Before them come `x` and `y` of a point."""
    if end - start < 4 + _POINT_BYTES * is_point:
        return SHORT
    if at + 256 + 2 * (end - start) > room:
        return FULL
    put8(out, at, 123)
    at += 1
    if is_point != 0:
        put32(out, at, 0x3A227822)  # "x":
        at = put_float64(out, at + 4, i64(data, start + 9))
        put8(out, at, 44)
        put32(out, at + 1, 0x3A227922)  # "y":
        at = put_float64(out, at + 5, i64(data, start + 17))
        put8(out, at, 44)
        at += 1
    put32(out, at, 0x626B7722)  # "wkb
    put16(out, at + 4, 0x3A22)  # ":
    put8(out, at + 6, 34)
    at = put_base64(out, at + 7, data, start + 4, end)
    put32(out, at, 0x73222C22)  # ","s
    put32(out, at + 4, 0x22646972)  # rid"
    put8(out, at + 8, 58)
    srid = u32(data, start)
    at = put_null(out, at + 9) if srid == 0 else put_number(out, at + 9, srid)
    put8(out, at, 125)
    return at + 1


@inline
def _put_vector(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int) -> int:
    if (end - start) % 4 != 0:
        return VECTOR_WIDTH
    put8(out, at, 91)
    at += 1
    begin = start
    while start < end:
        if at + 64 > room:
            return FULL
        if start > begin:
            put8(out, at, 44)
            at += 1
        at = put_float32(out, at, u32(data, start))
        start += 4
    put8(out, at, 93)
    return at + 1


@inline
def _put_flag(out: Bytes, at: int, value: bool) -> int:
    if value:
        put32(out, at, 0x65757274)  # true
        return at + 4
    put32(out, at, 0x736C6166)  # fals
    put8(out, at + 4, 101)
    return at + 5


@inline
def _put_number_bytes(out: Bytes, at: int, data: Bytes, start: int, width: int, kind: int, scratch: Bytes) -> int:
    """Write a number's bytes in base64.

    Bits: all bytes, the lowest first. An integer, which is little-endian in the image: the bytes that its two's
    complement needs, the highest first."""
    put8(out, at, 34)
    put8(scratch, 0, 0)
    for index in range(width):
        put8(scratch, 1 + index, u8(data, start + width - 1 - index))
    first = 1
    if kind == layout.UNSIGNED_BYTES:
        first = 0
        while first < width and u8(scratch, first) == 0 and u8(scratch, first + 1) < 128:
            first += 1
    at = put_base64(out, at + 1, scratch, first, width + 1)
    put8(out, at, 34)
    return at + 1


@inline
def _put_numeric(out: Bytes, at: int, data: Bytes, start: int, kind: int, width: int, scratch: Bytes) -> int:
    if kind == layout.DOUBLE:
        bits = i64(data, start)
        return put_float64(out, at, rounded_double(bits, width - 1) if width > 0 else bits)
    if kind == layout.FLOAT:
        return put_float32(out, at, u32(data, start))
    if kind == layout.UNSIGNED_TEXT:
        put8(out, at, 34)
        at = put_unsigned(out, at + 1, i64(data, start))
        put8(out, at, 34)
        return at + 1
    if kind == layout.BIT_FLAG:
        return _put_flag(out, at, big_endian(data, start, width) != 0)
    if kind == layout.BIT_BYTES or kind == layout.UNSIGNED_BYTES:
        return _put_number_bytes(out, at, data, start, width, kind, scratch)
    if kind == layout.BIT:
        value = big_endian(data, start, width)
    elif kind == layout.YEAR:
        value = u8(data, start)
        if value > 0:
            value += 1900
    else:
        value = little_endian(data, start, width)
        if kind == layout.SIGNED:
            unused = 64 - 8 * width
            value = wrap(value << unused) >> unused
            if value < 0:
                put8(out, at, 45)
                at += 1
                value = wrap(-value)
    return put_unsigned(out, at, value)


@inline
def _put_decimals(
    out: Bytes, at: int, data: Bytes, start: int, kind: int, a: int, b: int, scratch: Words, bytes_scratch: Bytes
) -> int:
    if kind == layout.DECIMAL_NUMBER:
        return put_decimal(out, at, data, start, a, b)
    put8(out, at, 34)
    at += 1
    if kind == layout.DECIMAL_TEXT:
        at = put_decimal(out, at, data, start, a, b)
    else:
        limbs = part(scratch, layout.LIMBS, layout.LIMBS + 16)
        at = put_decimal_bytes(out, at, data, start, a, b, bytes_scratch, limbs)
    if at < 0:
        return at
    put8(out, at, 34)
    return at + 1


@inline
def _put_string(work: Workspace, at: int, room: int, start: int, size: int, kind: int, a: int, b: int) -> int:
    out, data = work.out, work.data
    end = start + size
    if kind == layout.BYTE_NUMBERS:
        return _put_byte_numbers(out, at, room, data, start, size, a)
    if kind == layout.BASE64 or kind == layout.HEX or kind == layout.BASE64_URL:
        return _put_binary(out, at, room, data, start, size, a, kind, work.bytes_scratch)
    if kind == layout.UTF8 and a == 1 and not is_utf8(data, start, end):
        return _put_binary(out, at, room, data, start, size, 0, b, work.bytes_scratch)
    return _put_text(out, at, room, data, start, end, work.words, kind, a, b)


@inline
def _put_other(work: Workspace, at: int, room: int, start: int, size: int, kind: int, a: int, b: int) -> int:
    out, data = work.out, work.data
    if kind == layout.GEOMETRY:
        return _put_geometry(out, at, room, data, start, start + size, a)
    if kind == layout.GEOMETRY_STRUCT:
        return _put_geometry_struct(out, at, room, data, start, start + size, a)
    if kind == layout.VECTOR:
        return _put_vector(out, at, room, data, start, start + size)
    if kind == layout.CONSTANT:
        if at + b > room:
            return FULL
        copy(out, at, work.literals, a, b)
        return at + int(b)
    return put_address(out, at, data, start, size, kind, work.bytes_scratch)


@inline
def put_value(work: Workspace, at: int, room: int, start: int, size: int, spec: int) -> int:
    """Write the value ``data[start:start + size]`` of the column at ``words[spec]``.

    Returns the new end, FULL, NULL_VALUE or a fault."""
    if at + ROOM_FOR_VALUE > room:
        return FULL
    kind = work.words[spec + layout.SPEC_KIND]
    if kind < layout.BINARIES:
        return _put_text_value(work, at, room, start, size, spec, kind)
    if kind < layout.SIZED:
        return put_binary(work, at, room, start, size, spec, kind)
    kind -= layout.SIZED
    end = _put_text_value(work, at, room, start, size, spec, kind)
    # The quotes give way to the length.
    return put_length(work.out, at, 1, end - 1) if end >= 0 else end


@inline
def _put_text_value(work: Workspace, at: int, room: int, start: int, size: int, spec: int, kind: int) -> int:
    """`put_value` for a ``kind`` that is text."""
    out, data, words, scratch = work.out, work.data, work.words, work.scratch
    a = words[spec + layout.SPEC_A]
    b = words[spec + layout.SPEC_B]
    group = kind & layout.GROUP
    if group == layout.NUMBERS:
        return _put_numeric(out, at, data, start, kind, a, work.bytes_scratch)
    if group == layout.DECIMALS:
        return _put_decimals(out, at, data, start, kind, a, b, scratch, work.bytes_scratch)
    if group == layout.TEMPORALS:
        return put_temporal(out, at, data, start, kind, a, b, words[spec + layout.SPEC_D])
    if group == layout.STRINGS:
        return _put_string(work, at, room, start, size, kind, a, b)
    if group == layout.LABELS:
        value = little_endian(data, start, a)
        return _put_labels(out, at, room, value, kind, words, work.literals, b, words[spec + layout.SPEC_C])
    if kind == layout.JSON:
        stack = part(scratch, layout.STACK, layout.LIMBS)
        return put_json(out, at, room, data, start, start + size, 2 if a else 1, a != 0, stack)
    return _put_other(work, at, room, start, size, kind, a, b)
