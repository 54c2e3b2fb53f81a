"""Converts rows of a SELECT, as a server sends them for a prepared statement, into row images as in its binlog.

- A packet: size u24, number u8, body; a body of 16,777,215 bytes continues in the next packet.
- A row's body: 0, a bit for each column (1: NULL; two unused bits come first), then the values that are not NULL.
- Values: numbers are as in a row image, dates and times are fields, DECIMAL and JSON are text, strings follow a packed
  length.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html,
https://mariadb.com/kb/en/resultset-row/
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.decimal_text import put_decimal_image
from changefeed.binlog.kernel.faults import RESULT_ROW, SHORT
from changefeed.binlog.kernel.json_text import put_json_image
from changefeed.binlog.kernel.temporal import days_since_1970
from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, copy, little_endian, put8, u8, u16, u32
from changefeed.native.span import length, span

# --- words of the state
AT, FILLED, OUT, ROWS = 0, 1, 2, 3
"""Address of the next packet; size of the input; address of the next image; number of rows that were converted."""
STATE_WORDS = 4

# --- a column, COLUMN words: how the server sends its values, and two parameters a and b
COLUMN = 3
FIXED = 1
"""A number of a bytes, little-endian; its lowest b bytes are the value."""
YEAR = 2
"""A u16."""
STRING = 3
"""A string. a: the size in bytes of its length in the image."""
BITS = 4
"""A string that has a bytes in the image."""
DECIMAL = 5
"""Text of a DECIMAL(a, b)."""
DATE = 6
DATETIME = 7
"""a: digits of the fraction, here and in the next two kinds."""
TIMESTAMP = 8
"""In a session whose time zone is UTC."""
TIME = 9
JSON = 10
"""The text of a document."""

# --- the codes that `convert_rows` returns; faults are negative
MORE, ROOM, END, REFUSED = 1, 2, 3, 4
"""MORE: the input ends inside a packet. ROOM: the output has no room for the next row. END: all rows are converted.
REFUSED: the next packet is an error of the server."""

_LARGEST = 0xFFFFFF
_COLUMN_ROOM = 16
"""The most bytes by which a column's value in an image is larger than in its packet."""
_JSON_GROWTH = 4
"""The factor by which a document's text may be longer in an image: see `json_text`."""


@inline
def _sum_of_packets(data: Bytes, at: int, filled: int) -> int:
    """The end of the packets of one body, the first of which is at ``at``; -1 while they are incomplete."""
    size = _LARGEST
    while size == _LARGEST:
        if filled - at < 4:
            return -1
        size = u16(data, at) | u8(data, at + 2) << 16
        at += 4 + size
    return at if at <= filled else -1


@inline
def _join(data: Bytes, at: int, stop: int) -> int:
    """Remove the packet headers between the parts of a body; returns the body's new end."""
    end = at + 4 + _LARGEST
    here = end
    while here < stop:
        size = u16(data, here) | u8(data, here + 2) << 16
        for index in range(size):
            put8(data, end + index, u8(data, here + 4 + index))
        end += size
        here += 4 + size
    return end


@inline
def _put_big_endian(out: Bytes, at: int, value: int, width: int) -> int:
    for index in range(width):
        put8(out, at + index, value >> (8 * (width - 1 - index)))
    return at + width


@inline
def _put_fraction(out: Bytes, at: int, micros: int, digits: int) -> int:
    width = (digits + 1) >> 1
    for _ in range(3 - width):
        micros //= 100
    return _put_big_endian(out, at, micros, width)


@inline
def _put_date_and_time(out: Bytes, at: int, data: Bytes, start: int, size: int, kind: int, digits: int) -> int:
    """Write a DATE, DATETIME or TIMESTAMP that was received in ``size`` bytes; returns the new end.

    Fields: year u16, month, day, hour, minute, second, microseconds u32. The server omits fields at the end that are 0.
    """
    year = u16(data, start) if size >= 4 else 0
    month = u8(data, start + 2) if size >= 4 else 0
    day = u8(data, start + 3) if size >= 4 else 0
    if kind == DATE:
        packed = year << 9 | month << 5 | day
        put8(out, at, packed)
        put8(out, at + 1, packed >> 8)
        put8(out, at + 2, packed >> 16)
        return at + 3
    hour = u8(data, start + 4) if size >= 7 else 0
    minute = u8(data, start + 5) if size >= 7 else 0
    second = u8(data, start + 6) if size >= 7 else 0
    micros = u32(data, start + 7) if size >= 11 else 0
    if kind == DATETIME:
        fields = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
        at = _put_big_endian(out, at, fields | 1 << 39, 5)
    else:
        seconds = 0
        if year > 0:
            seconds = days_since_1970(year, month, day) * 86400 + (hour * 60 + minute) * 60 + second
        at = _put_big_endian(out, at, seconds, 4)
    return _put_fraction(out, at, micros, digits)


@inline
def _put_time(out: Bytes, at: int, data: Bytes, start: int, size: int, digits: int) -> int:
    """Write a TIME that was received in ``size`` bytes; returns the new end.

    Fields: 1 if the value is negative, days u32, hour, minute, second, microseconds u32.
    """
    packed = 0
    width = (digits + 1) >> 1
    if size >= 8:
        hours = u32(data, start + 1) * 24 + u8(data, start + 5)
        micros = u32(data, start + 8) if size >= 12 else 0
        for _ in range(3 - width):
            micros //= 100
        packed = (hours << 12 | u8(data, start + 6) << 6 | u8(data, start + 7)) << (8 * width) | micros
        if u8(data, start) != 0:
            packed = -packed
    return _put_big_endian(out, at, packed + (0x800000 << (8 * width)), 3 + width)


@inline
def _is_temporal_size(kind: int, size: int) -> bool:
    if kind == TIME:
        return size == 0 or size == 8 or size == 12
    return size == 0 or size == 4 or size == 7 or size == 11


@inline
def _put_string(out: Bytes, at: int, data: Bytes, start: int, size: int, prefix: int) -> int:
    if prefix < 4 and size >= 1 << (8 * prefix):
        return RESULT_ROW
    for index in range(prefix):
        put8(out, at + index, size >> (8 * index))
    copy(out, at + prefix, data, start, size)
    return at + prefix + size


@inline
def _put_bits(out: Bytes, at: int, data: Bytes, start: int, size: int, width: int) -> int:
    if size > width:
        return RESULT_ROW
    for index in range(width - size):
        put8(out, at + index, 0)
    copy(out, at + width - size, data, start, size)
    return at + width


@inline
def _put_image(out: Bytes, at: int, data: Bytes, start: int, end: int, columns: Words) -> int:
    """Write the image of the row whose body is ``data[start:end]``; the image's end, or a fault."""
    count = length(columns) // COLUMN
    nulls = start + 1
    start = nulls + ((count + 9) >> 3)
    if start > end:
        return SHORT
    for index in range((count + 7) >> 3):
        byte = u8(data, nulls + index) >> 2
        if nulls + index + 1 < start:
            byte |= u8(data, nulls + index + 1) << 6
        put8(out, at + index, byte)
    at += (count + 7) >> 3
    for column in range(count):
        if (u8(data, nulls + ((column + 2) >> 3)) >> ((column + 2) & 7)) & 1:
            continue
        kind = columns[COLUMN * column]
        a = columns[COLUMN * column + 1]
        b = columns[COLUMN * column + 2]
        if kind == FIXED or kind == YEAR:
            size = 2 if kind == YEAR else a
        else:
            if start >= end:
                return SHORT
            size = u8(data, start)
            start += 1
            if size > 250:
                width = 2 if size == 252 else 3 if size == 253 else 8
                if size == 251 or size == 255 or width > end - start:
                    return RESULT_ROW
                size = little_endian(data, start, width)
                start += width
        if size < 0 or size > end - start:
            return SHORT
        if kind == FIXED:
            copy(out, at, data, start, b)
            at += b
        elif kind == YEAR:
            year = u16(data, start)
            if a == 2:  # MariaDB sends only two digits of YEAR(2)
                year += 2000 if year < 70 else 1900
            put8(out, at, year - 1900 if year > 0 else 0)
            at += 1
        elif kind == STRING:
            at = _put_string(out, at, data, start, size, a)
        elif kind == DECIMAL:
            at = put_decimal_image(out, at, data, start, start + size, a, b)
        elif kind == JSON:
            at = put_json_image(out, at, data, start, start + size)
        elif kind == BITS:
            at = _put_bits(out, at, data, start, size, a)
        elif not _is_temporal_size(kind, size):
            return RESULT_ROW
        elif kind == TIME:
            at = _put_time(out, at, data, start, size, a)
        else:
            at = _put_date_and_time(out, at, data, start, size, kind, a)
        if at < 0:
            return at
        start += size
    return at if start == end else RESULT_ROW


@entry("int64(uint8[::1], int64[::1], int64[::1], uint8[::1])")
def convert_rows(data: Bytes, state: Words, columns: Words, out: Bytes) -> int:
    """Write the images of the rows in ``data`` to ``out``; returns a code or a fault.

    Reading begins at state[AT], writing at state[OUT]. Afterwards state[AT] is the address of the packet that the code
    is about, or after END the address after the last packet.
    """
    data, state, columns, out = span(data), span(state), span(columns), span(out)
    row_room = length(columns) // COLUMN * _COLUMN_ROOM + 8
    growth = 1
    for column in range(0, length(columns), COLUMN):
        if columns[column] == JSON:
            growth = _JSON_GROWTH
    while True:
        at = state[AT]
        stop = _sum_of_packets(data, at, state[FILLED])
        if stop < 0 or stop == at + 4:
            return MORE if stop < 0 else RESULT_ROW
        first = u8(data, at + 4)
        if first == 0xFE and stop - at < 13:
            state[AT] = stop
            return END
        if first == 0xFF:
            return REFUSED
        if first != 0:
            return RESULT_ROW
        if state[OUT] + (stop - at) * growth + row_room > length(out):
            return ROOM
        end = stop
        if stop - at > 4 + _LARGEST:
            end = _join(data, at, stop)
        image_end = _put_image(out, state[OUT], data, at + 4, end, columns)
        if image_end < 0:
            return image_end
        state[OUT] = image_end
        state[ROWS] += 1
        state[AT] = stop
