"""One column value as JSON text: the branch of the kernel for each kind of column."""

# ruff: noqa: SIM108 - a kernel reads more easily as branches
from __future__ import annotations

from changefeed.binlog import layout
from changefeed.binlog.compiled import inline
from changefeed.binlog.decimals import put_decimal, put_decimal_bytes
from changefeed.binlog.encoding import put_base64, put_hex
from changefeed.binlog.faults import FULL, LABEL, SHORT, TEMPORAL_RANGE, VECTOR_WIDTH
from changefeed.binlog.json_binary import put_json
from changefeed.binlog.memory import (
    Bytes,
    Words,
    big_endian,
    copy,
    i64,
    little_endian,
    put8,
    put16,
    put32,
    u8,
    u16,
    u32,
)
from changefeed.binlog.numbers import put_float32, put_float64, put_number, put_signed, put_unsigned
from changefeed.binlog.temporal import days_since_1970, put_clock, put_date, put_timestamp
from changefeed.binlog.text import put_table, put_utf8, put_utf16, put_utf32

ROOM_FOR_VALUE = 512
"""Bytes that any value of a fixed size fits in; the others look after themselves."""

_MILLION = 1000000


@inline
def put_null(out: Bytes, at: int) -> int:
    put32(out, at, 0x6C6C756E)
    return at + 4


@inline
def _fraction(data: Bytes, at: int, width: int) -> int:
    """Microseconds of a fraction in ``width`` bytes big-endian, each byte two digits."""
    value = big_endian(data, at, width)
    if width == 1:
        return value * 10000
    if width == 2:
        return value * 100
    return value


@inline
def _put_micros(out: Bytes, at: int, days: int, micros_of_day: int, digits: int) -> int:
    """Milliseconds since 1970 for a precision to 3, else microseconds."""
    micros = days * 86400 * _MILLION + micros_of_day
    return put_signed(out, at, micros // 1000 if digits <= 3 else micros)


@inline
def _put_date_value(out: Bytes, at: int, packed: int, epoch: int) -> int:
    day = packed & 31
    month = (packed >> 5) & 15
    year = packed >> 9
    if month > 12 or year > 9999:
        return TEMPORAL_RANGE
    if epoch:
        if day == 0 or month == 0:
            return put_null(out, at)
        return put_signed(out, at, days_since_1970(year, month, day))
    put8(out, at, 34)
    at = put_date(out, at + 1, year, month, day)
    put8(out, at, 34)
    return at + 1


@inline
def _put_datetime(
    out: Bytes,
    at: int,
    months: int,
    day: int,
    hour: int,
    minute: int,
    second: int,
    micros: int,
    digits: int,
    epoch: int,
) -> int:
    year = months // 13
    month = months % 13
    if year > 9999 or hour > 23 or minute > 59 or second > 59 or micros >= _MILLION:
        return TEMPORAL_RANGE
    if epoch:
        if day == 0 or month == 0:
            return put_null(out, at)
        clock = ((hour * 60 + minute) * 60 + second) * _MILLION + micros
        return _put_micros(out, at, days_since_1970(year, month, day), clock, digits)
    put8(out, at, 34)
    at = put_date(out, at + 1, year, month, day)
    put8(out, at, 84)
    at = put_clock(out, at + 1, hour, minute, second, micros, digits)
    put8(out, at, 34)
    return at + 1


@inline
def _put_time(
    out: Bytes, at: int, negative: bool, hour: int, minute: int, second: int, micros: int, digits: int, epoch: int
) -> int:
    if minute > 59 or second > 59 or micros >= _MILLION:
        return TEMPORAL_RANGE
    if epoch:
        total = ((hour * 60 + minute) * 60 + second) * _MILLION + micros
        if digits <= 3:
            total = total // 1000
        return put_signed(out, at, -total if negative else total)
    put8(out, at, 34)
    at += 1
    if negative:
        put8(out, at, 45)
        at += 1
    at = put_clock(out, at, hour, minute, second, micros, digits)
    put8(out, at, 34)
    return at + 1


@inline
def _put_time2(out: Bytes, at: int, data: Bytes, start: int, digits: int, width: int, epoch: int) -> int:
    packed = big_endian(data, start, 3 + width)
    # The sign's offset; what is below it is negative, as two's complement of fields and fraction together.
    packed -= 0x800000 << (8 * width)
    negative = packed < 0
    if negative:
        packed = -packed
    fraction = packed & ((1 << (8 * width)) - 1)
    micros = fraction
    if width == 1:
        micros = fraction * 10000
    elif width == 2:
        micros = fraction * 100
    fields = packed >> (8 * width)
    return _put_time(out, at, negative, (fields >> 12) & 1023, (fields >> 6) & 63, fields & 63, micros, digits, epoch)


@inline
def _put_timestamp_value(out: Bytes, at: int, seconds: int, micros: int, digits: int, epoch: int) -> int:
    if micros >= _MILLION:
        return TEMPORAL_RANGE
    if epoch:
        if seconds == 0:
            return put_null(out, at)
        return _put_micros(out, at, 0, seconds * _MILLION + micros, digits)
    put8(out, at, 34)
    at += 1
    if seconds == 0:  # the zero timestamp: no TIMESTAMP is 1970-01-01 00:00:00
        at = put_date(out, at, 0, 0, 0)
        put8(out, at, 84)
        at = put_clock(out, at + 1, 0, 0, 0, micros, digits)
    else:
        at = put_timestamp(out, at, seconds, micros, digits, 84)
    put16(out, at, 0x225A)
    return at + 2


@inline
def _put_temporal(out: Bytes, at: int, data: Bytes, start: int, kind: int, digits: int, width: int, epoch: int) -> int:
    if kind == layout.DATETIME2:
        fields = big_endian(data, start, 5) & 0x7FFFFFFFFF
        micros = _fraction(data, start + 5, width)
        return _put_datetime(
            out,
            at,
            fields >> 22,
            (fields >> 17) & 31,
            (fields >> 12) & 31,
            (fields >> 6) & 63,
            fields & 63,
            micros,
            digits,
            epoch,
        )
    if kind == layout.TIMESTAMP2:
        micros = _fraction(data, start + 4, width)
        return _put_timestamp_value(out, at, big_endian(data, start, 4), micros, digits, epoch)
    if kind == layout.TIME2:
        return _put_time2(out, at, data, start, digits, width, epoch)
    if kind == layout.DATE:
        return _put_date_value(out, at, little_endian(data, start, 3), epoch)
    if kind == layout.TIMESTAMP_OLD:
        return _put_timestamp_value(out, at, u32(data, start), 0, 0, epoch)
    if kind == layout.TIME_OLD:
        value = little_endian(data, start, 3)
        if value >= 0x800000:
            value -= 0x1000000
        negative = value < 0
        if negative:
            value = -value
        return _put_time(out, at, negative, value // 10000, value // 100 % 100, value % 100, 0, 0, epoch)
    value = i64(data, start)  # DATETIME_OLD
    if value < 0:
        return TEMPORAL_RANGE
    day = value // _MILLION
    clock = value % _MILLION
    if day // 100 % 100 > 12:
        return TEMPORAL_RANGE
    months = day // 10000 * 13 + day // 100 % 100
    return _put_datetime(out, at, months, day % 100, clock // 10000, clock // 100 % 100, clock % 100, 0, 0, epoch)


@inline
def _put_binary(
    out: Bytes, at: int, room: int, data: Bytes, start: int, size: int, padded: int, hexed: int, scratch: Bytes
) -> int:
    whole = max(size, padded)
    if at + 8 + whole * 2 > room:
        return FULL
    put8(out, at, 34)
    at += 1
    end = start + size
    if whole > size and size + whole <= 2048:
        copy(scratch, 0, data, start, size)
        for index in range(size, whole):
            put8(scratch, index, 0)
        at = put_hex(out, at, scratch, 0, whole) if hexed else put_base64(out, at, scratch, 0, whole)
    elif hexed:
        at = put_hex(out, at, data, start, end)
    else:
        at = put_base64(out, at, data, start, end)
    put8(out, at, 34)
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
        at = put_table(out, at, room, data, start, end, words, a, b)
    elif kind == layout.UTF16:
        at = put_utf16(out, at, room, data, start, end, a)
    else:
        at = put_utf32(out, at, room, data, start, end)
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
    copy(out, at, literals, words[pair], size)
    return at + size


@inline
def _put_labels(
    out: Bytes, at: int, room: int, value: int, kind: int, words: Words, literals: Bytes, pairs: int, count: int
) -> int:
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
def _put_address(out: Bytes, at: int, data: Bytes, start: int, size: int, kind: int, scratch: Bytes) -> int:
    """UUID, INET4 or INET6, whose trailing zero bytes the binlog leaves out.

    INET6 is written as `inet_ntop` does: the longest run of zero groups as `::`, IPv4-mapped ones with dots.
    """
    for index in range(16):
        put8(scratch, index, u8(data, start + index) if index < size else 0)
    put8(out, at, 34)
    at += 1
    if kind == layout.UUID:
        for index in range(16):
            if index == 4 or index == 6 or index == 8 or index == 10:
                put8(out, at, 45)
                at += 1
            at = put_hex(out, at, scratch, index, index + 1)
    elif kind == layout.INET4:
        at = _put_dotted(out, at, scratch, 0)
    else:
        at = _put_inet6(out, at, scratch)
    put8(out, at, 34)
    return at + 1


@inline
def _put_dotted(out: Bytes, at: int, data: Bytes, start: int) -> int:
    for index in range(4):
        if index > 0:
            put8(out, at, 46)
            at += 1
        at = put_number(out, at, u8(data, start + index))
    return at


@inline
def _put_inet6(out: Bytes, at: int, data: Bytes) -> int:
    best = -1
    best_size = 1
    run = 0
    for group in range(8):
        if u16(data, 2 * group) == 0:
            run += 1
            if run > best_size:
                best_size = run
                best = group - run + 1
        else:
            run = 0
    dotted = best == 0 and (best_size == 6 or (best_size == 5 and u16(data, 10) == 0xFFFF))
    group = 0
    while group < 8:
        if group == best:
            put16(out, at, 0x3A3A)
            at += 2
            group += best_size
            continue
        if (group > 0 and group != best + best_size) or (group > 0 and best < 0):
            put8(out, at, 58)
            at += 1
        if dotted and group == 6:
            return _put_dotted(out, at, data, 12)
        value = u8(data, 2 * group) << 8 | u8(data, 2 * group + 1)
        begun = False
        for shift in range(12, -4, -4):
            digit = (value >> shift) & 15
            if digit > 0 or begun or shift == 0:
                begun = True
                put8(out, at, 48 + digit if digit < 10 else 87 + digit)
                at += 1
        group += 1
    return at


@inline
def put_value(
    out: Bytes,
    at: int,
    room: int,
    data: Bytes,
    start: int,
    size: int,
    words: Words,
    spec: int,
    literals: Bytes,
    scratch: Words,
    bytes_scratch: Bytes,
) -> int:
    """Write the value ``data[start:start + size]`` of the column at ``words[spec]``; the new end, FULL or a fault."""
    if at + ROOM_FOR_VALUE > room:
        return FULL
    kind = words[spec + layout.SPEC_KIND]
    a = words[spec + layout.SPEC_A]
    b = words[spec + layout.SPEC_B]
    end = start + size
    if kind == layout.SIGNED:
        value = little_endian(data, start, a)
        if a < 8 and value >> (8 * a - 1):
            value -= 1 << (8 * a)
        return put_signed(out, at, value)
    if kind == layout.UNSIGNED:
        return put_unsigned(out, at, little_endian(data, start, a))
    if kind == layout.UTF8 or kind == layout.CODE_TABLE or kind == layout.UTF16 or kind == layout.UTF32:
        return _put_text(out, at, room, data, start, end, words, kind, a, b)
    if kind == layout.DECIMAL_TEXT:
        put8(out, at, 34)
        at = put_decimal(out, at + 1, data, start, a, b)
        if at < 0:
            return at
        put8(out, at, 34)
        return at + 1
    if layout.DATE <= kind <= layout.TIMESTAMP_OLD:
        return _put_temporal(out, at, data, start, kind, a, b, words[spec + layout.SPEC_D])
    if kind == layout.DOUBLE:
        return put_float64(out, at, i64(data, start))
    if kind == layout.ENUM or kind == layout.SET:
        value = little_endian(data, start, a)
        return _put_labels(out, at, room, value, kind, words, literals, b, words[spec + layout.SPEC_C])
    if kind == layout.JSON:
        level = 2 if a else 1
        return put_json(out, at, room, data, start, end, level, a != 0, scratch[layout.STACK : layout.LIMBS])
    if kind == layout.BASE64 or kind == layout.HEX:
        return _put_binary(out, at, room, data, start, size, a, 1 if kind == layout.HEX else 0, bytes_scratch)
    if kind == layout.FLOAT:
        return put_float32(out, at, u32(data, start))
    if kind == layout.YEAR:
        value = u8(data, start)
        return put_number(out, at, value + 1900 if value else 0)
    if kind == layout.BIT:
        return put_unsigned(out, at, big_endian(data, start, a))
    if kind == layout.DECIMAL_NUMBER:
        return put_decimal(out, at, data, start, a, b)
    if kind == layout.DECIMAL_BYTES:
        put8(out, at, 34)
        at = put_decimal_bytes(out, at + 1, data, start, a, b, bytes_scratch, scratch[layout.LIMBS : layout.LIMBS + 16])
        if at < 0:
            return at
        put8(out, at, 34)
        return at + 1
    if kind == layout.UNSIGNED_TEXT:
        put8(out, at, 34)
        at = put_unsigned(out, at + 1, i64(data, start))
        put8(out, at, 34)
        return at + 1
    if kind == layout.GEOMETRY:
        return _put_geometry(out, at, room, data, start, end, a)
    if kind == layout.VECTOR:
        return _put_vector(out, at, room, data, start, end)
    if kind == layout.CONSTANT:
        if at + b > room:
            return FULL
        copy(out, at, literals, a, b)
        return at + int(b)
    return _put_address(out, at, data, start, size, kind, bytes_scratch)
