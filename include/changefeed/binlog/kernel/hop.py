"""Reads event headers for the scout, and decodes no rows.

One call continues until the bytes end or Python is needed: for a cut, or for an event that only Python reads.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.transactions import BEGIN, COMMIT, framing_query
from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, copy, u8, u16, u32

AT, FILLED, POSITION, END, EVENTS, CUT_AT, OPENED, CUTTABLE, OPENING_SIZE, THREAD = range(10)
"""Words of the state:

- AT: address of the next event in the input; FILLED: size of the input;
- POSITION: position of the next event in its file; END: position at which the range ends;
- EVENTS: number of events; CUT_AT: the position from which on a cut is due;
- OPENED: whether a transaction is open; CUTTABLE: whether a slice may begin after a statement in it;
- OPENING_SIZE: size of the event that opened it; THREAD: the connection that executed it.
"""
STATE_WORDS = 10

MORE, LOOK, CUT, CUT_INSIDE, DONE, READY, FULL = range(7)
"""The codes of kernels that read event headers:

- MORE: the bytes end inside an event;
- LOOK: Python has to read the next event;
- CUT: a cut is due before the next event, which begins a transaction;
- CUT_INSIDE: a cut is due after a statement;
- DONE: the end is reached;
- READY, only from `peek`: the kernel can read the next event;
- FULL: the kernel's output has no more room.
"""

LARGEST_OPENING = 1024
"""The most bytes of an event that opens a transaction; servers write less than 300."""

LARGEST_ARTIFICIAL = 4096
"""The most bytes of an artificial event, such as the FORMAT_DESCRIPTION before a later range."""

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
    """Process BEGIN and COMMIT; returns LOOK for any other statement."""
    step = framing_query(data, body, end)
    if step == BEGIN:
        if state[OPENED] == 0 and state[POSITION] >= state[CUT_AT]:
            return CUT  # an old server: it writes no GTID event before each transaction
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
    """The code for the next event: READY if the kernel can read it, else MORE, LOOK or DONE.

    The code is LOOK for a size that no event can have; Python reports the damage.
    """
    at = state[AT]
    left = state[FILLED] - at
    if left < 19:
        return MORE
    size = u32(data, at + 9)
    if size < 19 + checksum_size or size > max(state[END] - state[POSITION], LARGEST_ARTIFICIAL):
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
def skip_event(state: Words, size: int) -> None:
    """Go to the event after one of ``size`` bytes."""
    state[AT] += size
    state[POSITION] += size
    state[EVENTS] += 1


@entry("int64(uint8[::1], uint8[::1], int64[::1], int64)")
def hop(data: Bytes, opening: Bytes, state: Words, checksum_size: int) -> int:
    """Read the event headers in ``data`` from state[AT] on until Python or more input is needed; returns the code.

    An event that opens a transaction is copied to ``opening``, which has LARGEST_OPENING bytes.
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
        skip_event(state, size)
        if inside and state[POSITION] >= state[CUT_AT]:
            return CUT_INSIDE
