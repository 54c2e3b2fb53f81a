"""Reads the records of a Kafka record batch that changefeed wrote: where each begins, and which change it is.

Nothing is copied. Source of the layout: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from changefeed.binlog.kernel.compiled import entry, inline
from changefeed.binlog.kernel.kafka_varint import CUT, kafka_varint
from changefeed.binlog.kernel.memory import Bytes, Words, u8, wrap
from changefeed.binlog.kernel.same_bytes import is_same

OFFSET, VALUE, VALUE_END, FIRST, OWN, ROW, GTID, RECORD, RECORD_END, KNOWN = range(10)
"""Words of a record: its offset within the batch; where its value is (-1: null); the turn of its change (FIRST, OWN and
ROW compare as the source committed: a file's number and a position each, then row and step); a digest of its GTID;
where the record is; and whether the turn is known, which it is not where the event id is none of a row in a binlog.
"""
WORDS = 10
POSITION_BITS, STEP_BITS = 40, 8

_SLASH, _COLON, _DOT, _ZERO = 47, 58, 46, 48
_PRIME = 1099511628211
_NOT_ANY = -1


@inline
def _digits(data: Bytes, begin: int, end: int) -> int:
    """The number whose digits these are, or _NOT_ANY."""
    if end <= begin or end - begin > 15:
        return _NOT_ANY
    value = 0
    for at in range(begin, end):
        digit = u8(data, at) - _ZERO
        if digit < 0 or digit > 9:
            return _NOT_ANY
        value = value * 10 + digit
    return value


@inline
def _last(data: Bytes, begin: int, end: int, wanted: int) -> int:
    """Where the last ``wanted`` is, or _NOT_ANY."""
    at = end - 1
    while at >= begin:
        if u8(data, at) == wanted:
            return at
        at -= 1
    return _NOT_ANY


@inline
def _coordinates(data: Bytes, begin: int, end: int) -> int:
    """A file's number and a position, as one number; or _NOT_ANY."""
    colon = _last(data, begin, end, _COLON)
    if colon == _NOT_ANY:
        return _NOT_ANY
    dot = _last(data, begin, colon, _DOT)
    file = _digits(data, dot + 1, colon) if dot != _NOT_ANY else _NOT_ANY
    position = _digits(data, colon + 1, end)
    if file <= 0 or file >= 1 << 22 or position == _NOT_ANY or position >= 1 << POSITION_BITS:
        return _NOT_ANY
    return (file << POSITION_BITS) + position


@inline
def _turn(data: Bytes, begin: int, end: int, server: Bytes, out: Words, to: int) -> bool:
    """Read an event id, ``server/file:position/row`` and perhaps a step, into OWN and ROW."""
    named = server.shape[0]
    if end - begin <= named or u8(data, begin + named) != _SLASH:
        return False
    if not is_same(data, begin, begin + named, server, 0, named):
        return False
    at = begin + named + 1
    second = third = end
    for byte in range(at, end):
        if u8(data, byte) == _SLASH:
            if second == end:
                second = byte
            elif third == end:
                third = byte
            else:
                return False
    own = _coordinates(data, at, second)
    row = _digits(data, second + 1, third)
    step = 0 if third == end else _digits(data, third + 1, end)
    if own == _NOT_ANY or row == _NOT_ANY or row >= 1 << 50 or step == _NOT_ANY or step >= 1 << STEP_BITS:
        return False
    out[to + OWN] = own
    out[to + ROW] = (row << STEP_BITS) + step
    return True


@entry("int64(uint8[::1], int64, uint8[::1], uint8[::1], int64[::1], int64[::1])")
def index_records(data: Bytes, count: int, server: Bytes, names: Bytes, ends: Words, out: Words) -> int:
    """Write WORDS words to ``out`` for each of the ``count`` records in ``data``; returns where they end, or
    CUT where the batch has no such records.

    ``server`` is the server's name as event ids have it. ``names`` are those of the headers with the event id, the GTID
    and the commit's coordinates, which end at ``ends``.
    """
    size = data.shape[0]
    at = 0
    for index in range(count):
        to = index * WORDS
        begin = at
        length, at = kafka_varint(data, at, size)
        end = at + length
        if at == CUT or length < 1 or end > size:
            return CUT
        at += 1
        _, at = kafka_varint(data, at, end)
        if at == CUT:
            return CUT
        out[to + OFFSET], at = kafka_varint(data, at, end)
        if at == CUT:
            return CUT
        part, at = kafka_varint(data, at, end)
        if at == CUT or part > end - at:
            return CUT
        at += max(part, 0)
        part, at = kafka_varint(data, at, end)
        if at == CUT or part > end - at:
            return CUT
        out[to + VALUE] = at if part >= 0 else -1
        at += max(part, 0)
        out[to + VALUE_END] = at
        headers, at = kafka_varint(data, at, end)
        if at == CUT:
            return CUT
        known = False
        commit = 0
        gtid = 0
        for _ in range(headers):
            named, at = kafka_varint(data, at, end)
            if at == CUT or named < 0 or named > end - at:
                return CUT
            name = at
            at += named
            part, at = kafka_varint(data, at, end)
            if at == CUT or part > end - at:
                return CUT
            if is_same(data, name, name + named, names, 0, ends[0]):
                known = part > 0 and _turn(data, at, at + part, server, out, to)
            elif is_same(data, name, name + named, names, ends[0], ends[1]):
                for byte in range(at, at + part):
                    gtid = wrap((gtid ^ u8(data, byte)) * _PRIME)
            elif is_same(data, name, name + named, names, ends[1], ends[2]):
                commit = _coordinates(data, at, at + part)
            at += max(part, 0)
        if at != end:
            return CUT
        out[to + FIRST] = out[to + OWN] if commit == 0 else commit
        out[to + GTID] = gtid
        out[to + RECORD] = begin
        out[to + RECORD_END] = end
        out[to + KNOWN] = 1 if known and commit != _NOT_ANY else 0
    return at
