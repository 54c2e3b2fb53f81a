"""The commit boundaries of a binlog as rows of words: position, time, and the GTID that follows."""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.hop import AT, FULL, POSITION, READY, STATE_WORDS, peek, skip_event
from changefeed.native.compiled import entry
from changefeed.native.memory import Bytes, Words, i64, u8, u32

ROWS = STATE_WORDS
"""A word of the state after those of `hop`: the number of written rows."""
BOUNDARY_STATE_WORDS = STATE_WORDS + 1

ROW = 7
"""Words of a row: position, seconds, 1 if a transaction begins there, and kind, a, b and number of its GTID as in
`events.gtids.Gtid`. For a tagged GTID the number is the address of its event, which Python reads."""

_GTID, _ANONYMOUS_GTID, _GTID_TAGGED, _MARIADB_GTID = 33, 34, 42, 162
_STOP, _ROTATE, _PREVIOUS_GTIDS, _BINLOG_CHECKPOINT, _GTID_LIST = 3, 4, 35, 161, 163
_OF_MYSQL, _OF_MARIADB, _OF_TAG = 1, 2, 3


@entry("int64(uint8[::1], int64[::1], int64[::1], int64)")
def boundary_rows(data: Bytes, rows: Words, state: Words, checksum_size: int) -> int:
    """Write a row for each commit boundary in ``data`` from state[AT] on; returns a code of `hop`."""
    while True:
        code = peek(data, state, checksum_size)
        if code != READY:
            return code
        at = state[AT]
        size = u32(data, at + 9)
        kind = u8(data, at + 4)
        opens = kind == _GTID or kind == _ANONYMOUS_GTID or kind == _GTID_TAGGED or kind == _MARIADB_GTID
        if (
            opens
            or kind == _STOP
            or kind == _ROTATE
            or kind == _PREVIOUS_GTIDS
            or kind == _BINLOG_CHECKPOINT
            or kind == _GTID_LIST
        ):
            row = state[ROWS] * ROW
            if row + ROW > len(rows):
                return FULL
            body = at + 19
            body_size = size - 19 - checksum_size
            rows[row] = state[POSITION]
            rows[row + 1] = u32(data, at)
            rows[row + 2] = 1 if opens else 0
            rows[row + 3] = 0
            rows[row + 4] = 0
            rows[row + 5] = 0
            rows[row + 6] = 0
            if kind == _GTID and body_size >= 25:
                rows[row + 3] = _OF_MYSQL
                rows[row + 4] = i64(data, body + 1)
                rows[row + 5] = i64(data, body + 9)
                rows[row + 6] = i64(data, body + 17)
            elif kind == _MARIADB_GTID and body_size >= 12:
                rows[row + 3] = _OF_MARIADB
                rows[row + 4] = u32(data, body + 8)
                rows[row + 5] = u32(data, at + 5)
                rows[row + 6] = i64(data, body)
            elif kind == _GTID_TAGGED:
                rows[row + 3] = _OF_TAG
                rows[row + 6] = at
            state[ROWS] += 1
        skip_event(state, size)
