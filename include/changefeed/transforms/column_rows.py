"""The kernel that writes messages of rows whose values are in columns, as batch functions return them."""

from __future__ import annotations

from numba.core import types

from changefeed.binlog.kernel import layout, plain_rows
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.images import key_changed
from changefeed.binlog.kernel.rows import put_message
from changefeed.binlog.kernel.workspace import ARRAYS, Workspace, spans
from changefeed.native.compiled import entry
from changefeed.native.memory import Bytes, Words, copy, put8
from changefeed.native.span import length, span
from changefeed.transforms.sequences import PART_BITS, STEP_BITS

HEADER = 32
"""Bytes at the beginning of ``data`` for the header of each row's event."""
_FLAGS = 17
_ARRAYS = (types.uint8[::1], types.int64[::1], types.int64[::1], types.int64[::1])


@entry(types.int64(ARRAYS, *_ARRAYS))
def put_column_rows(arrays: Workspace, source: Bytes, facts: Words, ops: Words, cells: Words) -> int:
    """Write the messages of the rows from number state[ROW_AT] on; return 0, layout.ROOM or a fault.

    - ``data`` in ``arrays`` has the values, after HEADER bytes, in the form of rows events.
    - ``cells`` has the addresses and sizes of the values of each column, as `plain_rows.scan` returns them. An address
      is NULL or ABSENT if there is no value.
    - ``facts`` has `plain_rows.FACTS` words for each row; texts of facts are in ``source``.
    - ``ops`` has the op of each row, in the kernel's coding.
    """
    work = spans(arrays)
    source, facts, ops, cells = span(source), span(facts), span(ops), span(cells)
    data, state, words, scratch, texts = work.data, work.state, work.words, work.scratch, work.texts
    rows = length(ops)
    columns = length(cells) // 4 // max(rows, 1)
    sizes = 2 * columns * rows
    while state[layout.ROW_AT] < rows:
        row = state[layout.ROW_AT]
        fact = row * plain_rows.FACTS
        table = facts[fact + plain_rows.TABLE]
        state[layout.POSITION] = facts[fact + plain_rows.POSITION]
        state[layout.COMMIT_MICROS] = facts[fact + plain_rows.MICROS]
        state[layout.THREAD] = facts[fact + plain_rows.THREAD]
        state[layout.STATEMENT_ROW] = facts[fact + plain_rows.STATEMENT_ROW]
        state[layout.EVENT_FIRST_ROW] = facts[fact + plain_rows.ROW]  # each row counts as the first of its event
        state[layout.EVENT_TYPE] = facts[fact + plain_rows.EVENT_TYPE]
        state[layout.EVENT_SIZE] = facts[fact + plain_rows.EVENT_SIZE]
        state[layout.EVENT_END] = facts[fact + plain_rows.EVENT_END]
        put8(data, _FLAGS, facts[fact + plain_rows.EVENT_FLAGS])
        put8(data, _FLAGS + 1, facts[fact + plain_rows.EVENT_FLAGS] >> 8)
        xid_size = facts[fact + plain_rows.XID_SIZE]
        xid_counted = facts[fact + plain_rows.XID_COUNTED]
        state[layout.XID_SIZE] = xid_size
        state[layout.XID_COUNTED] = xid_counted
        state[layout.PLAIN_XID_SIZE] = max(xid_size - 2, 0)
        copy(texts, layout.XID_TEXT, source, facts[fact + plain_rows.XID], xid_size + xid_counted)
        state[layout.SPLIT_PART] = facts[fact + plain_rows.PART]
        state[layout.GTID_SIZE] = facts[fact + plain_rows.GTID_SIZE]
        copy(texts, layout.GTID_TEXT, source, facts[fact + plain_rows.GTID], facts[fact + plain_rows.GTID_SIZE])
        id_size = facts[fact + plain_rows.ID_SIZE]
        state[layout.ID_SIZE] = id_size
        copy(texts, layout.ID_TEXT, source, facts[fact + plain_rows.ID], id_size)
        for same in range(layout.MAX_SAME):
            scratch[layout.SAME + 2 * same + 1] = -1
        for image in range(2):
            to = image * layout.IMAGE
            cell = image * columns * rows + row
            for column in range(columns):
                scratch[to + column] = cells[cell]
                scratch[to + layout.MAX_COLUMNS + column] = cells[sizes + cell]
                cell += rows
        kind = ops[row]
        if kind == layout.UPDATE and key_changed(work, words[table + layout.TABLE_KEY_COLUMNS]):
            kind = layout.KEY_CHANGE
        made = words[table + layout.TABLE_MESSAGES] + layout.CHANGE_WORDS * kind
        out_before = state[layout.OUT]
        messages_before = state[layout.MESSAGES]
        message = made + 1
        for _ in range(words[made]):
            fault = put_message(
                work,
                table,
                words[message],
                words[message + 1],
                words[message + 2],
                words[message + 3],
                id_size,
                facts[fact + plain_rows.SERVER_ID],
                facts[fact + plain_rows.SECONDS],
                facts[fact + plain_rows.ROW],
            )
            if fault < 0:
                state[layout.OUT] = out_before
                state[layout.MESSAGES] = messages_before
                return layout.ROOM if fault == FULL else fault
            message += 4
        for number in range(messages_before, state[layout.MESSAGES]):
            sequence = work.sequences[number]
            part = sequence >> STEP_BITS << PART_BITS | facts[fact + plain_rows.PART]
            work.sequences[number] = part << STEP_BITS | (sequence & 3)
        state[layout.ROW_AT] = row + 1
    return 0
