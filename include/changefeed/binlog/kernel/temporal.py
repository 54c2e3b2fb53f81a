"""Writes dates and times, from their packed fields, as ISO 8601 text or as numbers since 1970.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/ (my_time.cc: TIME_from_longlong_*_packed) and
https://dev.mysql.com/doc/internals/en/date-and-time-data-type-representation.html
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import NULL_VALUE, TEMPORAL_FORM, TEMPORAL_RANGE
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, big_endian, copy, i64, little_endian, put8, u32
from changefeed.native.numbers import put_number, put_padded, put_signed, put_two
from changefeed.native.varint import put_varint

_FIRST_DAY, _LAST_MICRO = -106751, 2**63 // 1000
"""The first complete day, and the last microsecond since 1970, whose nanoseconds fit 64 bits."""
_POWERS = np.array([1000000, 100000, 10000, 1000, 100, 10, 1], np.int64)
_MILLION = 1000000
_DAY_MICROS = 86400 * _MILLION

_PART_NAMES = np.frombuffer(
    b'{"year":,"month":,"day":,"hour":,"minute":,"second":,"subsecond":{"unix_time":', np.uint8
).copy()
_YEAR, _MONTH, _DAY, _HOUR, _MINUTE, _SECOND, _SUBSECOND, _UNIX_TIME, _NAMES_END = 0, 8, 17, 24, 32, 42, 52, 65, 78
"""Where each name begins."""


@inline
def put_date(out: Bytes, at: int, year: int, month: int, day: int) -> int:
    """Write `YYYY-MM-DD`; ten bytes."""
    at = put_padded(out, at, year, 4)
    put8(out, at, 45)
    at = put_two(out, at + 1, month)
    put8(out, at, 45)
    return put_two(out, at + 1, day)


@inline
def put_clock(out: Bytes, at: int, hour: int, minute: int, second: int, micros: int, digits: int) -> int:
    """Write `HH:MM:SS` and ``digits`` of the fraction; hours from 100 on have more than two digits."""
    at = put_number(out, at, hour) if hour >= 100 else put_two(out, at, hour)
    put8(out, at, 58)
    at = put_two(out, at + 1, minute)
    put8(out, at, 58)
    at = put_two(out, at + 1, second)
    if digits > 0:
        put8(out, at, 46)
        at = put_padded(out, at + 1, micros // _POWERS[digits], digits)
    return at


@inline
def days_since_1970(year: int, month: int, day: int) -> int:
    """The days since 1970 of a date in the proleptic Gregorian calendar.

    Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
    """
    if month <= 2:
        year -= 1
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@inline
def put_timestamp(out: Bytes, at: int, seconds: int, micros: int, digits: int, separator: int) -> int:
    """Write seconds since 1970 as date and time in UTC, without a zone."""
    days = seconds // 86400
    clock = seconds - days * 86400
    shifted = days + 719468
    era = shifted // 146097
    of_era = shifted - era * 146097
    year_of_era = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = put_date(out, at, year, month, day)
    put8(out, at, separator)
    return put_clock(out, at + 1, clock // 3600, clock // 60 % 60, clock % 60, micros, digits)


@inline
def _significant(micros: int) -> int:
    """The number of digits of a fraction of a second without zeros at its end."""
    digits = 6 if micros > 0 else 0
    while digits > 0 and micros % 10 == 0:
        micros = micros // 10
        digits -= 1
    return digits


@inline
def _end_offset(out: Bytes, at: int, how: int) -> int:
    """Write `Z`, if the text has an offset, and the closing quote."""
    if how == layout.OFFSET:
        put8(out, at, 90)
        at += 1
    put8(out, at, 34)
    return at + 1


@inline
def _fraction(data: Bytes, at: int, width: int) -> int:
    """The microseconds of a fraction in ``width`` bytes, big-endian, with two digits in each byte."""
    value = big_endian(data, at, width)
    if width == 1:
        return value * 10000
    if width == 2:
        return value * 100
    return value


@inline
def _put_since_1970(out: Bytes, at: int, how: int, value: int) -> int:
    return put_varint(out, at, value) if how == layout.VARINT else put_signed(out, at, value)


@inline
def _put_micros(out: Bytes, at: int, days: int, micros_of_day: int, digits: int, how: int) -> int:
    """Write the time since 1970 as a number; returns the new end, or TEMPORAL_FORM.

    The unit is milliseconds up to 3 ``digits``, else microseconds. With NANOS the unit is nanoseconds: TEMPORAL_FORM if
    the number does not fit 64 bits.
    """
    micros = days * 86400 * _MILLION + micros_of_day
    if how == layout.NANOS:
        return put_signed(out, at, micros * 1000) if days >= _FIRST_DAY and micros <= _LAST_MICRO else TEMPORAL_FORM
    return _put_since_1970(out, at, how, micros // 1000 if digits <= 3 else micros)


@inline
def _put_part(out: Bytes, at: int, begin: int, end: int, value: int) -> int:
    """Write a field of an object: the name ``_PART_NAMES[begin:end]``, and the number ``value``."""
    copy(out, at, _PART_NAMES, begin, end - begin)
    return put_number(out, at + end - begin, value)


@inline
def _put_date_parts(out: Bytes, at: int, year: int, month: int, day: int) -> int:
    """Write the beginning of an object, up to the day."""
    at = _put_part(out, at, _YEAR, _MONTH, year)
    at = _put_part(out, at, _MONTH, _DAY, month)
    return _put_part(out, at, _DAY, _HOUR, day)


@inline
def _put_day(out: Bytes, at: int, packed: int, how: int) -> int:
    day = packed & 31
    month = (packed >> 5) & 15
    year = packed >> 9
    if month > 12 or year > 9999:
        return TEMPORAL_RANGE
    if how >= layout.OFFSET and (day == 0 or month == 0):
        return NULL_VALUE
    if how >= layout.EPOCH:
        return _put_since_1970(out, at, how, days_since_1970(year, month, day))
    if how == layout.PARTS:
        at = _put_date_parts(out, at, year, month, day)
        put8(out, at, 125)
        return at + 1
    put8(out, at, 34)
    return _end_offset(out, put_date(out, at + 1, year, month, day), how)


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
    how: int,
) -> int:
    year = months // 13
    month = months % 13
    if year > 9999 or hour > 23 or minute > 59 or second > 59 or micros >= _MILLION:
        return TEMPORAL_RANGE
    if how >= layout.OFFSET and (day == 0 or month == 0):
        return NULL_VALUE
    if how >= layout.EPOCH:
        clock = ((hour * 60 + minute) * 60 + second) * _MILLION + micros
        return _put_micros(out, at, days_since_1970(year, month, day), clock, digits, how)
    if how == layout.PARTS:
        at = _put_date_parts(out, at, year, month, day)
        at = _put_part(out, at, _HOUR, _MINUTE, hour)
        at = _put_part(out, at, _MINUTE, _SECOND, minute)
        at = _put_part(out, at, _SECOND, _SUBSECOND, second)
        at = _put_part(out, at, _SUBSECOND, _UNIX_TIME, micros)
        put8(out, at, 125)
        return at + 1
    put8(out, at, 34)
    at = put_date(out, at + 1, year, month, day)
    put8(out, at, 32 if how == layout.SQL else 84)
    if how == layout.OFFSET:
        digits = _significant(micros)
    return _end_offset(out, put_clock(out, at + 1, hour, minute, second, micros, digits), how)


@inline
def _put_time(
    out: Bytes, at: int, negative: bool, hour: int, minute: int, second: int, micros: int, digits: int, how: int
) -> int:
    if minute > 59 or second > 59 or micros >= _MILLION:
        return TEMPORAL_RANGE
    total = ((hour * 60 + minute) * 60 + second) * _MILLION + micros
    if (how == layout.OFFSET or how == layout.OF_DAY) and ((negative and total > 0) or total > _DAY_MICROS):
        return TEMPORAL_FORM
    if how == layout.OFFSET:
        hour = hour % 24  # 24:00:00 is midnight
        digits = _significant(micros)
    if how == layout.NANOS:
        return put_signed(out, at, -total * 1000 if negative else total * 1000)
    if how >= layout.EPOCH:
        if digits <= 3:
            total = total // 1000
        return _put_since_1970(out, at, how, -total if negative else total)
    put8(out, at, 34)
    at += 1
    if negative:
        put8(out, at, 45)
        at += 1
    return _end_offset(out, put_clock(out, at, hour, minute, second, micros, digits), how)


@inline
def _put_time2(out: Bytes, at: int, data: Bytes, start: int, digits: int, width: int, how: int) -> int:
    packed = big_endian(data, start, 3 + width)
    # The offset of the sign. A number below it is a negative time: the two's complement of fields and fraction
    # together.
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
    return _put_time(out, at, negative, (fields >> 12) & 1023, (fields >> 6) & 63, fields & 63, micros, digits, how)


@inline
def _put_timestamp_value(out: Bytes, at: int, seconds: int, micros: int, digits: int, how: int) -> int:
    if micros >= _MILLION:
        return TEMPORAL_RANGE
    # The zero date: no TIMESTAMP is 1970-01-01 00:00:00. MariaDB's first is 1970-01-01 00:00:00.000001.
    is_zero = seconds == 0 and micros == 0
    if how >= layout.EPOCH:
        if is_zero:
            return NULL_VALUE
        return _put_micros(out, at, 0, seconds * _MILLION + micros, digits, how)
    if how == layout.PARTS:
        at = _put_part(out, at, _UNIX_TIME, _NAMES_END, seconds)
        at = _put_part(out, at, _SUBSECOND, _UNIX_TIME, micros)
        put8(out, at, 125)
        return at + 1
    if how == layout.ZONED and is_zero:
        return NULL_VALUE
    separator = 32 if how == layout.SQL else 84
    put8(out, at, 34)
    at += 1
    if is_zero:
        at = put_date(out, at, 0, 0, 0)
        put8(out, at, separator)
        at = put_clock(out, at + 1, 0, 0, 0, micros, digits)
    else:
        at = put_timestamp(out, at, seconds, micros, digits, separator)
    if how != layout.SQL:
        put8(out, at, 90)
        at += 1
    put8(out, at, 34)
    return at + 1


@inline
def put_temporal(out: Bytes, at: int, data: Bytes, start: int, kind: int, digits: int, width: int, how: int) -> int:
    """Write the value at ``start``, of a ``kind`` of `layout` from DATE to TIMESTAMP_OLD.

    Returns the new end, NULL_VALUE for an impossible date, or a fault.

    The ``digits`` of the value's fraction are in ``width`` bytes. ``how`` is a form of `layout` from ISO to OF_DAY.
    NANOS cannot express every date, and OFFSET and OF_DAY cannot express every TIME: such a value is NULL_VALUE, or a
    fault if ``how`` has STRICT.
    """
    end = _put_temporal(out, at, data, start, kind, digits, width, how & (layout.STRICT - 1))
    return NULL_VALUE if end == TEMPORAL_FORM and how < layout.STRICT else end


@inline
def _put_temporal(out: Bytes, at: int, data: Bytes, start: int, kind: int, digits: int, width: int, how: int) -> int:
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
            how,
        )
    if kind == layout.TIMESTAMP2:
        micros = _fraction(data, start + 4, width)
        return _put_timestamp_value(out, at, big_endian(data, start, 4), micros, digits, how)
    if kind == layout.TIME2:
        return _put_time2(out, at, data, start, digits, width, how)
    if kind == layout.DATE:
        return _put_day(out, at, little_endian(data, start, 3), how)
    if kind == layout.TIMESTAMP_OLD:
        return _put_timestamp_value(out, at, u32(data, start), 0, 0, how)
    if kind == layout.TIME_OLD:
        value = little_endian(data, start, 3)
        if value >= 0x800000:
            value -= 0x1000000
        negative = value < 0
        if negative:
            value = -value
        return _put_time(out, at, negative, value // 10000, value // 100 % 100, value % 100, 0, digits, how)
    value = i64(data, start)  # DATETIME_OLD
    if value < 0:
        return TEMPORAL_RANGE
    day = value // _MILLION
    clock = value % _MILLION
    if day // 100 % 100 > 12:
        return TEMPORAL_RANGE
    months = day // 10000 * 13 + day // 100 % 100
    return _put_datetime(out, at, months, day % 100, clock // 10000, clock // 100 % 100, clock % 100, 0, digits, how)
