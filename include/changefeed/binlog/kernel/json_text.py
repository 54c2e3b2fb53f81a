"""Converts a server's text of a JSON document to a row image for `json_binary`, so that all styles and masks apply.

The image is a scalar that no server writes: an opaque value of type JSON. Its value is the text that `json_binary`
would write for the document:

- There are no spaces between the parts.
- Doubles have the format of all messages: 1e-6 and 1e+300 instead of the server's 0.000001 and 1e300.
- In the server's text a DECIMAL of less than 0.00001 looks like a double, so it is written as a double.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, copy, put8, u8
from changefeed.native.numbers import put_shortest

OPAQUE = 15
DOCUMENT_TEXT = 245
"""The type of an opaque value that is the text of a document."""
_HEADER = 11
"""Bytes before the text: a length of 4, the opaque scalar's type, its own type, and a length of five 7-bit groups."""

_QUOTE, _SPACE, _BACKSLASH, _MINUS, _POINT, _E = 34, 32, 92, 45, 46, 101
_DOUBLE_DIGITS = 17
"""The most digits in the shortest form of a double."""


@inline
def _end_of_number(data: Bytes, start: int, end: int) -> int:
    while start < end:
        byte = u8(data, start)
        if not (48 <= byte <= 57 or byte == _POINT or byte == _MINUS or byte == 43 or byte == _E or byte == 69):
            break
        start += 1
    return start


@inline
def _put_number(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write the number ``data[start:end]``: a double in the format of messages, any other number unchanged."""
    here = start
    if u8(data, here) == _MINUS:
        here += 1
    digits = 0
    count = 0
    scale = 0
    is_fraction = False
    while here < end:
        byte = u8(data, here)
        if byte == _POINT:
            is_fraction = True
        elif 48 <= byte <= 57:
            if count < _DOUBLE_DIGITS:
                digits = digits * 10 + byte - 48
            if digits > 0:
                count += 1
            if is_fraction:
                scale += 1
        else:
            break
        here += 1
    exponent = 0
    has_exponent = here < end
    if has_exponent:
        here += 1
        down = here < end and u8(data, here) == _MINUS
        while here < end:
            digit = u8(data, here) - 48
            if 0 <= digit <= 9 and exponent < 1000:
                exponent = exponent * 10 + digit
            here += 1
        if down:
            exponent = -exponent
    is_decimal = scale > 1 and u8(data, end - 1) == 48 and not has_exponent
    if not (is_fraction or has_exponent) or is_decimal or digits == 0 or count > _DOUBLE_DIGITS:
        copy(out, at, data, start, end - start)
        return at + end - start
    exponent -= scale
    while digits % 10 == 0:
        digits //= 10
        exponent += 1
    if u8(data, start) == _MINUS:
        put8(out, at, _MINUS)
        at += 1
    return put_shortest(out, at, digits, exponent)


@inline
def put_json_image(out: Bytes, at: int, data: Bytes, start: int, end: int) -> int:
    """Write the image of the document ``data[start:end]``; returns the image's end.

    The image has at most a few more bytes than four times the text: `1e15` becomes `1000000000000000.0`.
    """
    begin = at
    at += _HEADER
    inside = False
    while start < end:
        byte = u8(data, start)
        if inside:
            if byte == _BACKSLASH and start + 1 < end:
                put8(out, at, byte)
                at += 1
                start += 1
                byte = u8(data, start)
            elif byte == _QUOTE:
                inside = False
        elif byte == _QUOTE:
            inside = True
        elif byte == _SPACE:
            start += 1
            continue
        elif byte == _MINUS or 48 <= byte <= 57:
            stop = _end_of_number(data, start, end)
            at = _put_number(out, at, data, start, stop)
            start = stop
            continue
        put8(out, at, byte)
        at += 1
        start += 1
    size = at - begin - _HEADER
    for index in range(4):
        put8(out, begin + index, (size + _HEADER - 4) >> (8 * index))
    put8(out, begin + 4, OPAQUE)
    put8(out, begin + 5, DOCUMENT_TEXT)
    for index in range(5):
        put8(out, begin + 6 + index, (size >> (7 * index)) & 127 | (128 if index < 4 else 0))
    return at
