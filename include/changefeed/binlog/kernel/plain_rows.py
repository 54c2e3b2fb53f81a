"""Parses rows that the kernel wrote as JSON: the address of each value, and the values of a column as an array.

The kernel writes these rows in the format of `transforms.plain_rows`. The fields of a row, with SEPARATOR between them:

- op, file, position, row, server_id, seconds, microseconds, thread, row of the statement;
- for some tables type, size, end and flags of the event, and the xid;
- the before image and the after image.
"""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Ends, Words, copy, put8, u8
from changefeed.native.span import length, span

SEPARATOR = 0x1E
"""The record separator of ASCII, which JSON text has only as an escape."""

# --- the properties of a row besides its images, FACTS words
OP, POSITION, ROW, SERVER_ID, SECONDS, MICROS, THREAD, STATEMENT_ROW = 0, 1, 2, 3, 4, 5, 6, 7
"""OP is the ASCII code of the op's letter."""
EVENT_TYPE, EVENT_SIZE, EVENT_END, EVENT_FLAGS = 8, 9, 10, 11
XID, XID_SIZE = 12, 13
"""Address and size of the xid as a JSON string; size 0 without an xid."""
ID, ID_SIZE, GTID, GTID_SIZE = 14, 15, 16, 17
"""Address and size of the event id up to the row's number, and of the GTID."""
TABLE = 18
"""Set by the caller: the address of the table header by which the row's messages are written."""
PART = 19
"""Set by the caller: the index of this change, from 0, among the changes that functions made of one row."""
XID_COUNTED = 20
"""Set by the caller: the size of the xid in a binary notation, whose text comes after the one in quotes."""
FACTS = 21

NULL, ABSENT = -1, -2
"""Instead of an address: the column is NULL, or the image does not have it."""

# --- classes of values; `classes` returns the sum of those that occur in a column
TEXT, ESCAPED, INTEGER, NUMBER, FLAG, NESTED = 1, 2, 4, 8, 16, 32
"""A string without escapes; a string with escapes; an integer; a number with a fraction or an exponent; true or false;
an object or an array."""

UNLIKE = 1
"""What `scan`, `texts` and others return for text of another form."""

_QUOTE, _BACKSLASH, _COMMA, _MINUS = 34, 92, 44, 45


@inline
def _number(data: Bytes, at: int, end: int) -> int:
    """The number whose digits are ``data[at:end]``; 0 if they are not all digits."""
    value = 0
    for index in range(at, end):
        digit = u8(data, index) - 48
        if digit < 0 or digit > 9:
            return 0
        value = value * 10 + digit
    return value


@inline
def _field_end(data: Bytes, at: int, end: int) -> int:
    while at < end and u8(data, at) != SEPARATOR:
        at += 1
    return at


@inline
def _string_end(data: Bytes, at: int, end: int) -> int:
    """The end of the string that begins at ``at``."""
    at += 1
    while at < end and u8(data, at) != _QUOTE:
        at += 2 if u8(data, at) == _BACKSLASH else 1
    return at + 1


@inline
def _value_end(data: Bytes, at: int, end: int) -> int:
    """The end of the JSON value that begins at ``at``."""
    first = u8(data, at)
    if first == _QUOTE:
        return _string_end(data, at, end)
    depth = 0
    while at < end:
        byte = u8(data, at)
        if byte == _QUOTE:
            at = _string_end(data, at, end)
            continue
        if byte == 123 or byte == 91:
            depth += 1
        elif byte == 125 or byte == 93:
            if depth == 0:
                return at
            depth -= 1
            if depth == 0:
                return at + 1
        elif byte == _COMMA and depth == 0:
            return at
        at += 1
    return at


@inline
def _take_image(
    data: Bytes, at: int, end: int, names: Bytes, name_ends: Ends, cells: Words, first: int, rows: int, sizes: int
) -> int:
    """Read the object at ``at``: write the address of each value to every ``rows``-th cell from ``first`` on.

    Returns 0 or UNLIKE.
    """
    columns = length(name_ends)
    if u8(data, at) != 123:  # the row does not have this image
        for column in range(columns):
            cells[first + column * rows] = NULL
        return 0
    at += 1
    name = 0
    for column in range(columns):
        name_end = int(np.int64(name_ends[column]))
        size = name_end - name
        is_there = at + size < end
        index = 0
        while is_there and index < size:
            is_there = u8(data, at + index) == u8(names, name + index)
            index += 1
        name = name_end
        cell = first + column * rows
        if not is_there:
            cells[cell] = ABSENT
            continue
        at += size
        value_end = _value_end(data, at, end)
        cells[cell] = NULL if u8(data, at) == 110 else at
        cells[sizes + cell] = value_end - at
        at = value_end
        if at < end and u8(data, at) == _COMMA:
            at += 1
    return 0 if at == end - 1 and u8(data, at) == 125 else UNLIKE


@entry("int64(uint8[::1], uint32[::1], int64, uint8[::1], uint32[::1], uint8[::1], int64[::1], int64[::1])")
def scan(
    data: Bytes, ends: Ends, has_event: int, names: Bytes, name_ends: Ends, file: Bytes, facts: Words, cells: Words
) -> int:
    """Parse rows, which are the values of messages; returns 0, or UNLIKE for a row of another form.

    A row has another form, for example, if it is of another file or has a column without a name in ``names``.

    Input:
    - ``ends``: four words for each message, as in a block.
    - ``names``: the names of the columns as they are written before values; ``name_ends``: the end of each.
    - ``file``: the name of the binlog file of all rows.

    Output:
    - ``facts``: FACTS words for each row.
    - ``cells``: the addresses of all values, first of the before images, column by column, then of the after images;
      after them the sizes in the same order.
    """
    data, ends, names, name_ends = span(data), span(ends), span(names), span(name_ends)
    file, facts, cells = span(file), span(facts), span(cells)
    rows = length(ends) // 4
    images = length(name_ends) * rows
    for row in range(rows):
        at, end = int(np.int64(ends[4 * row])), int(np.int64(ends[4 * row + 1]))
        fact = row * FACTS
        facts[fact + OP] = u8(data, at)
        at += 2
        field_end = _field_end(data, at, end)
        if field_end - at != length(file):
            return UNLIKE
        for index in range(field_end - at):
            if u8(data, at + index) != u8(file, index):
                return UNLIKE
        at = field_end + 1
        for field in range(POSITION, (EVENT_FLAGS if has_event else STATEMENT_ROW) + 1):
            field_end = _field_end(data, at, end)
            facts[fact + field] = _number(data, at, field_end)
            at = field_end + 1
        facts[fact + XID_SIZE] = 0
        if has_event:
            field_end = _field_end(data, at, end)
            if u8(data, at) == _QUOTE:
                facts[fact + XID] = at
                facts[fact + XID_SIZE] = field_end - at
            at = field_end + 1
        for image in range(2):
            field_end = _field_end(data, at, end)
            if _take_image(data, at, field_end, names, name_ends, cells, image * images + row, rows, 2 * images):
                return UNLIKE
            at = field_end + 1
        begin, end = end, int(np.int64(ends[4 * row + 2]))
        facts[fact + GTID] = end
        facts[fact + GTID_SIZE] = int(np.int64(ends[4 * row + 3])) - end
        while end > begin and u8(data, end - 1) != 47:
            end -= 1
        facts[fact + ID] = begin
        facts[fact + ID_SIZE] = end - begin
    return 0


@entry("int64(uint8[::1], int64[::1], int64[::1])")
def classes(data: Bytes, starts: Words, sizes: Words) -> int:
    """The sum of the classes (TEXT to NESTED) of the values at ``starts``; 0 if all are NULL."""
    data, starts, sizes = span(data), span(starts), span(sizes)
    found = 0
    for row in range(length(starts)):
        at = starts[row]
        if at < 0:
            continue
        end = at + sizes[row]
        first = u8(data, at)
        if first == _QUOTE:
            found |= TEXT
            for index in range(at + 1, end):
                if u8(data, index) == _BACKSLASH:
                    found |= ESCAPED
                    break
        elif first == 116 or first == 102:
            found |= FLAG
        elif first == 123 or first == 91:
            found |= NESTED
        else:
            of_row = INTEGER
            for index in range(at, end):
                byte = u8(data, index)
                if byte == 46 or byte == 69 or byte == 101:
                    of_row = NUMBER
            found |= of_row
    return found


@inline
def _escaped_byte(data: Bytes, at: int) -> int:
    """The character of the escape at ``at``; -1 if it is not ASCII."""
    letter = u8(data, at + 1)
    if letter == 110:
        return 10
    if letter == 116:
        return 9
    if letter == 114:
        return 13
    if letter == 98:
        return 8
    if letter == 102:
        return 12
    if letter != 117:
        return letter
    value = 0
    for index in range(2, 6):
        digit = u8(data, at + index)
        value = value * 16 + (digit - 48 if digit < 58 else (digit | 32) - 87)
    return value if value < 128 else -1


@entry("int64(uint8[::1], int64[::1], int64[::1], int64, uint8[::1], uint32[::1])")
def texts(data: Bytes, starts: Words, sizes: Words, around: int, out: Bytes, offsets: Ends) -> int:
    """Write the values at ``starts`` one after another to ``out``, and their offsets to ``offsets``.

    Returns 0, or UNLIKE for an escape of a character that is not ASCII. ``out`` must have room for all values. The last
    item of ``offsets`` is the end of the last value. ``around`` is the size of the quotes on each side, which are
    omitted; if it is more than 0, escapes are decoded.
    """
    data, starts, sizes, out, offsets = span(data), span(starts), span(sizes), span(out), span(offsets)
    to = 0
    for row in range(length(starts)):
        offsets[row] = to
        if starts[row] < 0:
            continue
        at = starts[row] + around
        end = starts[row] + sizes[row] - around
        plain = at
        if around > 0:
            while plain < end and u8(data, plain) != _BACKSLASH:
                plain += 1
        else:
            plain = end
        copy(out, to, data, at, plain - at)
        to += plain - at
        at = plain
        while at < end:
            byte = u8(data, at)
            size = 1
            if byte == _BACKSLASH:
                size = 6 if u8(data, at + 1) == 117 else 2
                byte = _escaped_byte(data, at)
                if byte < 0:
                    return UNLIKE
            put8(out, to, byte)
            to += 1
            at += size
    offsets[length(starts)] = to
    return 0
