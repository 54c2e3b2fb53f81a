"""A kernel that finds the parts of the records in a Kafka record batch, and parses their event ids.

It copies nothing. Source of the layout: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, u8, wrap
from changefeed.native.same_bytes import is_same
from changefeed.native.span import length, span
from changefeed.native.varint import CUT, read_varint

OFFSET, VALUE, VALUE_END, FIRST, OWN, ROW, GTID, RECORD, RECORD_END, KNOWN, FOREIGN_KEYS = range(11)
"""Words of a record:

- OFFSET: its offset within the batch
- VALUE, VALUE_END: the begin and end of its value; -1 for null
- FIRST, OWN, ROW: the order key of its change, which rises in the order in which the source committed. FIRST and OWN
  are a file's number and a position, ROW is row and step
- GTID: a digest of its GTID
- RECORD, RECORD_END: the begin and end of the record
- KNOWN: whether the order key is known, which it is only for rows in a binlog of the server
- FOREIGN_KEYS: the first byte of the header of foreign keys; 0 without this header"""
ORDER_WORDS = 11
KEY, KEY_END, ID, ID_END, GTID_TEXT, GTID_TEXT_END, ORIGIN_END, POSITION, ROW_NUMBER, STEP, IS_NEW = range(11, 22)
"""Further words:

- KEY to GTID_TEXT_END: the begins and ends of other parts; -1 for null and missing parts
- ORIGIN_END, POSITION, ROW_NUMBER, STEP: the end of the origin, and the numbers, of an event id
  `server_uuid/origin:position/row/step`; -1 for an id of another form
- IS_NEW: whether the text before the position differs from the previous record"""
WORDS = 22
POSITION_BITS, STEP_BITS = 40, 8

_SLASH, _COLON, _DOT, _ZERO = 47, 58, 46, 48
_PRIME = 1099511628211
_NOT_ANY = -1
_MOST_DIGITS = 18


@inline
def _end_of_number(data: Bytes, at: int, end: int) -> int:
    """The end of the digits of a number; _NOT_ANY if there are none, or too many for a word."""
    begin = at
    while at < end and 48 <= u8(data, at) <= 57:
        at += 1
    return at if 0 < at - begin <= _MOST_DIGITS else _NOT_ANY


@inline
def _number(data: Bytes, at: int, end: int) -> int:
    value = 0
    for index in range(at, end):
        value = value * 10 + u8(data, index) - _ZERO
    return value


@inline
def _last(data: Bytes, begin: int, end: int, target: int) -> int:
    """The position of the last ``target``; _NOT_ANY if there is none."""
    at = end - 1
    while at >= begin:
        if u8(data, at) == target:
            return at
        at -= 1
    return _NOT_ANY


@inline
def _file(data: Bytes, begin: int, end: int) -> int:
    """The number of the binlog file with this name, shifted as in FIRST and OWN; _NOT_ANY if the name has none."""
    dot = _last(data, begin, end, _DOT)
    if dot == _NOT_ANY or _end_of_number(data, dot + 1, end) != end:
        return _NOT_ANY
    file = _number(data, dot + 1, end)
    return file << POSITION_BITS if 0 < file < 1 << 22 else _NOT_ANY


@inline
def _coordinates(data: Bytes, begin: int, end: int) -> int:
    """A file's number and a position as one number; _NOT_ANY for other text."""
    colon = _last(data, begin, end, _COLON)
    if colon == _NOT_ANY or _end_of_number(data, colon + 1, end) != end:
        return _NOT_ANY
    file = _file(data, begin, colon)
    position = _number(data, colon + 1, end)
    return file + position if file != _NOT_ANY and position < 1 << POSITION_BITS else _NOT_ANY


@inline
def _read_id(data: Bytes, words: Words, at: int) -> None:
    """Fill in the words of the record's event id. They stay -1 for an id of another form."""
    start = words[at + ID]
    end = words[at + ID_END]
    colon = _last(data, start, end, _COLON)
    if colon <= start:
        return
    position_end = _end_of_number(data, colon + 1, end)
    if position_end < 0 or position_end >= end or u8(data, position_end) != _SLASH:
        return
    row_end = _end_of_number(data, position_end + 1, end)
    if row_end < 0:
        return
    step = 0
    if row_end < end:
        if u8(data, row_end) != _SLASH or _end_of_number(data, row_end + 1, end) != end:
            return
        step = _number(data, row_end + 1, end)
    words[at + ORIGIN_END] = colon
    words[at + POSITION] = _number(data, colon + 1, position_end)
    words[at + ROW_NUMBER] = _number(data, position_end + 1, row_end)
    words[at + STEP] = step


@inline
def _file_of_id(data: Bytes, words: Words, at: int, server: Bytes) -> int:
    """The `_file` in the event id of a record; _NOT_ANY for another server's id, and for a chunk of rows."""
    start = words[at + ID]
    named = start + length(server)
    if named >= words[at + ORIGIN_END] or u8(data, named) != _SLASH:
        return _NOT_ANY
    if not is_same(data, start, named, server, 0, length(server)):
        return _NOT_ANY
    return _file(data, named + 1, words[at + ORIGIN_END])


@inline
def _gtid(data: Bytes, words: Words, at: int, before: int) -> int:
    """A digest of a record's GTID, 0 without one. The digest of the record ``before`` is reused for the same GTID."""
    start, end = words[at + GTID_TEXT], words[at + GTID_TEXT_END]
    digest = 0
    if before >= 0 and is_same(data, start, end, data, words[before + GTID_TEXT], words[before + GTID_TEXT_END]):
        digest = words[before + GTID]
    else:
        for byte in range(start, end):
            digest = wrap((digest ^ u8(data, byte)) * _PRIME)
    return digest


@inline
def _order(words: Words, at: int, file: int, commit: int) -> None:
    """Fill in the order key of a change in ``file``. ``commit`` is the position of a later commit, or 0."""
    position = words[at + POSITION]
    row = words[at + ROW_NUMBER]
    step = words[at + STEP]
    if file == _NOT_ANY or position >= 1 << POSITION_BITS or row >= 1 << 50 or step >= 1 << STEP_BITS:
        return
    words[at + OWN] = file + position
    words[at + FIRST] = file + position if commit == 0 else commit
    words[at + ROW] = (row << STEP_BITS) + step
    words[at + KNOWN] = 1 if commit != _NOT_ANY else 0


@entry("int64(uint8[::1], int64, uint8[::1], uint8[::1], int64[::1], int64[::1])")
def index_records(data: Bytes, count: int, server: Bytes, names: Bytes, ends: Words, words: Words) -> int:
    """Fill WORDS of ``words`` for each of the ``count`` uncompressed records of ``data``.

    ``server`` is the server's name in event ids. ``names`` are the names of the headers with the event id, the GTID,
    the coordinates of the commit, and the effect of foreign keys; they end at ``ends``. Returns 0 for valid records.
    Returns -1 - n if record n is cut off or has a wrong length, and -1 - ``count`` if bytes follow the last record.
    """
    data, server, names, ends, words = span(data), span(server), span(names), span(ends), span(words)
    at = 0
    size = length(data)
    before = -1
    file = _NOT_ANY
    for number in range(count):
        word = number * WORDS
        for index in range(ORDER_WORDS):
            words[word + index] = 0
        for index in range(ORDER_WORDS, WORDS):
            words[word + index] = -1
        body, here = read_varint(data, at, size)
        if here == CUT or body < 1 or body > size - here:
            return -1 - number
        end = here + body
        _, here = read_varint(data, here + 1, end)  # skips the attributes and the timestamp
        if here == CUT:
            return -1 - number
        words[word + OFFSET], here = read_varint(data, here, end)
        if here == CUT:
            return -1 - number
        part_size, here = read_varint(data, here, end)
        if here == CUT or part_size > end - here:
            return -1 - number
        if part_size >= 0:
            words[word + KEY] = here
            here += part_size
            words[word + KEY_END] = here
        part_size, here = read_varint(data, here, end)
        if here == CUT or part_size > end - here:
            return -1 - number
        words[word + VALUE] = here if part_size >= 0 else -1
        here += max(part_size, 0)
        words[word + VALUE_END] = here if part_size >= 0 else -1
        headers, here = read_varint(data, here, end)
        if here == CUT:
            return -1 - number
        commit = 0
        for _ in range(headers):
            name_size, name = read_varint(data, here, end)
            if name == CUT or name_size < 0 or name_size > end - name:
                return -1 - number
            name_end = name + name_size
            value_size, value = read_varint(data, name_end, end)
            if value == CUT or value_size > end - value:
                return -1 - number
            here = value + max(value_size, 0)
            if value_size < 0:
                continue
            if is_same(data, name, name_end, names, 0, ends[0]):
                words[word + ID] = value
                words[word + ID_END] = here
            elif is_same(data, name, name_end, names, ends[0], ends[1]):
                words[word + GTID_TEXT] = value
                words[word + GTID_TEXT_END] = here
            elif is_same(data, name, name_end, names, ends[1], ends[2]):
                commit = _coordinates(data, value, here)
            elif value_size > 0 and is_same(data, name, name_end, names, ends[2], ends[3]):
                words[word + FOREIGN_KEYS] = u8(data, value)
        if here != end:
            return -1 - number
        words[word + GTID] = _gtid(data, words, word, before)
        words[word + RECORD] = at
        words[word + RECORD_END] = end
        if words[word + ID] >= 0:
            _read_id(data, words, word)
        words[word + IS_NEW] = 1
        if words[word + POSITION] >= 0:
            if before >= 0 and words[before + POSITION] >= 0:
                start, stop = words[word + ID], words[word + ORIGIN_END]
                if is_same(data, start, stop, data, words[before + ID], words[before + ORIGIN_END]):
                    words[word + IS_NEW] = 0
            if words[word + IS_NEW] != 0:
                file = _file_of_id(data, words, word, server)
            _order(words, word, file, commit)
        before = word
        at = end
    return 0 if at == size else -1 - count
