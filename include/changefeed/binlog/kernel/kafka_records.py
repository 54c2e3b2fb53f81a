"""Where the parts of the records of a Kafka record batch are, and what their event ids say.

Source: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from changefeed.binlog.kernel.compiled import entry, inline
from changefeed.binlog.kernel.kafka_varint import CUT, kafka_varint
from changefeed.binlog.kernel.memory import Bytes, Words, u8
from changefeed.binlog.kernel.same_bytes import is_same
from changefeed.binlog.kernel.span import length, span

OFFSET, KEY, KEY_END, VALUE, VALUE_END, ID, ID_END, GTID, GTID_END, ORIGIN_END, POSITION, ROW, STEP, IS_NEW = range(14)
"""Words of a record: its offset less the batch's; where its parts begin and end, -1 for those that are null or not
there; of an id `server_uuid/origin:position/row/step` where the origin ends, and the numbers, -1 where it is none; and
whether what stands before the position is not what it is in the record before."""
RECORD_WORDS = 14

_MOST_DIGITS = 18


@inline
def _end_of_number(data: Bytes, at: int, end: int) -> int:
    """The end of a number's digits; -1 where there are none, or too many for a word."""
    begin = at
    while at < end and 48 <= u8(data, at) <= 57:
        at += 1
    return at if 0 < at - begin <= _MOST_DIGITS else -1


@inline
def _number(data: Bytes, at: int, end: int) -> int:
    value = 0
    for index in range(at, end):
        value = value * 10 + u8(data, index) - 48
    return value


@inline
def _read_id(data: Bytes, words: Words, at: int) -> None:
    """Fill in what the id says; the words stay -1 for an id of another form."""
    start = words[at + ID]
    end = words[at + ID_END]
    colon = end - 1
    while colon > start and u8(data, colon) != 58:
        colon -= 1
    if colon <= start:
        return
    position_end = _end_of_number(data, colon + 1, end)
    if position_end < 0 or position_end >= end or u8(data, position_end) != 47:
        return
    row_end = _end_of_number(data, position_end + 1, end)
    if row_end < 0:
        return
    step = 0
    if row_end < end:
        if u8(data, row_end) != 47 or _end_of_number(data, row_end + 1, end) != end:
            return
        step = _number(data, row_end + 1, end)
    words[at + ORIGIN_END] = colon
    words[at + POSITION] = _number(data, colon + 1, position_end)
    words[at + ROW] = _number(data, position_end + 1, row_end)
    words[at + STEP] = step


@entry("int64(uint8[::1], int64, uint8[::1], int64, int64[::1])")
def read_records(data: Bytes, count: int, names: Bytes, id_name_size: int, words: Words) -> int:
    """Fill RECORD_WORDS of ``words`` for each of the ``count`` records of ``data``, which are not compressed.

    ``names`` are those of the headers with the event id and with the GTID. Returns 0, or -1 - n where record n is cut
    off or has another length than it says, or something is left behind the last.
    """
    data, names, words = span(data), span(names), span(words)
    at = 0
    size = length(data)
    before = -1
    for number in range(count):
        word = number * RECORD_WORDS
        for index in range(RECORD_WORDS):
            words[word + index] = -1
        body, here = kafka_varint(data, at, size)
        if here == CUT or body < 0 or body > size - here:
            return -1 - number
        end = here + body
        _, here = kafka_varint(data, here + 1, end)  # behind the attributes: the timestamp
        if here == CUT:
            return -1 - number
        words[word + OFFSET], here = kafka_varint(data, here, end)
        if here == CUT:
            return -1 - number
        for part in range(2):
            part_size, here = kafka_varint(data, here, end)
            if here == CUT or part_size > end - here:
                return -1 - number
            if part_size >= 0:
                words[word + KEY + 2 * part] = here
                here += part_size
                words[word + KEY_END + 2 * part] = here
        headers, here = kafka_varint(data, here, end)
        if here == CUT:
            return -1 - number
        for _ in range(headers):
            name_size, name = kafka_varint(data, here, end)
            if name == CUT or name_size > end - name:
                return -1 - number
            name_end = name + max(name_size, 0)
            value_size, value = kafka_varint(data, name_end, end)
            if value == CUT or value_size > end - value:
                return -1 - number
            here = value + max(value_size, 0)
            if value_size >= 0:
                if is_same(data, name, name_end, names, 0, id_name_size):
                    words[word + ID] = value
                    words[word + ID_END] = here
                elif is_same(data, name, name_end, names, id_name_size, length(names)):
                    words[word + GTID] = value
                    words[word + GTID_END] = here
        if here != end:
            return -1 - number
        if words[word + ID] >= 0:
            _read_id(data, words, word)
        words[word + IS_NEW] = 1
        if before >= 0 and words[word + POSITION] >= 0 and words[before + POSITION] >= 0:
            start, stop = words[word + ID], words[word + ORIGIN_END]
            if is_same(data, start, stop, data, words[before + ID], words[before + ORIGIN_END]):
                words[word + IS_NEW] = 0
        before = word
        at = end
    return 0 if at == size else -1 - count
