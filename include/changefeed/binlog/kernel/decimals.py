"""DECIMAL: packed groups of nine digits.

Wire layout: the integer part's digits and then the fraction's, each in groups of nine counted from the point, a
group in four bytes big-endian, a shorter group in as few bytes as it needs; the first bit is inverted, and for a
negative number all bits are.

Source: https://dev.mysql.com/doc/refman/9.7/en/precision-math-decimal-characteristics.html, `decimal2bin`.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel.faults import DECIMAL_DIGITS
from changefeed.native.compiled import inline
from changefeed.native.encoding import put_base64
from changefeed.native.memory import Bytes, Words, put8, u8
from changefeed.native.numbers import put_number, put_padded

_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)
_LIMITS = np.array([10**n for n in range(10)], np.int64)

WRONG_DIGITS = -(1 << 62)
"""What `unscaled` returns for no number."""


def decimal_size(precision: int, scale: int) -> int:
    """Bytes of a DECIMAL(precision, scale)."""
    whole = precision - scale
    return whole // 9 * 4 + int(_BYTES[whole % 9]) + scale // 9 * 4 + int(_BYTES[scale % 9])


@inline
def _group(data: Bytes, at: int, width: int, mask: int, flip: int) -> int:
    value = 0
    for index in range(width):
        value = value << 8 | (u8(data, at + index) ^ mask ^ (flip if index == 0 else 0))
    return value


@inline
def put_decimal(out: Bytes, at: int, data: Bytes, start: int, precision: int, scale: int) -> int:
    """Write the number's text: its digits, and at most three bytes more. The caller has checked the value's size."""
    mask = 0 if u8(data, start) & 0x80 else 0xFF
    if mask:
        put8(out, at, 45)
        at += 1
    whole = precision - scale
    flip = 0x80
    begun = False
    digits = whole % 9
    while whole > 0:
        if digits == 0:
            digits = 9
        width = _BYTES[digits]
        value = _group(data, start, width, mask, flip)
        if value >= _LIMITS[digits]:
            return DECIMAL_DIGITS
        flip = 0
        start += width
        whole -= digits
        if begun:
            at = put_padded(out, at, value, digits)
        elif value > 0:
            at = put_number(out, at, value)
            begun = True
        digits = 0
    if not begun:
        put8(out, at, 48)
        at += 1
    if scale > 0:
        put8(out, at, 46)
        at += 1
        while scale > 0:
            digits = min(scale, 9)
            width = _BYTES[digits]
            value = _group(data, start, width, mask, flip)
            if value >= _LIMITS[digits]:
                return DECIMAL_DIGITS
            flip = 0
            at = put_padded(out, at, value, digits)
            start += width
            scale -= digits
    return at


@inline
def put_decimal_bytes(
    out: Bytes, at: int, data: Bytes, start: int, precision: int, scale: int, scratch: Bytes, limbs: Words
) -> int:
    """Write Connect's Decimal: the unscaled number as `unscaled_bytes`, in base64."""
    first = unscaled_bytes(data, start, precision, scale, scratch, limbs)
    return put_base64(out, at, scratch, first, 32) if first >= 0 else first


@inline
def unscaled(data: Bytes, start: int, precision: int, scale: int) -> int:
    """The number of up to 18 digits without its point; WRONG_DIGITS where it has more than its type."""
    mask = 0 if u8(data, start) & 0x80 else 0xFF
    flip = 0x80
    value = 0
    for part in range(2):
        left = precision - scale if part == 0 else scale
        digits = left % 9 if part == 0 else min(left, 9)
        while left > 0:
            if digits == 0:
                digits = 9
            width = _BYTES[digits]
            group = _group(data, start, width, mask, flip)
            if group >= _LIMITS[digits]:
                return WRONG_DIGITS
            flip = 0
            start += width
            left -= digits
            value = value * _LIMITS[digits] + group
            digits = min(left, 9)
    return -value if mask else value


@inline
def unscaled_bytes(data: Bytes, start: int, precision: int, scale: int, scratch: Bytes, limbs: Words) -> int:
    """Put the unscaled number's two's complement, big-endian and minimal, at the end of ``scratch[:32]``; its begin, or
    a fault.

    Source: `org.apache.kafka.connect.data.Decimal.fromLogical`, `java.math.BigInteger.toByteArray`.
    """
    mask = 0 if u8(data, start) & 0x80 else 0xFF
    flip = 0x80
    for index in range(8):
        limbs[index] = 0
    for part in range(2):
        left = precision - scale if part == 0 else scale
        digits = left % 9 if part == 0 else min(left, 9)
        while left > 0:
            if digits == 0:
                digits = 9
            width = _BYTES[digits]
            carry = _group(data, start, width, mask, flip)
            if carry >= _LIMITS[digits]:
                return DECIMAL_DIGITS
            flip = 0
            start += width
            left -= digits
            for index in range(8):
                carry += limbs[index] * _LIMITS[digits]
                limbs[index] = carry & 0xFFFFFFFF
                carry >>= 32
            digits = min(left, 9)
    carry = 1
    for index in range(8):
        limb = limbs[index]
        if mask:
            limb = (limb ^ 0xFFFFFFFF) + carry
            carry = limb >> 32
            limb &= 0xFFFFFFFF
        for byte in range(4):
            put8(scratch, 31 - (4 * index + byte), (limb >> (8 * byte)) & 0xFF)
    first = 0
    while first < 31:
        byte = u8(scratch, first)
        following = u8(scratch, first + 1)
        if not ((byte == 0 and following < 0x80) or (byte == 0xFF and following >= 0x80)):
            break
        first += 1
    return first
