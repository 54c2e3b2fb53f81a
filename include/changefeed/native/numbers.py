"""Writes numbers as JSON text: integers, and doubles in their shortest form.

For doubles the algorithm is Raffaele Giulietti's Schubfach ("The Schubfach way to render doubles", 2020). Among the
decimals that read back as the same double it finds the shortest; if there are several, the closest. The format is that
of orjson: `1.0`, `0.00001`, `1e+16`.
"""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import inline
from changefeed.native.memory import (
    Bytes,
    Words,
    divide,
    multiply_high,
    put8,
    put16,
    shift_right,
    u16,
    wrap,
)

_PAIRS = np.frombuffer("".join(f"{n:02d}" for n in range(100)).encode(), np.uint8).copy()

_K_MIN, _K_MAX = -324, 292


def _powers() -> Words:
    """For each k the 126-bit number floor(10**-k * 2**-r) + 1, as its upper and lower 63 bits."""
    table = np.zeros(2 * (_K_MAX - _K_MIN + 1), np.int64)
    for k in range(_K_MIN, _K_MAX + 1):
        r = ((-k * 913124641741) >> 38) - 125
        numerator, denominator = (1, 10**k) if k > 0 else (10**-k, 1)
        if r > 0:
            denominator <<= r
        else:
            numerator <<= -r
        g = numerator // denominator + 1
        table[2 * (k - _K_MIN)] = g >> 63
        table[2 * (k - _K_MIN) + 1] = g & (2**63 - 1)
    return table


_POWERS = _powers()


@inline
def count_digits(value: int) -> int:
    """The number of decimal digits of ``value`` (0 or more)."""
    count = 1
    while value >= 10000:
        value = divide(value, 10000)
        count += 4
    if value >= 1000:
        return count + 3
    if value >= 100:
        return count + 2
    if value >= 10:
        return count + 1
    return count


@inline
def put_two(out: Bytes, at: int, value: int) -> int:
    """Write the two digits of a ``value`` below 100."""
    put16(out, at, u16(_PAIRS, 2 * value))
    return at + 2


@inline
def put_padded(out: Bytes, at: int, value: int, digits: int) -> int:
    """Write exactly ``digits`` digits of ``value`` (0 or more)."""
    end = at + digits
    to = end
    while to - at >= 2:
        rest = divide(value, 100)
        to -= 2
        put16(out, to, u16(_PAIRS, 2 * (value - 100 * rest)))
        value = rest
    if to > at:
        put8(out, at, 48 + value % 10)
    return end


@inline
def put_number(out: Bytes, at: int, value: int) -> int:
    """Write a number of 0 or more; at most 19 bytes."""
    return put_padded(out, at, value, count_digits(value))


@inline
def put_unsigned(out: Bytes, at: int, word: int) -> int:
    """Write a 64-bit word as an unsigned number; at most 20 bytes."""
    if word >= 0:
        return put_number(out, at, word)
    upper = divide(word, 1000000000)
    at = put_number(out, at, upper)
    return put_padded(out, at, wrap(word - wrap(upper * 1000000000)), 9)


@inline
def put_signed(out: Bytes, at: int, word: int) -> int:
    """Write a signed number; at most 20 bytes."""
    if word >= 0:
        return put_number(out, at, word)
    put8(out, at, 45)
    return put_unsigned(out, at + 1, wrap(-word))


@inline
def _round_to_odd(g1: int, g0: int, cp: int) -> int:
    """The upper 64 bits of (g1 * 2**63 + g0) * cp, with the lowest bit set when bits below were cut off."""
    x1 = multiply_high(g0, cp)
    y0 = wrap(g1 * cp)
    y1 = multiply_high(g1, cp)
    z = wrap(shift_right(y0, 1) + x1)
    w = wrap(y1 + shift_right(z, 63))
    cut = 1 if (z & 0x7FFFFFFFFFFFFFFF) != 0 else 0
    return w | cut


@inline
def put_double(out: Bytes, at: int, c: int, q: int, regular: bool) -> int:
    """Write c * 2**q (c > 0) in its shortest form; at most 25 bytes.

    ``regular`` is False for a power of two whose lower neighbour is nearer than its upper one.
    """
    odd = c & 1
    cb = c << 2
    cbr = cb + 2
    if regular:
        cbl = cb - 2
        k = (q * 661971961083) >> 41
    else:
        cbl = cb - 1
        k = (q * 661971961083 - 274743187321) >> 41
    h = q + ((-k * 913124641741) >> 38) + 2
    g1 = int(_POWERS[2 * (k + 324)])
    g0 = int(_POWERS[2 * (k + 324) + 1])
    vb = _round_to_odd(g1, g0, cb << h)
    lower = _round_to_odd(g1, g0, cbl << h) + odd
    upper = _round_to_odd(g1, g0, cbr << h) - odd
    s = vb >> 2
    digits = s
    done = False
    if s >= 10:
        tens = divide(s, 10)
        low_inside = lower <= 40 * tens
        high_inside = 40 * tens + 40 <= upper
        if low_inside != high_inside:
            digits = tens if low_inside else tens + 1
            k += 1
            done = True
    if not done:
        low_inside = lower <= 4 * s
        high_inside = 4 * s + 4 <= upper
        if low_inside != high_inside:
            digits = s if low_inside else s + 1
        else:
            middle = 4 * s + 2
            digits = s if vb < middle or (vb == middle and (s & 1) == 0) else s + 1
    rest = divide(digits, 10)
    while digits > 0 and digits == 10 * rest:
        digits = rest
        rest = divide(digits, 10)
        k += 1
    return put_shortest(out, at, digits, k)


@inline
def put_shortest(out: Bytes, at: int, digits: int, k: int) -> int:
    """Write digits * 10**k, a double's shortest form, in the format of doubles; at most 25 bytes."""
    count = count_digits(digits)
    point = count + k
    if k >= 0 and point <= 16:
        at = put_padded(out, at, digits, count)
        for _ in range(k):
            put8(out, at, 48)
            at += 1
        put8(out, at, 46)
        put8(out, at + 1, 48)
        return at + 2
    if 0 < point <= 16:
        put_padded(out, at + 1, digits, count)
        for index in range(point):
            put8(out, at + index, out[at + index + 1])
        put8(out, at + point, 46)
        return at + count + 1
    if -5 < point <= 0:
        put8(out, at, 48)
        put8(out, at + 1, 46)
        at += 2
        for _ in range(-point):
            put8(out, at, 48)
            at += 1
        return put_padded(out, at, digits, count)
    if count == 1:
        put8(out, at, 48 + digits)
        at += 1
    else:
        end = put_padded(out, at + 1, digits, count)
        put8(out, at, out[at + 1])
        put8(out, at + 1, 46)
        at = end
    put8(out, at, 101)
    at += 1
    if point > 1:
        put8(out, at, 43)
        at += 1
    return put_signed(out, at, point - 1)


@inline
def _put_null(out: Bytes, at: int) -> int:
    put16(out, at, 0x756E)
    put16(out, at + 2, 0x6C6C)
    return at + 4


_EXACT_DIGITS = 22
"""The largest n for which 10**n is exactly a double."""


@inline
def rounded_double(bits: int, decimals: int) -> int:
    """The bits of the double nearest to a double's value rounded to ``decimals`` digits after the point."""
    value = np.int64(bits).view(np.float64)
    scale = 10.0**decimals
    scaled = value * scale
    if decimals <= _EXACT_DIGITS and abs(scaled) < 9007199254740992.0:
        value = np.rint(scaled) / scale
    return int(np.float64(value).view(np.int64))


@inline
def put_float64(out: Bytes, at: int, bits: int) -> int:
    """Write the IEEE double with these bits; `null` for NaN and infinity."""
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & 0xFFFFFFFFFFFFF
    if exponent == 0x7FF:
        return _put_null(out, at)
    if bits < 0:
        put8(out, at, 45)
        at += 1
    if exponent == 0:
        if fraction == 0:
            put8(out, at, 48)
            put16(out, at + 1, 0x302E)
            return at + 3
        return put_double(out, at, fraction, -1074, True)
    return put_double(out, at, fraction | 1 << 52, exponent - 1075, fraction != 0 or exponent == 1)


@inline
def put_float32(out: Bytes, at: int, bits: int) -> int:
    """Write the IEEE single with these bits, in the shortest form that reads back as the same single."""
    exponent = (bits >> 23) & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 0xFF:
        return _put_null(out, at)
    if (bits >> 31) & 1:
        put8(out, at, 45)
        at += 1
    if exponent == 0:
        if fraction == 0:
            put8(out, at, 48)
            put16(out, at + 1, 0x302E)
            return at + 3
        return put_double(out, at, fraction, -149, True)
    return put_double(out, at, fraction | 1 << 23, exponent - 150, fraction != 0 or exponent == 1)
