"""Rows events: each of an event's rows turned into its messages."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.faults import COLUMN_COUNT, FULL, KEY_ABSENT, NO_TABLE_MAP, ROW_BYTES
from changefeed.binlog.kernel.images import complete_image, count_bits, holds_key, key_changed, read_image
from changefeed.binlog.kernel.memory import Words, little_endian, u8, u16, u32
from changefeed.binlog.kernel.row_columns import is_unchanged
from changefeed.binlog.kernel.row_filter import op_on_current_rows, passes
from changefeed.binlog.kernel.rows import begin_messages, put_message
from changefeed.binlog.kernel.table_index import find_entry
from changefeed.binlog.kernel.transaction_orders import count_event, uncount_events
from changefeed.binlog.kernel.workspace import Workspace

_DUMMY_TABLE = 0xFFFFFF


@inline
def end_statement(state: Words, flags: int) -> None:
    """Note that a rows event with these flags was read: its statement's last ends what its TABLE_MAPs hold for."""
    if flags & 1:
        state[layout.GENERATION] += 1
        state[layout.QUERY_SIZE] = state[layout.QUERY_COUNTED] = 0


@inline
def put_rows(work: Workspace, at: int, body: int, end: int, kind: int) -> int:
    """A WRITE (0), UPDATE (1) or DELETE (2) rows event of version 1 or 2: 0, a code or a fault.

    Body: table id u48, flags u16 (bit 0: end of statement); in version 2 the size of extra data u16, itself included,
    and that data; number of columns (packed), a bitmap of those that the images hold (two bitmaps in an update,
    one for each image), then the rows: an image, or two.
    """
    data, state, words, scratch = work.data, work.state, work.words, work.scratch
    version2 = kind >= 30
    operation = (kind - 30) if version2 else (kind - 23)
    header = 10 if version2 else 8
    if end - body < header + 1:
        return ROW_BYTES
    table_id = little_endian(data, body, 6)
    flags = u16(data, body + 6)
    here = body + 8
    if version2:
        extra = u16(data, here)
        if extra < 2 or extra > end - here:
            return ROW_BYTES
        here += extra
    if table_id == _DUMMY_TABLE and flags & 1:
        state[layout.GENERATION] += 1  # ends a statement whose rows were all left out by a filter of the server
        return 0
    index = work.tables
    slot = find_entry(index, state[layout.INDEX_MASK], table_id)
    if work.tables[slot + layout.ENTRY_ID] == 0 or index[slot + layout.ENTRY_GENERATION] != state[layout.GENERATION]:
        state[layout.NO_TABLE] = table_id
        return NO_TABLE_MAP
    table = index[slot + layout.ENTRY_TABLE]
    if words[table + layout.TABLE_CAPTURED] == layout.PASSED_OVER:
        end_statement(state, flags)
        return 0
    if words[table + layout.TABLE_REWRITE] == 1 and state[layout.INNER] < 2:
        return layout.REWRITE
    if here >= end:
        return ROW_BYTES
    columns = u8(data, here)
    here += 1
    if columns == 252:
        if here + 2 > end:
            return ROW_BYTES
        columns = u16(data, here)
        here += 2
    if columns != words[table + layout.TABLE_COLUMNS]:
        return COLUMN_COUNT
    bitmap = (columns + 7) >> 3
    present = here
    here += bitmap
    present_after = present
    if operation == 1:
        present_after = here
        here += bitmap
    if here > end:
        return ROW_BYTES
    values = count_bits(data, present, columns)
    values_after = values if operation != 1 else count_bits(data, present_after, columns)
    captured = words[table + layout.TABLE_CAPTURED] == layout.CAPTURED
    seconds = u32(data, at)
    server_id = u32(data, at + 5)
    id_size = begin_messages(work)
    if state[layout.ROW_AT] > 0:
        here = body + state[layout.ROW_AT]
    elif state[layout.INNER] == 0:
        state[layout.ROW] = 0
    op = operation
    if operation == 0 and state[layout.READS] == 1:
        op = layout.READ
    specs = words[table + layout.TABLE_SPECS]
    key_columns = words[table + layout.TABLE_KEY_COLUMNS]
    counter = words[table + layout.TABLE_COUNTER]
    skipped = (words[table + layout.TABLE_SKIPPED] >> op) & 1 == 1
    condition = words[table + layout.TABLE_FILTER]
    current = words[table + layout.TABLE_CURRENT]
    watched = words[table + layout.TABLE_UNCHANGED]
    chosen = words[table + layout.TABLE_KEY_CHOSEN] == 1
    if chosen and not skipped and values != columns and not holds_key(data, present, columns, words, key_columns):
        return KEY_ABSENT
    if words[table + layout.TABLE_CONSTANTS] == 1:
        for image in range(0, 2 * layout.IMAGE, layout.IMAGE):
            scratch[image + columns] = 0
            scratch[image + layout.MAX_COLUMNS + columns] = 0
    while here < end:
        row_begin = here
        first_image = 0 if operation != 0 else layout.IMAGE
        here = read_image(work, here, end, present, values == columns, columns, values, specs, first_image)
        if here < 0:
            return here
        changed = False
        if operation == 1:
            here = read_image(
                work, here, end, present_after, values_after == columns, columns, values_after, specs, layout.IMAGE
            )
            if here < 0:
                return here
            if captured:
                changed = key_changed(work, key_columns)
                if values_after != columns:
                    complete_image(columns, scratch)
        if here == row_begin:
            return ROW_BYTES  # an image without any column would never end
        row = state[layout.ROW]
        kept = 0 if skipped else 1
        row_op = op
        if current >= 0:
            row_op = op_on_current_rows(work, current, op)
            if row_op < 0:
                return row_op
            if row_op == layout.NO_VALUE:
                row_op = op
                kept = 0
            else:
                kept = 1 - ((words[table + layout.TABLE_SKIPPED] >> row_op) & 1)
                changed = changed and row_op == layout.UPDATE
        if captured and condition >= 0 and kept == 1:
            kept = passes(work, condition, row_op)
            if kept < 0:
                return kept
        if kept == 1 and not changed and row_op == layout.UPDATE and watched >= 0:
            fault = is_unchanged(work, watched)
            if fault < 0:
                state[layout.ROW_AT] = row_begin - body
                return layout.ROOM if fault == FULL else fault
            kept = 1 - fault
        if captured and kept == 1:
            out_before = state[layout.OUT]
            messages_before, infos_before = state[layout.MESSAGES], state[layout.COMMIT_INFOS]
            events_before = state[layout.TRANSACTION_EVENTS]
            made = words[table + layout.TABLE_MESSAGES] + layout.MADE * (layout.KEY_CHANGE if changed else row_op)
            message = made + 1
            for _ in range(words[made]):
                step, message_op, key_image = words[message], words[message + 1], words[message + 2]
                headers = words[message + 3]
                if state[layout.TRANSACTION_SIZE] > 0 and message_op != layout.NO_VALUE:
                    count_event(work, table)
                fault = put_message(work, table, step, message_op, key_image, headers, id_size, server_id, seconds, row)
                if fault < 0:
                    state[layout.OUT] = out_before
                    state[layout.MESSAGES] = messages_before
                    state[layout.COMMIT_INFOS] = infos_before
                    if state[layout.TRANSACTION_SIZE] > 0:
                        uncount_events(work, table, events_before)
                    state[layout.ROW_AT] = row_begin - body
                    return layout.ROOM if fault == FULL else fault
                message += 4
            work.counts[layout.COUNTS * counter + row_op] += 1
        elif captured:
            work.counts[layout.COUNTS * counter + layout.OPS + row_op] += 1
        else:
            state[layout.SKIPPED_ROWS] += 1
        state[layout.ROW] = row + 1
    state[layout.ROW_AT] = 0
    end_statement(state, flags)
    return 0
