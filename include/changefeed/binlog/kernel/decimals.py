"""Writes DECIMAL values, which are packed in groups of nine digits.

Wire layout: the digits of the integer part, then those of the fraction, each in groups of nine counted from the point.
A group has four bytes, big-endian; a shorter group has as few bytes as it needs. The first bit is inverted. In a
negative number all bits are then inverted.

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
"""What `unscaled_number` returns if a group has more digits than it can have."""


def decimal_size(precision: int, scale: int) -> int:
    """The size of a DECIMAL(precision, scale), in bytes."""
    integer_digits = precision - scale
    return integer_digits // 9 * 4 + int(_BYTES[integer_digits % 9]) + scale // 9 * 4 + int(_BYTES[scale % 9])


@inline
def _group(data: Bytes, at: int, width: int, mask: int, flip: int) -> int:
    value = 0
    for index in range(width):
        value = value << 8 | (u8(data, at + index) ^ mask ^ (flip if index == 0 else 0))
    return value


@inline
def put_decimal(out: Bytes, at: int, data: Bytes, start: int, precision: int, scale: int) -> int:
    """Write the number as text: its digits and at most three more bytes.

    The caller must check the value's size before.
    """
    mask = 0 if u8(data, start) & 0x80 else 0xFF
    if mask:
        put8(out, at, 45)
        at += 1
    integer_digits = precision - scale
    flip = 0x80
    begun = False
    digits = integer_digits % 9
    while integer_digits > 0:
        if digits == 0:
            digits = 9
        width = _BYTES[digits]
        value = _group(data, start, width, mask, flip)
        if value >= _LIMITS[digits]:
            return DECIMAL_DIGITS
        flip = 0
        start += width
        integer_digits -= digits
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
    """Write a Decimal of Kafka Connect: the bytes of `put_unscaled_bytes` in base64."""
    first = put_unscaled_bytes(data, start, precision, scale, scratch, limbs)
    return put_base64(out, at, scratch, first, 32) if first >= 0 else first


@inline
def unscaled_number(data: Bytes, start: int, precision: int, scale: int) -> int:
    """A number of up to 18 digits without its point; WRONG_DIGITS if a group has too many digits."""
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
def put_unscaled_bytes(data: Bytes, start: int, precision: int, scale: int, scratch: Bytes, limbs: Words) -> int:
    """Write the two's complement of the unscaled number to the end of ``scratch[:32]``; returns its begin, or a fault.

    The bytes are big-endian, and as few as possible.

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
