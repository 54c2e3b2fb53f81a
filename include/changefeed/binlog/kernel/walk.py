"""The kernel: walks the events of a block, and turns the rows of those it knows into messages.

One call goes on until the block ends or Python is needed: for a TABLE_MAP that is new, for an event that changes
more than rows, for room. What it returns is a code of `layout` or, negative, a fault of `faults`; all that it knows
between calls is in ``state``.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from numba.core import types

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.compiled import entry, inline
from changefeed.binlog.kernel.crc32 import crc32
from changefeed.binlog.kernel.faults import CHECKSUM, EVENT_SIZE, PAST_END
from changefeed.binlog.kernel.memory import Words, u8, u32
from changefeed.binlog.kernel.rows_event import put_rows
from changefeed.binlog.kernel.table_index import take_table_map
from changefeed.binlog.kernel.transactions import (
    ANONYMOUS_GTID,
    MARIADB_GTID,
    end_transaction,
    take_begin_or_commit,
    take_gtid,
)
from changefeed.binlog.kernel.workspace import ARRAYS, Workspace, spans

_QUERY, _XID, _TABLE_MAP, _GTID = 2, 16, 19, 33


@inline
def advance(state: Words, size: int) -> None:
    """Pass over the event at hand, and count it."""
    state[layout.AT] += size
    state[layout.ROW_AT] = 0
    if state[layout.INNER] == 0:
        state[layout.POSITION] += size
        state[layout.LEFT] -= size
        state[layout.EVENTS] += 1
        state[layout.BYTES] += size
        if state[layout.IN_TRANSACTION] == 0:
            state[layout.COMMITTED] = state[layout.POSITION]


@entry(types.int64(ARRAYS))
def walk(arrays: Workspace) -> int:
    """Go through the events of ``data`` from state[AT] on; returns a code of `layout` or a fault.

    Writes finished messages to ``out`` and the arrays behind it, from state[OUT] and state[MESSAGES] on. Leaves
    state[AT] at the event that it returns for.
    """
    work = spans(arrays)
    data, state = work.data, work.state
    while True:
        at = state[layout.AT]
        left = state[layout.FILLED] - at
        if left < 19:
            return layout.MORE
        size = u32(data, at + 9)
        checksums = state[layout.CHECKSUMS]
        if size < 19 + 4 * checksums:
            return EVENT_SIZE
        if size > state[layout.LEFT]:
            return PAST_END
        if size > left:
            return layout.MORE
        end = at + size - 4 * checksums
        if checksums == 1 and state[layout.ROW_AT] == 0 and crc32(data, at, end) != u32(data, end):
            return CHECKSUM
        if state[layout.RUNS] + 1 >= layout.MAX_RUNS:
            return layout.DRAIN
        kind = u8(data, at + 4)
        body = at + 19
        code = layout.EVENT
        if kind == _TABLE_MAP:
            code = take_table_map(data, body, end, state, work.tables, work.literals)
        elif (30 <= kind <= 32) or (23 <= kind <= 25):
            code = put_rows(work, at, body, end, kind)
        elif kind == _GTID or kind == ANONYMOUS_GTID or kind == MARIADB_GTID:
            code = take_gtid(data, body, end, state, work.texts, kind)
        elif kind == _XID:
            end_transaction(state, work.runs)
            code = 0
        elif kind == _QUERY:
            code = take_begin_or_commit(data, body, end, state, work.runs)
        if code != 0:
            return code
        if kind != _TABLE_MAP:
            seconds = u32(data, at)
            if state[layout.FIRST_TS] == 0:
                state[layout.FIRST_TS] = seconds
            state[layout.LAST_TS] = seconds
        advance(state, size)
