"""Writes a block's messages as the records of a Kafka record batch.

Source: https://kafka.apache.org/documentation/#record, and DefaultRecord in Kafka's sources. Numbers are zigzag
varints: the small ones, of either sign, take few bytes.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel.compiled import entry, inline
from changefeed.binlog.kernel.memory import Bytes, Ends, Words, copy, put8, u8

RECORD_ROOM = 96
"""Bytes that a record takes at most besides its key, value, event id and GTID."""

EARLIEST, LATEST, INSTEAD, FIRST, GREATEST = range(5)
"""Words of ``times``: the seconds from and up to which an event's own time is a record's timestamp, and the timestamp
of all others, in milliseconds; what `put_records` says: the first record's timestamp, and the greatest."""
TIMES_WORDS = 5

_NULL_KEY, _NULL_VALUE = 1, 2
_ONE_HEADER, _TWO_HEADERS = 2, 4
"""1 and 2, zigzag."""


@inline
def _size_of(value: int) -> int:
    """Bytes of the varint of ``value``, which is not negative."""
    size = 1
    rest = value >> 6
    while rest > 0:
        rest >>= 7
        size += 1
    return size


@inline
def _put_varint(out: Bytes, at: int, value: int) -> int:
    """Write ``value`` of either sign; returns where it ends."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        put8(out, at, (rest & 127) | 128)
        rest >>= 7
        at += 1
    put8(out, at, rest)
    return at + 1


@inline
def _put_part(out: Bytes, at: int, data: Bytes, begin: int, end: int) -> int:
    """Write a length and that many bytes of ``data``."""
    at = _put_varint(out, at, end - begin)
    copy(out, at, data, begin, end - begin)
    return at + end - begin


@inline
def _timestamp(seconds: Ends, index: int, times: Words) -> int:
    """The record's timestamp in milliseconds."""
    own = int(np.int64(seconds[index]))
    timestamp = own * 1000
    if own < times[EARLIEST] or own > times[LATEST]:
        timestamp = times[INSTEAD]
    return timestamp


@inline
def _size_of_delta(delta: int) -> int:
    return _size_of(delta) if delta >= 0 else _size_of(-delta - 1)


@entry(
    "int64(int64, int64, uint32[::1], uint32[::1], uint8[::1], uint8[::1], uint8[::1], int64[::1], uint8[::1], int64)"
)
def put_records(
    first: int,
    last: int,
    ends: Ends,
    seconds: Ends,
    nulls: Bytes,
    data: Bytes,
    names: Bytes,
    times: Words,
    out: Bytes,
    id_name_size: int,
) -> int:
    """Write messages ``first`` to ``last`` - 1 to ``out``; returns how many bytes they take.

    The arrays are a block's (`changefeed.block`); none of these messages has a header of its own. ``names`` are those
    of the headers with the event id and with the GTID, each behind its length as a varint; the first takes
    ``id_name_size`` bytes. ``out`` must have the messages' own bytes and RECORD_ROOM more for each.
    """
    begin = 0
    if first > 0:
        begin = int(np.int64(ends[4 * first - 1]))
    gtid_name_size = names.shape[0] - id_name_size
    base = _timestamp(seconds, first, times)
    times[FIRST] = base
    times[GREATEST] = base
    at = 0
    for index in range(first, last):
        key_end = int(np.int64(ends[4 * index]))
        value_end = int(np.int64(ends[4 * index + 1]))
        id_end = int(np.int64(ends[4 * index + 2]))
        end = int(np.int64(ends[4 * index + 3]))
        null = u8(nulls, index)
        timestamp = _timestamp(seconds, index, times)
        if timestamp > times[GREATEST]:
            times[GREATEST] = timestamp
        body = 2 + _size_of_delta(timestamp - base) + _size_of(index - first) + end - begin
        body += 1 if null & _NULL_KEY else _size_of(key_end - begin)
        body += 1 if null & _NULL_VALUE else _size_of(value_end - key_end)
        body += id_name_size + _size_of(id_end - value_end)
        if end > id_end:
            body += gtid_name_size + _size_of(end - id_end)
        at = _put_varint(out, at, body)
        put8(out, at, 0)  # attributes: none are defined
        at = _put_varint(out, at + 1, timestamp - base)
        at = _put_varint(out, at, index - first)
        if null & _NULL_KEY:
            put8(out, at, 1)  # -1, zigzag
            at += 1
        else:
            at = _put_part(out, at, data, begin, key_end)
        if null & _NULL_VALUE:
            put8(out, at, 1)
            at += 1
        else:
            at = _put_part(out, at, data, key_end, value_end)
        put8(out, at, _TWO_HEADERS if end > id_end else _ONE_HEADER)
        copy(out, at + 1, names, 0, id_name_size)
        at = _put_part(out, at + 1 + id_name_size, data, value_end, id_end)
        if end > id_end:
            copy(out, at, names, id_name_size, gtid_name_size)
            at = _put_part(out, at + gtid_name_size, data, id_end, end)
        begin = end
    return at
