"""Writes the SQL of rows from messages in Debezium's envelope without a schema.

A JSON string is also a string literal of MySQL, except for rare escapes (\\u and \\f), so text is only copied. A
message with an unexpected column, escape or form is not converted; its words are 0, and the caller reads it in Python.
"""

from __future__ import annotations

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, put8, u8, wrap

NUMBER, NATURAL, DOUBLE, QUOTED_NUMBER, UNSCALED, TEXT, LABEL, MOMENT, BASE64, GENERATED, GENERATED_NUMBER = range(11)
"""The form of a column's values in messages.

- NUMBER: digits; NATURAL: digits of a number that is not negative; DOUBLE: a number of any form.
- QUOTED_NUMBER: digits in quotes.
- UNSCALED: a decimal's unscaled bytes in base64. The kind has SCALE times the decimal's scale added.
- TEXT: a string; LABEL: a string that is not empty; MOMENT: date and time with T between them.
- BASE64: bytes in base64.
- GENERATED, GENERATED_NUMBER: generated values, which are not written because the server computes them.
"""
SCALE = 16

BEFORE, AFTER, SOURCE, DATABASE, TABLE, FIXED = range(6)
"""The numbers of the fixed texts of an envelope: before each image, after both, and the database's and table's names.

The texts of the columns have the numbers from FIXED on.
"""

ROW, ROW_END, NEW_KEY, NEW_KEY_END, OLD_KEY, OLD_KEY_END = range(6)
"""The words of a message: begin and end of the row after the change, of its key, and of the key before the change.
All are 0 for a message that is not converted. A missing row or key ends where it begins."""
WORDS = 6
ROOM_OF_VALUE = 64
"""The maximum number of bytes that the SQL of a value needs in addition to its text."""

_QUOTE, _BACKSLASH, _COMMA, _OPEN, _CLOSE, _BRACE, _MINUS = 34, 92, 44, 40, 41, 125, 45
_N, _T, _Z, _E, _UPPER_E, _DOT, _PLUS, _SPACE = 110, 84, 90, 101, 69, 46, 43, 32
_ESCAPES = (34, 92, 98, 110, 114, 116)
_PAD, _SLASH = 61, 47
_DATE = 10
_WRONG = -1


@inline
def _is_next(data: Bytes, at: int, end: int, texts: Bytes, begin: int, stop: int) -> bool:
    if end - at < stop - begin:
        return False
    same = begin
    while same < stop and u8(data, at + same - begin) == u8(texts, same):
        same += 1
    return same == stop


@inline
def _begin(ends: Words, text: int) -> int:
    return ends[text - 1] if text > 0 else 0


@inline
def _is_null(data: Bytes, at: int, end: int) -> bool:
    return end - at >= 4 and u8(data, at) == 110 and u8(data, at + 1) == 117 and u8(data, at + 2) == 108


@inline
def _number(data: Bytes, at: int, end: int, kind: int, out: Bytes, to: int) -> tuple[int, int]:
    begin = at
    exact = True
    while at < end:
        byte = u8(data, at)
        digit = 48 <= byte <= 57
        if not digit and not (byte == _MINUS and kind != NATURAL and (at == begin or kind == DOUBLE)):
            if kind != DOUBLE or byte not in (_DOT, _E, _UPPER_E, _PLUS):
                break
            exact = exact and byte == _DOT
        put8(out, to, byte)
        to += 1
        at += 1
    if at == begin:
        return _WRONG, to
    if kind == DOUBLE and exact:  # without an exponent, the server reads an exact decimal
        put8(out, to, _E)
        put8(out, to + 1, 48)
        to += 2
    return at, to


@inline
def _sextet(byte: int) -> int:
    """The six bits of a base64 character; _WRONG for another character."""
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if 48 <= byte <= 57:
        return byte + 4
    if byte == _PLUS:
        return 62
    return 63 if byte == _SLASH else _WRONG


@inline
def _read_unscaled(data: Bytes, at: int, end: int, scale: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write a decimal of at most eight bytes, whose opening quote is at ``at``. Returns as `_value` does."""
    at += 1
    value = 0
    sextets = 0
    while at < end and u8(data, at) != _QUOTE and u8(data, at) != _PAD:
        bits = _sextet(u8(data, at))
        sextets += 1
        if bits == _WRONG or sextets > 11:
            return _WRONG, to
        value = (value << 4) | (bits >> 2) if sextets == 11 else (value << 6) | bits
        at += 1
    while at < end and u8(data, at) == _PAD:
        at += 1
    size = sextets * 6 // 8
    if at >= end or u8(data, at) != _QUOTE or size == 0:
        return _WRONG, to
    if sextets < 11:
        value >>= sextets * 6 % 8
    value = wrap(value << (64 - 8 * size)) >> (64 - 8 * size)
    if value < 0:
        value = -value
        if value < 0:
            return _WRONG, to
        put8(out, to, _MINUS)
        to += 1
    digits = 1
    rest = value // 10
    while rest > 0 or digits <= scale:
        rest //= 10
        digits += 1
    last = to + digits - 1 + (1 if scale > 0 else 0)
    for digit in range(digits):
        if scale > 0 and digit == scale:
            put8(out, last - digit, _DOT)
        put8(out, last - digit - (1 if digit >= scale and scale > 0 else 0), 48 + value % 10)
        value //= 10
    return at + 1, last + 1


@inline
def _string(data: Bytes, at: int, end: int, kind: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write a string, whose opening quote is at ``at``. Returns as `_value` does."""
    begin = at + 1
    start = to
    put8(out, to, _QUOTE)
    to += 1
    at = begin
    while at < end:
        byte = u8(data, at)
        if byte == _QUOTE:
            if kind == LABEL and at == begin:
                return _WRONG, to
            if kind == MOMENT and at > begin and u8(data, at - 1) == _Z:
                to -= 1
            put8(out, to, _QUOTE)
            to += 1
            if kind == QUOTED_NUMBER:
                if at == begin:
                    return _WRONG, to
                for number in range(at - begin):
                    put8(out, start + number, u8(data, begin + number))
                to = start + at - begin
            return at + 1, to
        if byte == _BACKSLASH:
            if at + 1 >= end or kind == MOMENT:
                return _WRONG, to
            after = u8(data, at + 1)
            if after not in _ESCAPES:
                return _WRONG, to
            put8(out, to, byte)
            put8(out, to + 1, after)
            to += 2
            at += 2
            continue
        if kind == QUOTED_NUMBER and not (48 <= byte <= 57 or byte == _DOT or (byte == _MINUS and at == begin)):
            return _WRONG, to
        if kind == MOMENT and byte == _T and at - begin == _DATE:
            byte = _SPACE
        put8(out, to, byte)
        to += 1
        at += 1
    return _WRONG, to


@inline
def _value(data: Bytes, at: int, end: int, kind: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write the literal of the value at ``at``, and return the end of the value, or _WRONG, and the literal's end."""
    if at >= end:
        return _WRONG, to
    if _is_null(data, at, end):
        for number in range(4):
            put8(out, to + number, u8(data, at + number) - 32)
        return at + 4, to + 4
    if kind in (NUMBER, NATURAL, DOUBLE, GENERATED_NUMBER):
        return _number(data, at, end, DOUBLE if kind == GENERATED_NUMBER else kind, out, to)
    if u8(data, at) != _QUOTE:
        return _WRONG, to
    if kind % SCALE == UNSCALED:
        return _read_unscaled(data, at, end, kind // SCALE, out, to)
    if kind == BASE64:
        for byte in (70, 82, 79, 77, 95, 66, 65, 83, 69, 54, 52, 40):  # FROM_BASE64(
            put8(out, to, byte)
            to += 1
        at, to = _string(data, at, end, TEXT, out, to)
        put8(out, to, _CLOSE)
        return at, to + 1
    return _string(data, at, end, kind, out, to)


@inline
def _image(
    data: Bytes,
    at: int,
    end: int,
    texts: Bytes,
    ends: Words,
    kinds: Words,
    key_labels: Words,
    out: Bytes,
    to: int,
    keys: Bytes,
    key_to: int,
) -> tuple[int, int, int]:
    """Write a row and its key, and return the end of the image, or _WRONG, and the ends of the row and the key."""
    put8(out, to, _OPEN)
    to += 1
    first = True
    columns = kinds.shape[0]
    for column in range(columns):
        name = FIXED + column
        if not _is_next(data, at, end, texts, _begin(ends, name), ends[name]):
            return _WRONG, to, key_to
        at += ends[name] - _begin(ends, name)
        kind = kinds[column]
        is_written = kind != GENERATED and kind != GENERATED_NUMBER
        before = to
        if is_written and not first:
            put8(out, to, _COMMA)
            to += 1
        begin = to
        at, to = _value(data, at, end, kind, out, to)
        if at == _WRONG:
            return _WRONG, to, key_to
        label = key_labels[column]
        if label >= 0:
            for byte in range(_begin(ends, label), ends[label]):
                put8(keys, key_to, u8(texts, byte))
                key_to += 1
            for byte in range(begin, to):
                put8(keys, key_to, u8(out, byte))
                key_to += 1
        if is_written:
            first = False
        else:
            to = before
    if at >= end or u8(data, at) != _BRACE:
        return _WRONG, to, key_to
    put8(out, to, _CLOSE)
    return at + 1, to + 1, key_to


@inline
def _find(data: Bytes, at: int, end: int, texts: Bytes, begin: int, stop: int, names: int) -> int:
    """The position after the text ``texts[begin:stop]`` in ``data``, or _WRONG.

    It is searched by its first ``names`` bytes, the field's name. If the first field with this name has another value,
    the result is _WRONG.
    """
    while at < end:
        if u8(data, at) == _COMMA and _is_next(data, at, end, texts, begin, begin + names):
            return at + stop - begin if _is_next(data, at, end, texts, begin, stop) else _WRONG
        at += 1
    return _WRONG


@entry(
    "int64(uint8[::1], int64[::1], uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], uint8[::1], "
    "int64[::1])"
)
def put_rows(
    data: Bytes,
    values: Words,
    texts: Bytes,
    ends: Words,
    names: Words,
    kinds: Words,
    key_labels: Words,
    out: Bytes,
    keys: Bytes,
    words: Words,
) -> int:
    """Write the SQL of the messages at ``values`` in ``data``, and return the number of converted messages.

    - ``values``: the begin and the end of each message.
    - ``texts``: the FIXED texts, the text before each column's value, and the labels of keys; they end at ``ends``.
    - ``names``: the length of the field's name in the texts of DATABASE and TABLE.
    - ``kinds``: the kinds of the columns.
    - ``key_labels``: by column, the number of the text before its value in a key; -1 for a column outside the key.
    - ``out``: receives the rows, separated by commas. ``keys`` receives the keys. Both need room for the values, plus
      ROOM_OF_VALUE for each column (and its label).
    - ``words``: receives the words of each message.
    """
    to = 0
    key_to = 0
    created = 0
    for index in range(values.shape[0] // 2):
        at, end = values[2 * index], values[2 * index + 1]
        row = to
        word = index * WORDS
        for number in range(WORDS):
            words[word + number] = 0
        if not _is_next(data, at, end, texts, 0, ends[BEFORE]):
            continue
        at += ends[BEFORE]
        old = key_to
        old_end = key_to
        has_before = not _is_null(data, at, end)
        if has_before:
            at, _, old_end = _image(data, at, end, texts, ends, kinds, key_labels, out, to, keys, key_to)
            if at == _WRONG:
                continue
        else:
            at += 4
        if not _is_next(data, at, end, texts, ends[BEFORE], ends[AFTER]):
            continue
        at += ends[AFTER] - ends[BEFORE]
        new = old_end
        new_end = old_end
        has_after = not _is_null(data, at, end)
        if has_after:
            at, to, new_end = _image(data, at, end, texts, ends, kinds, key_labels, out, to, keys, old_end)
            if at == _WRONG:
                to = row
                continue
        else:
            at += 4
        is_ours = (has_before or has_after) and _is_next(data, at, end, texts, ends[AFTER], ends[SOURCE])
        if is_ours:
            at = _find(data, at, end, texts, ends[SOURCE], ends[DATABASE], names[0])
            if at != _WRONG:
                at = _find(data, at, end, texts, ends[DATABASE], ends[TABLE], names[1])
        if not is_ours or at == _WRONG:
            to = row
            continue
        words[word + ROW], words[word + ROW_END] = row, to
        words[word + OLD_KEY], words[word + OLD_KEY_END] = old, old_end
        words[word + NEW_KEY], words[word + NEW_KEY_END] = new, new_end
        key_to = new_end
        if has_after:
            put8(out, to, _COMMA)
            to += 1
        created += 1
    return created
