"""Converts a server's text of a DECIMAL to the packed groups of a row image, which `decimals` reads."""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel.decimals import decimal_size
from changefeed.binlog.kernel.faults import DECIMAL_DIGITS
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, put8, u8

_SIZES = np.array([decimal_size(digits, 0) for digits in range(10)], np.int64)
"""The size of a group in bytes, by its number of digits."""

_MINUS, _POINT = 45, 46


@inline
def _digit(data: Bytes, at: int, start: int, end: int) -> int:
    """The digit at ``at``; 0 outside of ``data[start:end]``, -1 for another character."""
    if at < start or at >= end:
        return 0
    digit = u8(data, at) - 48
    return digit if 0 <= digit <= 9 else -1


@inline
def _put_groups(out: Bytes, at: int, data: Bytes, here: int, count: int, first: int, start: int, end: int) -> int:
    """Write ``count`` digits from ``here`` on as groups; the first group has ``first`` digits (0: nine).

    Digits outside of ``data[start:end]`` are zeros."""
    group = first if first > 0 else 9
    while count > 0:
        group = min(group, count)
        value = 0
        for index in range(group):
            digit = _digit(data, here + index, start, end)
            if digit < 0:
                return DECIMAL_DIGITS
            value = value * 10 + digit
        size = int(_SIZES[group])
        for index in range(size):
            put8(out, at + index, value >> (8 * (size - 1 - index)))
        at += size
        here += group
        count -= group
        group = 9
    return at


@inline
def put_decimal_image(out: Bytes, at: int, data: Bytes, start: int, end: int, precision: int, scale: int) -> int:
    """Write the number whose text is ``data[start:end]`` as a DECIMAL(precision, scale); the new end, or a fault."""
    begin = at
    negative = start < end and u8(data, start) == _MINUS
    if negative:
        start += 1
    point = start
    while point < end and u8(data, point) != _POINT:
        point += 1
    integer_digits = precision - scale
    while start < point and u8(data, start) == 48:
        start += 1
    if point - start > integer_digits or end - point - 1 > scale:
        return DECIMAL_DIGITS
    at = _put_groups(out, at, data, point - integer_digits, integer_digits, integer_digits % 9, start, point)
    if at < 0:
        return at
    at = _put_groups(out, at, data, point + 1, scale, 0, point + 1, end)
    if at < 0:
        return at
    if negative:
        for index in range(begin, at):
            put8(out, index, ~u8(out, index))
    put8(out, begin, u8(out, begin) ^ 0x80)
    return at
