"""Writes the records of the begin and the end of transactions."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.rows import begin_messages, put_message
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import copy, put8, u32
from changefeed.native.numbers import put_number

_STEP = 3
"""`block.Step.TRANSACTION`."""
_FILE, _POSITION = b"file=", b",pos="


@inline
def begin_transaction(work: Workspace, at: int) -> int:
    """Begin a numbered transaction at the event at ``at``, and write the record of its begin; 0, ROOM or a fault.

    Its id is its GTID, or the coordinates of its BEGIN.
    """
    state, texts = work.state, work.texts
    if state[layout.ORDERED] == 0:
        return 0
    size = int(state[layout.GTID_SIZE])
    begin = layout.TRANSACTION_TEXT
    if size > 0:
        copy(texts, begin, texts, layout.GTID_TEXT, size)
        end = begin + size
    else:
        for byte in range(5):
            put8(texts, begin + byte, _FILE[byte])
        end = begin + 5 + int(state[layout.FILE_SIZE])
        copy(texts, begin + 5, texts, state[layout.FILE_AT], state[layout.FILE_SIZE])
        for byte in range(5):
            put8(texts, end + byte, _POSITION[byte])
        end = put_number(texts, end + 5, state[layout.POSITION])
    state[layout.TRANSACTION_SIZE] = end - begin
    state[layout.TRANSACTION_NUMBER] += 1
    state[layout.TRANSACTION_EVENTS] = 0
    state[layout.TRANSACTION_TABLES] = 0
    return _put_record(work, at, layout.CREATE, 0)


@inline
def finish_transaction(work: Workspace, at: int) -> int:
    """Write the record of the current transaction's end, at the event at ``at``; returns 0, ROOM or a fault."""
    state = work.state
    if state[layout.TRANSACTION_SIZE] == 0:
        return 0
    row = int(state[layout.ROW]) + 1 if state[layout.INNER] > 0 else 0  # after all rows with the same position
    return _put_record(work, at, layout.DELETE, row)


@inline
def _put_record(work: Workspace, at: int, op: int, row: int) -> int:
    header = work.state[layout.TRANSACTION_RECORDS]
    if header < 0:
        return 0
    size = begin_messages(work)
    fault = put_message(work, header, _STEP, op, 0, -1, size, u32(work.data, at + 5), u32(work.data, at), row)
    return layout.ROOM if fault == FULL else fault
