"""Hops over events, from header to header: all that a scout of a binlog needs, and nothing is decoded.

One call goes on until the bytes end or Python is needed: where a cut is due, and for an event that only Python reads.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.transactions import BEGIN, COMMIT, framing_query
from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, copy, u8, u16, u32

AT, FILLED, POSITION, END, EVENTS, CUT_AT, OPENED, CUTTABLE, OPENING_SIZE, THREAD = range(10)
"""Words of the state: address of the next event, bytes that are there; the event's position in its file, and the
position at which all ends; events so far; the position from which on a cut is due; whether a transaction was opened,
and whether a slice may begin behind a statement in it; the size of the event that opened it; and the connection that
made it."""
STATE_WORDS = 10

MORE, LOOK, CUT, CUT_INSIDE, DONE, READY, FULL = range(7)
"""What kernels that go over events return: the bytes end inside an event; Python is to look at the next event; a cut is
due before the next event, where a transaction begins; or it is inside one, behind a statement's end; or all is done.
READY is `peek`'s: the next event is there, and the kernel's to read. FULL: what a kernel writes has no more room."""

LARGEST_OPENING = 1024
"""Bytes of an event that opens a transaction; servers write less than 300."""

MOST_MADE_UP = 4096
"""Bytes of an event that a server makes up, as it does the FORMAT_DESCRIPTION before a range further on."""

_QUERY, _FORMAT_DESCRIPTION, _XID, _HEARTBEAT, _HEARTBEAT_V2, _XA_PREPARE, _PARTIAL_UPDATE = 2, 15, 16, 27, 41, 38, 39
_GTID, _ANONYMOUS_GTID, _GTID_TAGGED, _MARIADB_GTID, _MARIADB_QUERY_COMPRESSED = 33, 34, 42, 162, 165
_ARTIFICIAL = 0x20
_STATEMENT_END = 0x01
_NOT_BEGIN = 0x01 | 0x40 | 0x80
"""MariaDB's GTID flags: standalone, prepared XA, completed XA. Without them the event is a BEGIN too."""


@inline
def is_rows(kind: int) -> bool:
    return (30 <= kind <= 32) or (23 <= kind <= 25) or kind == _PARTIAL_UPDATE or (166 <= kind <= 171)


@inline
def _take_query(data: Bytes, body: int, end: int, state: Words) -> int:
    """Take BEGIN and COMMIT; LOOK for another statement."""
    step = framing_query(data, body, end)
    if step == BEGIN:
        if state[OPENED] == 0 and state[POSITION] >= state[CUT_AT]:
            return CUT  # a server too old to write a GTID event before each transaction
        state[CUTTABLE] = 1
        state[THREAD] = u32(data, body)
        return MORE
    if step == COMMIT:
        state[OPENED] = 0
        state[CUTTABLE] = 0
        return MORE
    return LOOK


@inline
def peek(data: Bytes, state: Words, checksum_size: int) -> int:
    """Whether the next event can be read: READY, MORE, LOOK or DONE.

    A size that no event can have is Python's to refuse.
    """
    at = state[AT]
    left = state[FILLED] - at
    if left < 19:
        return MORE
    size = u32(data, at + 9)
    if size < 19 + checksum_size or size > max(state[END] - state[POSITION], MOST_MADE_UP):
        return LOOK
    if size > left:
        return MORE
    kind = u8(data, at + 4)
    if (
        u16(data, at + 17) & _ARTIFICIAL != 0
        or kind == _FORMAT_DESCRIPTION
        or kind == _HEARTBEAT
        or kind == _HEARTBEAT_V2
    ):
        return LOOK
    return DONE if state[POSITION] >= state[END] else READY


@inline
def pass_over(state: Words, size: int) -> None:
    """Go on behind an event of ``size`` bytes."""
    state[AT] += size
    state[POSITION] += size
    state[EVENTS] += 1


@entry("int64(uint8[::1], uint8[::1], int64[::1], int64)")
def hop(data: Bytes, opening: Bytes, state: Words, checksum_size: int) -> int:
    """Hop over the events of ``data`` from state[AT] on, to the first that returns something else than MORE.

    An event that opens a transaction is copied to ``opening``, of LARGEST_OPENING bytes.
    """
    while True:
        code = peek(data, state, checksum_size)
        if code != READY:
            return code
        at = state[AT]
        size = u32(data, at + 9)
        kind = u8(data, at + 4)
        body = at + 19
        inside = False
        if kind == _GTID or kind == _ANONYMOUS_GTID or kind == _GTID_TAGGED or kind == _MARIADB_GTID:
            if state[POSITION] >= state[CUT_AT]:
                return CUT
            if size > LARGEST_OPENING or size < 19 + 13 + checksum_size:
                return LOOK
            copy(opening, 0, data, at, size)
            state[OPENING_SIZE] = size
            state[OPENED] = 1
            state[THREAD] = 0
            state[CUTTABLE] = 1 if kind == _MARIADB_GTID and u8(data, body + 12) & _NOT_BEGIN == 0 else 0
        elif kind == _QUERY:
            code = _take_query(data, body, at + size - checksum_size, state)
            if code != MORE:
                return code
        elif kind == _MARIADB_QUERY_COMPRESSED:
            return LOOK
        elif kind == _XID or kind == _XA_PREPARE:
            state[OPENED] = 0
            state[CUTTABLE] = 0
        elif is_rows(kind):
            if size < 19 + 8:
                return LOOK
            inside = state[CUTTABLE] == 1 and u8(data, body + 6) & _STATEMENT_END != 0
        pass_over(state, size)
        if inside and state[POSITION] >= state[CUT_AT]:
            return CUT_INSIDE
