"""A kernel that finds op, table and rows in Debezium's envelopes without creating Python objects."""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import entry, inline
from changefeed.native.json_scan import end_of_name, end_of_value, is_null, next_member
from changefeed.native.memory import Bytes, Words, u8
from changefeed.native.same_bytes import is_same
from changefeed.native.span import length, span

OP, TABLE, BEFORE, BEFORE_END, AFTER, AFTER_END = range(6)
"""The words of an envelope.

- OP: the letter of its op; -1 for other records
- TABLE: the number of its table; -1 if it is none of the requested tables
- BEFORE to AFTER_END: the begin and the end of its rows; -1 for null"""
ENVELOPE_WORDS = 6

_NAMES = np.frombuffer(b"beforeafteropsourcedbtable", np.uint8).copy()
_BEFORE, _AFTER, _OP, _SOURCE, _DB, _TABLE, _LAST = 0, 6, 11, 13, 19, 21, 26


@inline
def _is(data: Bytes, name: int, value: int, first: int, last: int) -> bool:
    """Whether ``_NAMES[first:last]`` is the name of the member that begins at ``name``, and its value at ``value``."""
    return is_same(data, name + 1, value - 2, _NAMES, first, last)


@inline
def _table_of(data: Bytes, start: int, end: int, tables: Bytes, table_ends: Words) -> int:
    """The number in ``tables`` of the table that ``source`` names; -1 if it is not there."""
    database = -1
    database_end = -1
    table = -1
    table_end = -1
    here = next_member(data, start + 1, end)
    while 0 <= here < end:
        value = end_of_name(data, here, end)
        stop = end_of_value(data, value, end)
        if _is(data, here, value, _DB, _TABLE):
            database = value
            database_end = stop
        elif _is(data, here, value, _TABLE, _LAST):
            table = value
            table_end = stop
        here = next_member(data, stop, end)
    begin = 0
    for number in range(length(table_ends) // 2):
        middle = table_ends[2 * number]
        last = table_ends[2 * number + 1]
        is_there = is_same(data, database, database_end, tables, begin, middle)
        if is_there and is_same(data, table, table_end, tables, middle, last):
            return number
        begin = last
    return -1


@entry("void(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1])")
def read_envelopes(data: Bytes, starts: Words, ends: Words, tables: Bytes, table_ends: Words, words: Words) -> None:
    """Fill ENVELOPE_WORDS of ``words`` for each text ``data[start:end]``.

    The op is -1 for any text but an envelope without a schema. ``tables`` has the JSON strings of each table's database
    and name.
    """
    data, starts, ends, words = span(data), span(starts), span(ends), span(words)
    tables, table_ends = span(tables), span(table_ends)
    for row in range(length(starts)):
        word = row * ENVELOPE_WORDS
        for index in range(ENVELOPE_WORDS):
            words[word + index] = -1
        here = starts[row]
        end = ends[row]
        if here < 0 or here >= end or u8(data, here) != 123:
            continue
        op = -1
        table = -1
        seen = 0
        here = next_member(data, here + 1, end)
        while 0 <= here < end:
            value = end_of_name(data, here, end)
            if value < 0:
                here = -1
                break
            stop = end_of_value(data, value, end)
            if stop < 0:
                here = -1
                break
            if _is(data, here, value, _BEFORE, _AFTER) or _is(data, here, value, _AFTER, _OP):
                at = word + (BEFORE if u8(data, here + 1) == 98 else AFTER)
                seen += 1
                if u8(data, value) == 123:
                    words[at] = value
                    words[at + 1] = stop
                elif not is_null(data, value, stop):
                    seen = -10
            elif _is(data, here, value, _OP, _SOURCE):
                if stop - value == 3:
                    op = u8(data, value + 1)
            elif _is(data, here, value, _SOURCE, _DB) and u8(data, value) == 123:
                table = _table_of(data, value, stop, tables, table_ends)
            here = next_member(data, stop, end)
        if here == end and seen == 2:
            words[word + OP] = op
            words[word + TABLE] = table
