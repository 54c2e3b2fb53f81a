"""Text of any charset as valid UTF-8, with the escapes of a JSON string where the text is inside one.

UTF-8 passes through; each byte that does not belong to a valid sequence becomes U+FFFD. Other charsets go through
tables of code points that `events.charsets` builds; UTF-16 and UTF-32 are computed.

``level`` is the number of JSON strings around the text. It is 0 outside of JSON and 1 in a JSON string. It is 2 in a
string of a JSON document that is itself a JSON string: there each escape is escaped again.
"""

# ruff: noqa: SIM108 - a kernel reads more easily as branches
from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel.faults import FULL
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, copy, i64, put8, put16, put32, put64, u8

_ROOM = 24
"""The room for one character: its most bytes, and a few more."""

UNDEFINED = -2
LEAD2 = -1
LEAD3 = -3
LEAD4 = -4
UNMAPPED = -5
"""Entries of a code table that are not code points. UNDEFINED: no character. LEAD2: the first byte of a character of
two bytes. LEAD3: of three bytes (0x8F ...). LEAD4: of two or four bytes (GB18030). UNMAPPED: a character that Unicode
does not have."""

GB18030_FOUR = 65536
"""The index of the four-byte characters in GB18030's table."""
GB18030_BMP = 39420
"""The number of four-byte characters in the basic plane; the others are U+10000 and the code points after it, in
order."""


def _escapes() -> Bytes:
    """For levels 1 and 2 and each of 128 characters: the length of its escape (0 without an escape), and the escape."""
    table = np.zeros(2 * 128 * 8, np.uint8)
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
    for code in range(128):
        escape = short.get(code) or (f"\\u{code:04x}" if code < 32 else "")
        for level in (0, 1):
            text = escape.replace("\\", "\\\\").replace('"', '\\"') if level else escape
            at = (level * 128 + code) * 8
            table[at] = len(text)
            table[at + 1 : at + 1 + len(text)] = list(text.encode())
    return table


_ESCAPES = _escapes()
_BEYOND_ASCII = -9187201950435737472
"""The highest bit of each of eight bytes."""


@inline
def _is_plain(word: int) -> bool:
    """True only if none of eight bytes needs an escape or is not ASCII. It can be False although no byte does."""
    quotes = word ^ 0x2222222222222222
    slashes = word ^ 0x5C5C5C5C5C5C5C5C
    low = word - 0x2020202020202020
    bits = low | (quotes - 0x0101010101010101) | (slashes - 0x0101010101010101) | word
    return (bits & _BEYOND_ASCII) == 0


@inline
def put_ascii(out: Bytes, at: int, code: int, level: int) -> int:
    """Write one ASCII character, with an escape if JSON needs one."""
    if level == 0:
        put8(out, at, code)
        return at + 1
    entry = ((level - 1) * 128 + code) * 8
    length = u8(_ESCAPES, entry)
    if length == 0:
        put8(out, at, code)
        return at + 1
    copy(out, at, _ESCAPES, entry + 1, length)
    return at + length


@inline
def put_code(out: Bytes, at: int, code: int, level: int) -> int:
    """Write one code point; U+FFFD for a number that is no code point."""
    if 0 <= code < 0x80:
        return put_ascii(out, at, code, level)
    if code < 0 or code > 0x10FFFF or (0xD800 <= code < 0xE000):
        code = 0xFFFD
    if code < 0x800:
        put16(out, at, (0xC0 | code >> 6) | (0x80 | code & 63) << 8)
        return at + 2
    if code < 0x10000:
        put16(out, at, (0xE0 | code >> 12) | (0x80 | (code >> 6) & 63) << 8)
        put8(out, at + 2, 0x80 | code & 63)
        return at + 3
    put32(
        out,
        at,
        (0xF0 | code >> 18)
        | (0x80 | (code >> 12) & 63) << 8
        | (0x80 | (code >> 6) & 63) << 16
        | (0x80 | code & 63) << 24,
    )
    return at + 4


@inline
def sequence_length(data: Bytes, at: int, end: int) -> int:
    """Length of the valid UTF-8 sequence of two or more bytes at ``at``; 0 if the bytes are no such sequence."""
    first = u8(data, at)
    if first < 0xC2 or first > 0xF4 or at + 1 >= end:
        return 0
    second = u8(data, at + 1)
    if second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if at + 2 >= end or u8(data, at + 2) & 0xC0 != 0x80:
        return 0
    if first < 0xF0:
        if (first == 0xE0 and second < 0xA0) or (first == 0xED and second > 0x9F):
            return 0
        return 3
    if at + 3 >= end or u8(data, at + 3) & 0xC0 != 0x80:
        return 0
    if (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F):
        return 0
    return 4


@inline
def is_utf8(data: Bytes, start: int, end: int) -> bool:
    """Whether ``data[start:end]`` is valid UTF-8."""
    while start < end:
        if u8(data, start) < 0x80:
            start += 1
            continue
        length = sequence_length(data, start, end)
        if length == 0:
            return False
        start += length
    return True


@inline
def put_utf8(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, level: int) -> int:
    """Write UTF-8 text; FULL if ``out[:room]`` is too small."""
    while start < end:
        while start + 8 <= end and at + 8 <= room:
            word = i64(data, start)
            if not _is_plain(word):
                break
            put64(out, at, word)
            start += 8
            at += 8
        if start >= end:
            break
        if at + _ROOM + 64 > room:
            return FULL
        stop = min(end, start + 8)
        while start < stop:
            first = u8(data, start)
            if first < 0x80:
                at = put_ascii(out, at, first, level)
                start += 1
                continue
            length = sequence_length(data, start, end)
            if length == 0:
                at = put_code(out, at, 0xFFFD, level)
                start += 1
                continue
            for index in range(length):
                put8(out, at + index, u8(data, start + index))
            at += length
            start += length
    return at


@inline
def put_plain_utf8(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int) -> int:
    """Write UTF-8 text outside of JSON: only invalid bytes are replaced; FULL if ``out[:room]`` is too small."""
    while start < end:
        while start + 8 <= end and at + 8 <= room:
            word = i64(data, start)
            if (word & _BEYOND_ASCII) != 0:
                break
            put64(out, at, word)
            start += 8
            at += 8
        if start >= end:
            break
        if at + _ROOM + 8 > room:
            return FULL
        stop = min(end, start + 8)
        while start < stop:
            first = u8(data, start)
            if first < 0x80:
                put8(out, at, first)
                at += 1
                start += 1
                continue
            length = sequence_length(data, start, end)
            if length == 0:
                at = put_code(out, at, 0xFFFD, 0)
                start += 1
                continue
            for index in range(length):
                put8(out, at + index, u8(data, start + index))
            at += length
            start += length
    return at


@inline
def put_table(
    out: Bytes,
    at: int,
    room: int,
    data: Bytes,
    start: int,
    end: int,
    words: Words,
    table: int,
    ascii_like: int,
    level: int,
) -> int:
    """Write text of a charset with a table of code points at ``words[table]``."""
    while start < end:
        if ascii_like != 0:
            while start + 8 <= end and at + 8 <= room:
                word = i64(data, start)
                if not _is_plain(word):
                    break
                put64(out, at, word)
                start += 8
                at += 8
            if start >= end:
                break
        if at + _ROOM > room:
            return FULL
        first = u8(data, start)
        code = words[table + first]
        used = 1
        if code < 0 and code != UNDEFINED and start + 1 < end:
            second = u8(data, start + 1)
            used = 2
            if code == LEAD3:
                code = UNDEFINED
                if start + 2 < end:
                    used = 3
                    code = words[table + 65536 + (second << 8 | u8(data, start + 2))]
            elif code == LEAD4 and 0x30 <= second <= 0x39:
                code = UNDEFINED
                third = u8(data, start + 2) if start + 3 < end else 0
                fourth = u8(data, start + 3) if start + 3 < end else 0
                if 0x81 <= third <= 0xFE and 0x30 <= fourth <= 0x39:
                    used = 4
                    code = UNMAPPED
                    linear = (((first - 0x81) * 10 + second - 0x30) * 126 + third - 0x81) * 10 + fourth - 0x30
                    if linear < GB18030_BMP:
                        code = words[table + GB18030_FOUR + linear]
                    elif 189000 <= linear < 189000 + 0x100000:
                        code = 0x10000 + linear - 189000
            else:
                code = words[table + (first << 8 | second)]
            if code == UNDEFINED:
                used = 1  # continue at the next byte: a character may begin there
        at = put_code(out, at, code, level)
        start += used
    return at


@inline
def put_utf16(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, little: int, level: int) -> int:
    """Write UTF-16 or UCS-2 text, big-endian unless ``little``."""
    while start < end:
        if at + _ROOM > room:
            return FULL
        if start + 2 > end:
            return put_code(out, at, 0xFFFD, level)
        if little == 0:
            code = u8(data, start) << 8 | u8(data, start + 1)
        else:
            code = u8(data, start + 1) << 8 | u8(data, start)
        start += 2
        if 0xD800 <= code < 0xDC00 and start + 2 <= end:
            if little == 0:
                low = u8(data, start) << 8 | u8(data, start + 1)
            else:
                low = u8(data, start + 1) << 8 | u8(data, start)
            if 0xDC00 <= low < 0xE000:
                code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
                start += 2
        at = put_code(out, at, code, level)
    return at


@inline
def put_utf32(out: Bytes, at: int, room: int, data: Bytes, start: int, end: int, level: int) -> int:
    """Write UTF-32 text, big-endian."""
    while start < end:
        if at + _ROOM > room:
            return FULL
        if start + 4 > end:
            return put_code(out, at, 0xFFFD, level)
        code = u8(data, start) << 24 | u8(data, start + 1) << 16 | u8(data, start + 2) << 8 | u8(data, start + 3)
        at = put_code(out, at, code, level)
        start += 4
    return at
