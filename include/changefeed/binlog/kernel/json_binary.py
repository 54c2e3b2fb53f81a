"""Writes MySQL's binary JSON as text.

Wire layout: a type byte, then the value.

- An object or array: element count and size (2 bytes each, 4 in the large form); in an object a key entry for each key
  (offset, 2-byte length); value entries (type, and the offset of the value, or the value itself if it fits); then keys
  and values. Offsets count from the begin of the object or array.
- Strings and opaque values: a length in 7-bit groups, then the bytes.

The text has no spaces. Numbers are as the server writes them, and DECIMAL is a number. DATE, TIME, DATETIME are strings
in the server's format. Other opaque values are `base64:typeN:...` strings, as in the server's own text.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/json__binary_8h.html
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.decimals import put_decimal
from changefeed.binlog.kernel.faults import DECIMAL_DIGITS, FULL, JSON_DEEP, JSON_OFFSET, JSON_TYPE
from changefeed.binlog.kernel.json_text import DOCUMENT_TEXT
from changefeed.binlog.kernel.temporal import put_clock, put_date
from changefeed.binlog.kernel.text import put_utf8
from changefeed.native.compiled import inline
from changefeed.native.encoding import put_base64
from changefeed.native.memory import Bytes, Words, copy, i64, put8, put16, put32, u8, u16, u32
from changefeed.native.numbers import put_float64, put_number, put_signed, put_unsigned

_DEPTH = 128
_FRAME = 6
STACK_WORDS = _DEPTH * _FRAME
"""Size, in words, of the array in which `put_json` stores the open containers."""

_LITERAL, _INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = (
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    15,
)
_MOST_DIGITS = 81
"""The most digits of a DECIMAL in a document: the room in a server's `decimal_t`. DECIMAL columns have at most 65."""
_NEWDECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7


@inline
def _put_quote(out: Bytes, at: int, level: int) -> int:
    if level == 1:
        put8(out, at, 34)
        return at + 1
    put16(out, at, 0x225C)
    return at + 2


@inline
def _length_of(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """A length in 7-bit groups, and the address after it; (-1, at) if the length is invalid or leads beyond ``end``."""
    length = 0
    for index in range(5):
        if at >= end:
            return -1, at
        byte = u8(data, at)
        at += 1
        length |= (byte & 127) << (7 * index)
        if byte < 128:
            return (length, at) if length <= end - at else (-1, at)
    return -1, at


@inline
def _put_packed_time(out: Bytes, at: int, packed: int, kind: int) -> int:
    """Write an opaque date or time: 40 bits of fields, 24 bits of microseconds."""
    if packed < 0:
        packed = -packed
        if kind == _TIME:
            put8(out, at, 45)
            at += 1
    micros = packed & 0xFFFFFF
    fields = packed >> 24
    if kind == _TIME:
        return put_clock(out, at, (fields >> 12) & 1023, (fields >> 6) & 63, fields & 63, micros, 6)
    days = fields >> 17
    months = days >> 5
    at = put_date(out, at, months // 13 % 10000, months % 13, days & 31)
    if kind == _DATE:
        return at
    put8(out, at, 32)
    return put_clock(out, at + 1, (fields >> 12) & 31, (fields >> 6) & 63, fields & 63, micros, 6)


@inline
def _put_document_text(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, level: int) -> int:
    """Write a complete document that is stored as text: see `json_text`."""
    if level == 2:
        return put_utf8(out, at, room, data, start, end, 1)
    if at + end - start > room:
        return FULL
    copy(out, at, data, start, end - start)
    return at + end - start


@inline
def _put_opaque(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, level: int) -> int:
    if start >= end:
        return JSON_OFFSET
    kind = u8(data, start)
    length, start = _length_of(data, start + 1, end)
    if length < 0:
        return JSON_OFFSET
    if kind == DOCUMENT_TEXT:
        return _put_document_text(out, at, room, data, start, start + length, level)
    if at + 160 + (length + 2) // 3 * 4 > room:
        return FULL
    if kind == _NEWDECIMAL:
        if length < 2:
            return JSON_OFFSET
        precision = u8(data, start)
        scale = u8(data, start + 1)
        if precision == 0 or precision > _MOST_DIGITS or scale > precision:
            return DECIMAL_DIGITS
        integer_digits = precision - scale
        size = integer_digits // 9 * 4 + (integer_digits % 9 + 1) // 2 + scale // 9 * 4 + (scale % 9 + 1) // 2
        if length < 2 + size:
            return JSON_OFFSET
        return put_decimal(out, at, data, start + 2, precision, scale)
    at = _put_quote(out, at, level)
    if kind == _DATE or kind == _TIME or kind == _DATETIME or kind == _TIMESTAMP:
        if length != 8:
            return JSON_OFFSET
        at = _put_packed_time(out, at, i64(data, start), kind)
    else:
        put32(out, at, 0x65736162)  # base
        put32(out, at + 4, 0x743A3436)  # 64:t
        put16(out, at + 8, 0x7079)  # yp
        put8(out, at + 10, 101)
        at = put_number(out, at + 11, kind)
        put8(out, at, 58)
        at = put_base64(out, at + 1, data, start, start + length)
    return _put_quote(out, at, level)


@inline
def _put_literal(out: Bytes, at: int, value: int) -> int:
    if value == 0:
        put32(out, at, 0x6C6C756E)
        return at + 4
    if value == 1:
        put32(out, at, 0x65757274)
        return at + 4
    if value == 2:
        put32(out, at, 0x736C6166)
        put8(out, at + 4, 101)
        return at + 5
    return JSON_TYPE


@inline
def _put_scalar(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, kind: int, level: int) -> int:
    """Write the value at ``start``, which is not an object or an array."""
    if at + 64 > room:
        return FULL
    left = end - start
    if kind == _STRING:
        length, start = _length_of(data, start, end)
        if length < 0:
            return JSON_OFFSET
        at = _put_quote(out, at, level)
        at = put_utf8(out, at, room, data, start, start + length, level)
        if at < 0:
            return at
        if at + 2 > room:
            return FULL
        return _put_quote(out, at, level)
    if kind == _OPAQUE:
        return _put_opaque(out, at, room, data, start, end, level)
    if kind == _LITERAL:
        return _put_literal(out, at, u8(data, start)) if left >= 1 else JSON_OFFSET
    if kind == _INT16 or kind == _UINT16:
        if left < 2:
            return JSON_OFFSET
        value = u16(data, start)
        return put_signed(out, at, value - 0x10000 if kind == _INT16 and value >= 0x8000 else value)
    if kind == _INT32 or kind == _UINT32:
        if left < 4:
            return JSON_OFFSET
        value = u32(data, start)
        return put_signed(out, at, value - 0x100000000 if kind == _INT32 and value >= 0x80000000 else value)
    if kind == _INT64 or kind == _UINT64 or kind == _DOUBLE:
        if left < 8:
            return JSON_OFFSET
        value = i64(data, start)
        if kind == _INT64:
            return put_signed(out, at, value)
        return put_unsigned(out, at, value) if kind == _UINT64 else put_float64(out, at, value)
    return JSON_TYPE


@inline
def put_json(
    out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, level: int, inside: bool, stack: Words
) -> int:
    """Write the document ``data[start:end]``; an empty document is JSON null.

    ``level`` is as in `text`. With ``inside`` the document is written as a JSON string, with its quotes.
    """
    if at + 64 > room:
        return FULL
    if inside:
        put8(out, at, 34)
        at += 1
    if start >= end:
        at = _put_literal(out, at, 0)  # an UPDATE IGNORE or a default can store an empty document
    else:
        at = _put_value(out, at, room, data, start + 1, end, u8(data, start), level, stack)
    if at < 0:
        return at
    if inside:
        if at + 1 > room:
            return FULL
        put8(out, at, 34)
        at += 1
    return at


@inline
def _open(data: Bytes, start: int, end: int, kind: int, stack: Words, frame: int) -> int:
    """Check the header of an object or array, and push it onto ``stack``; returns 0 or a fault."""
    wide = 4 if kind & 1 else 2
    if end - start < 2 * wide:
        return JSON_OFFSET
    count = u32(data, start) if wide == 4 else u16(data, start)
    size = u32(data, start + wide) if wide == 4 else u16(data, start + wide)
    if size > end - start:
        return JSON_OFFSET
    entries = count * (1 + wide) + (count * (wide + 2) if kind <= 1 else 0)
    if 2 * wide + entries > size:
        return JSON_OFFSET
    stack[frame] = start
    stack[frame + 1] = start + size
    stack[frame + 2] = kind
    stack[frame + 3] = count
    stack[frame + 4] = 0
    return 0


@inline
def _put_value(
    out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, kind: int, level: int, stack: Words
) -> int:
    if kind > 3:
        return _put_scalar(out, at, room, data, start, end, kind, level)
    depth = 0
    # The most values of a document, each of which has at least 3 bytes. Without this limit, a damaged document whose
    # offsets lead to the same value repeatedly could have text without end.
    budget = (end - start) // 3 + 1
    fault = _open(data, start, end, kind, stack, 0)
    if fault < 0:
        return fault
    put8(out, at, 123 if kind <= 1 else 91)
    at += 1
    while depth >= 0:
        frame = depth * _FRAME
        begin = stack[frame]
        limit = stack[frame + 1]
        kind = stack[frame + 2]
        count = stack[frame + 3]
        index = stack[frame + 4]
        if at + 64 > room:
            return FULL
        if index == count:
            put8(out, at, 125 if kind <= 1 else 93)
            at += 1
            depth -= 1
            continue
        stack[frame + 4] = index + 1
        budget -= 1
        if budget < 0:
            return JSON_DEEP
        wide = 4 if kind & 1 else 2
        if index > 0:
            put8(out, at, 44)
            at += 1
        values = begin + 2 * wide
        if kind <= 1:
            entry = values + index * (wide + 2)
            offset = u32(data, entry) if wide == 4 else u16(data, entry)
            length = u16(data, entry + wide)
            if begin + offset + length > limit:
                return JSON_OFFSET
            at = _put_quote(out, at, level)
            at = put_utf8(out, at, room, data, begin + offset, begin + offset + length, level)
            if at < 0:
                return at
            if at + 64 > room:
                return FULL
            at = _put_quote(out, at, level)
            put8(out, at, 58)
            at += 1
            values += count * (wide + 2)
        entry = values + index * (1 + wide)
        inner = u8(data, entry)
        if (
            inner == _LITERAL
            or inner == _INT16
            or inner == _UINT16
            or (wide == 4 and (inner == _INT32 or inner == _UINT32))
        ):
            at = _put_scalar(out, at, room, data, entry + 1, entry + 1 + wide, inner, level)
        else:
            offset = u32(data, entry + 1) if wide == 4 else u16(data, entry + 1)
            if begin + offset > limit:
                return JSON_OFFSET
            if inner <= 3:
                depth += 1
                if depth >= _DEPTH:
                    return JSON_DEEP
                fault = _open(data, begin + offset, limit, inner, stack, depth * _FRAME)
                if fault < 0:
                    return fault
                put8(out, at, 123 if inner <= 1 else 91)
                at += 1
            else:
                at = _put_scalar(out, at, room, data, begin + offset, limit, inner, level)
        if at < 0:
            return at
    return at
