"""A kernel that writes the messages of a block as the records of a Kafka record batch.

Source: https://kafka.apache.org/documentation/#record, and DefaultRecord in Kafka's sources. Numbers are zigzag
varints, in which small numbers of either sign take few bytes.
"""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Ends, Words, copy, put8, u8
from changefeed.native.varint import put_varint, size_of_varint

RECORD_ROOM = 96
"""The most bytes that a record takes besides its key, value, event id, GTID and further headers."""

EARLIEST, LATEST, INSTEAD, FIRST, GREATEST = range(5)
"""Words of ``times``.

- EARLIEST, LATEST: the range, in seconds, in which an event's own time is the timestamp of its record
- INSTEAD: the timestamp of other records, in milliseconds
- FIRST, GREATEST: results of `put_records`, the first and the greatest timestamp"""
TIMES_WORDS = 5

_NULL_KEY, _NULL_VALUE, _HAS_HEADERS = 1, 2, 4


@inline
def _put_part(out: Bytes, at: int, data: Bytes, begin: int, end: int) -> int:
    """Write the length of ``data[begin:end]`` and these bytes. Returns the end in ``out``."""
    at = put_varint(out, at, end - begin)
    copy(out, at, data, begin, end - begin)
    return at + end - begin


@inline
def _timestamp(seconds: Ends, index: int, times: Words) -> int:
    """The timestamp of the record, in milliseconds."""
    own = int(np.int64(seconds[index]))
    timestamp = own * 1000
    if own < times[EARLIEST] or own > times[LATEST]:
        timestamp = times[INSTEAD]
    return timestamp


@inline
def _size_of_delta(delta: int) -> int:
    return size_of_varint(delta) if delta >= 0 else size_of_varint(-delta - 1)


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
    """Write messages ``first`` to ``last`` - 1 to ``out``. Returns the number of bytes.

    The arrays are those of a block (`records.block`). ``names`` has the names of the headers with the event id and with
    the GTID, each after its length as a varint; the first takes ``id_name_size`` bytes. ``out`` must have room for the
    messages' own bytes, and RECORD_ROOM more for each message.
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
        gtid = id_end
        gtid_end = end
        headers = 1
        if null & _HAS_HEADERS:
            gtid = id_end + 2
            gtid_end = gtid + u8(data, id_end)
            headers += u8(data, id_end + 1)
        if gtid_end > gtid:
            headers += 1
        body = 2 + _size_of_delta(timestamp - base) + size_of_varint(index - first) + end - begin + id_end - gtid
        body += 1 if null & _NULL_KEY else size_of_varint(key_end - begin)
        body += 1 if null & _NULL_VALUE else size_of_varint(value_end - key_end)
        body += id_name_size + size_of_varint(id_end - value_end)
        if gtid_end > gtid:
            body += gtid_name_size + size_of_varint(gtid_end - gtid)
        at = put_varint(out, at, body)
        put8(out, at, 0)  # attributes: Kafka defines none
        at = put_varint(out, at + 1, timestamp - base)
        at = put_varint(out, at, index - first)
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
        put8(out, at, headers << 1)  # zigzag of a number below 64
        copy(out, at + 1, names, 0, id_name_size)
        at = _put_part(out, at + 1 + id_name_size, data, value_end, id_end)
        if gtid_end > gtid:
            copy(out, at, names, id_name_size, gtid_name_size)
            at = _put_part(out, at + gtid_name_size, data, gtid, gtid_end)
        if end > gtid_end:
            copy(out, at, data, gtid_end, end - gtid_end)
            at += end - gtid_end
        begin = end
    return at
