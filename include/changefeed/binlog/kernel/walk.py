"""The kernel: reads events, and writes the messages of their rows.

One call continues until the input ends or Python is needed: for a new TABLE_MAP, for an event that changes more than
rows, for room in the buffers. It returns a code of `layout` or a fault of `faults`, which is negative. Between calls
``state`` has the kernel's state.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from numba.core import types

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.commit_info import NO_XID, complete_notes
from changefeed.binlog.kernel.faults import CHECKSUM, EVENT_SIZE, PAST_END
from changefeed.binlog.kernel.rows_event import put_rows
from changefeed.binlog.kernel.table_index import take_table_map
from changefeed.binlog.kernel.transaction_records import begin_transaction, finish_transaction
from changefeed.binlog.kernel.transactions import (
    ANONYMOUS_GTID,
    BEGIN,
    COMMIT,
    MARIADB_GTID,
    end_transaction,
    framing_query,
    take_gtid,
)
from changefeed.binlog.kernel.workspace import ARRAYS, Workspace, spans
from changefeed.native.compiled import entry, inline
from changefeed.native.crc32 import crc32
from changefeed.native.memory import Words, i64, u8, u32

_QUERY, _XID, _TABLE_MAP, _GTID = 2, 16, 19, 33


@inline
def advance(state: Words, size: int) -> None:
    """Skip the current event, and count it."""
    state[layout.AT] += size
    state[layout.ROW_AT] = 0
    if state[layout.INNER] == 0:
        state[layout.POSITION] += size
        state[layout.LEFT] -= size
        state[layout.EVENTS] += 1
        state[layout.BYTES] += size
        if state[layout.IN_TRANSACTION] == 0:
            state[layout.COMMITTED] = state[layout.POSITION]


@inline
def _commit(work: Workspace, at: int, xid: int) -> int:
    """End the current transaction, whose XID event has ``xid``; returns 0, ROOM or a fault."""
    code = finish_transaction(work, at)
    if code == 0:
        if work.state[layout.COMMIT_INFOS] > 0:
            complete_notes(work, xid)
        end_transaction(work.state, work.runs)
    return code


@inline
def _begin_or_commit(work: Workspace, at: int, body: int, end: int) -> int:
    """Process a QUERY event BEGIN or COMMIT; returns 0, EVENT for another statement, ROOM or a fault."""
    step = framing_query(work.data, body, end)
    if step == COMMIT:
        return _commit(work, at, NO_XID)
    if step != BEGIN or work.state[layout.IN_TRANSACTION] == 1:
        return layout.EVENT
    code = begin_transaction(work, at)
    if code == 0:
        work.state[layout.IN_TRANSACTION] = 1
        work.state[layout.THREAD] = u32(work.data, body)
    return code


@entry(types.int64(ARRAYS))
def walk(arrays: Workspace) -> int:
    """Process the events in ``data`` from state[AT] on; returns a code of `layout` or a fault.

    Writes finished messages to ``out`` and the arrays after it, from state[OUT] and state[MESSAGES] on. Afterwards
    state[AT] is the address of the event that the code is about.
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
            if code == 0 and state[layout.IN_TRANSACTION] == 1:  # a GTID event of MariaDB that is also the BEGIN
                code = begin_transaction(work, at)
                if code != 0:
                    state[layout.IN_TRANSACTION] = 0
        elif kind == _XID:
            code = _commit(work, at, i64(data, body) if end - body >= 8 else NO_XID)
        elif kind == _QUERY:
            code = _begin_or_commit(work, at, body, end)
        if code != 0:
            return code
        if kind != _TABLE_MAP:
            seconds = u32(data, at)
            if state[layout.FIRST_TS] == 0:
                state[layout.FIRST_TS] = seconds
            state[layout.LAST_TS] = seconds
        advance(state, size)
