"""Finds the ends of the parts of a JSON text.

Each function returns the index after its part, or -1 for invalid JSON. Spaces between parts count as invalid, because
messages have none. Nesting deeper than DEEPEST is invalid, too.
Source: https://www.rfc-editor.org/rfc/rfc8259
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, u8, u32

DEEPEST = 60

_QUOTE, _BACKSLASH, _COMMA, _COLON = 34, 92, 44, 58
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_ARRAY, _CLOSE_ARRAY = 123, 125, 91, 93
_NULL, _TRUE, _ALSE = (int.from_bytes(word, "little") for word in (b"null", b"true", b"alse"))


@inline
def is_null(data: Bytes, start: int, end: int) -> bool:
    """Whether the value is null."""
    return end - start == 4 and u32(data, start) == _NULL


@inline
def end_of_string(data: Bytes, at: int, end: int) -> int:
    """The end of a string, whose quote is at ``at``."""
    at += 1
    while at < end:
        byte = u8(data, at)
        if byte == _QUOTE:
            return at + 1
        if byte < 32:
            return -1
        if byte == _BACKSLASH:
            at = _end_of_escape(data, at + 1, end)
        elif byte < 128:
            at += 1
        else:
            at = _end_of_character(data, at, end)
        if at < 0:
            return -1
    return -1


@inline
def _end_of_escape(data: Bytes, at: int, end: int) -> int:
    if at >= end:
        return -1
    byte = u8(data, at)
    if byte == 117:  # u and four hex digits
        if at + 5 > end:
            return -1
        for index in range(at + 1, at + 5):
            digit = u8(data, index)
            if not (48 <= digit <= 57 or 65 <= digit <= 70 or 97 <= digit <= 102):
                return -1
        return at + 5
    is_known = byte == _QUOTE or byte == _BACKSLASH or byte == 47  # and one of bfnrt
    is_known = is_known or byte == 98 or byte == 102 or byte == 110 or byte == 114 or byte == 116
    return at + 1 if is_known else -1


@inline
def _end_of_character(data: Bytes, at: int, end: int) -> int:
    """The end of a character of two to four bytes of UTF-8."""
    lead = u8(data, at)
    size = 0
    if 0xC2 <= lead <= 0xDF:
        size = 2
    elif 0xE0 <= lead <= 0xEF:
        size = 3
    elif 0xF0 <= lead <= 0xF4:
        size = 4
    if size == 0 or at + size > end:
        return -1
    second = u8(data, at + 1)
    if (
        (lead == 0xE0 and second < 0xA0)
        or (lead == 0xED and second > 0x9F)
        or (lead == 0xF0 and second < 0x90)
        or (lead == 0xF4 and second > 0x8F)
    ):
        return -1
    for index in range(at + 1, at + size):
        if u8(data, index) & 0xC0 != 0x80:
            return -1
    return at + size


@inline
def _end_of_digits(data: Bytes, at: int, end: int) -> int:
    """The end of a sequence of at least one digit."""
    begin = at
    while at < end and 48 <= u8(data, at) <= 57:
        at += 1
    return at if at > begin else -1


@inline
def _end_of_scalar(data: Bytes, at: int, end: int) -> int:
    """The end of a number, or of null, true or false."""
    byte = u8(data, at)
    if byte == 110 or byte == 116:
        is_word = at + 4 <= end and (u32(data, at) == _NULL or u32(data, at) == _TRUE)
        return at + 4 if is_word else -1
    if byte == 102:
        return at + 5 if at + 5 <= end and u32(data, at + 1) == _ALSE else -1
    if byte == 45:
        at += 1
    if at < end and u8(data, at) == 48:
        at += 1
    else:
        at = _end_of_digits(data, at, end)
    if at > 0 and at < end and u8(data, at) == 46:
        at = _end_of_digits(data, at + 1, end)
    if at > 0 and at < end and (u8(data, at) == 101 or u8(data, at) == 69):
        at += 1
        if at < end and (u8(data, at) == 43 or u8(data, at) == 45):
            at += 1
        at = _end_of_digits(data, at, end)
    return at


@inline
def end_of_name(data: Bytes, at: int, end: int) -> int:
    """The end of a member's name and its colon."""
    if at >= end or u8(data, at) != _QUOTE:
        return -1
    at = end_of_string(data, at, end)
    return at + 1 if 0 <= at < end and u8(data, at) == _COLON else -1


@inline
def end_of_value(data: Bytes, at: int, end: int) -> int:
    """The end of a value of any kind."""
    depth = 0
    kinds = 0  # a bit for each open object (1) or array (0); the innermost is the lowest bit
    while True:
        if at >= end:
            return -1
        byte = u8(data, at)
        if byte == _OPEN_OBJECT or byte == _OPEN_ARRAY:
            if depth == DEEPEST:
                return -1
            is_object = 1 if byte == _OPEN_OBJECT else 0
            kinds = kinds << 1 | is_object
            depth += 1
            at += 1
            if at >= end or u8(data, at) != byte + 2:  # a closing bracket's code is the opening bracket's plus 2
                if is_object == 1:
                    at = end_of_name(data, at, end)
                    if at < 0:
                        return -1
                continue
        else:
            at = end_of_string(data, at, end) if byte == _QUOTE else _end_of_scalar(data, at, end)
            if at < 0:
                return -1
        more = False
        while depth > 0 and not more:
            if at >= end:
                return -1
            byte = u8(data, at)
            at += 1
            if byte == (_CLOSE_OBJECT if kinds & 1 == 1 else _CLOSE_ARRAY):
                kinds >>= 1
                depth -= 1
            elif byte == _COMMA:
                more = True
            else:
                return -1
        if depth == 0:
            return at
        if kinds & 1 == 1:
            at = end_of_name(data, at, end)
            if at < 0:
                return -1


@inline
def next_member(data: Bytes, at: int, end: int) -> int:
    """The begin of an object's next member, or ``end`` if the object and the text end at ``at``, or -1.

    ``at`` is after the object's opening bracket or after a value."""
    if at >= end:
        return -1
    byte = u8(data, at)
    if byte == _CLOSE_OBJECT:
        return end if at + 1 == end else -1
    is_first = u8(data, at - 1) == _OPEN_OBJECT
    if byte == _COMMA and not is_first:
        return at + 1 if at + 1 < end else -1
    return at if byte == _QUOTE and is_first else -1
