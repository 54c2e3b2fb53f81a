"""Rows events: each of an event's rows turned into its messages."""

from __future__ import annotations

from typing import NamedTuple

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import COLUMN_COUNT, FULL, KEY_ABSENT, NO_TABLE_MAP, ROW_BYTES
from changefeed.binlog.kernel.images import complete_image, count_bits, holds_key, key_changed, read_image
from changefeed.binlog.kernel.row_columns import is_unchanged
from changefeed.binlog.kernel.row_filter import op_on_current_rows, passes
from changefeed.binlog.kernel.rows import begin_messages, put_message
from changefeed.binlog.kernel.table_index import find_entry
from changefeed.binlog.kernel.transaction_orders import count_event, uncount_events
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, little_endian, u8, u16, u32

_DUMMY_TABLE = 0xFFFFFF
_NO_FOREIGN_KEY_CHECKS, _SQL_FOREIGN_KEYS = 0x02, 0x10
"""Flags of a rows event: the session had foreign_key_checks=0; MySQL carried foreign keys out itself, and logged it."""
_UNCHECKED, _LOGGED, _BY_INNODB = 1, 2, 3
"""As `records.block.ForeignKeys`."""


@inline
def end_statement(state: Words, flags: int) -> None:
    """Note that a rows event with these flags was read: its statement's last ends what its TABLE_MAPs hold for."""
    if flags & 1:
        state[layout.GENERATION] += 1
        state[layout.STATEMENT_ROW] = 0
        state[layout.QUERY_SIZE] = state[layout.QUERY_COUNTED] = 0


class _Images(NamedTuple):
    """Which columns the images of an event's rows hold, by its bitmaps, and how many."""

    rows: int
    """Where the rows begin; a fault where there are none."""
    columns: int
    present: int
    values: int
    present_after: int
    values_after: int
    """Of the second image of an update; of the only one otherwise."""


@inline
def put_rows(work: Workspace, at: int, body: int, end: int, kind: int) -> int:
    """A WRITE (0), UPDATE (1) or DELETE (2) rows event of version 1 or 2: 0, a code or a fault.

    Body: table id u48, flags u16 (bit 0: end of statement); in version 2 the size of extra data u16, itself included,
    and that data; number of columns (packed), a bitmap of those that the images hold (two bitmaps in an update,
    one for each image), then the rows: an image, or two.
    """
    data, state, words = work.data, work.state, work.words
    operation = (kind - 30) if kind >= 30 else (kind - 23)
    here = _after_header(data, body, end, kind >= 30)
    if here < 0:
        return here
    table_id = little_endian(data, body, 6)
    flags = u16(data, body + 6)
    if table_id == _DUMMY_TABLE and flags & 1:
        state[layout.GENERATION] += 1  # ends a statement whose rows were all left out by a filter of the server
        state[layout.STATEMENT_ROW] = 0
        return 0
    table = _mapped_table(work, table_id)
    if table < 0:
        return table
    if words[table + layout.TABLE_CAPTURED] == layout.PASSED_OVER:
        end_statement(state, flags)
        return 0
    if words[table + layout.TABLE_REWRITE] == 1 and state[layout.INNER] < 2:
        return layout.REWRITE
    images = _read_images(data, here, end, operation, words[table + layout.TABLE_COLUMNS])
    if images.rows < 0:
        return images.rows
    state[layout.FOREIGN_KEYS] = _foreign_keys(words[table + layout.TABLE_FOREIGN_KEYS], flags)
    code = _put_all_rows(work, at, body, end, operation, table, images)
    state[layout.FOREIGN_KEYS] = 0
    if code == 0:
        state[layout.ROW_AT] = 0
        end_statement(state, flags)
    return code


@inline
def _foreign_keys(said: int, flags: int) -> int:
    """What an event with these flags says of foreign keys; 0 where its messages say nothing of them."""
    if said > 0 and flags & _NO_FOREIGN_KEY_CHECKS:
        return _UNCHECKED
    if said < 2:
        return 0
    return _LOGGED if flags & _SQL_FOREIGN_KEYS else _BY_INNODB


@inline
def _after_header(data: Bytes, body: int, end: int, version2: bool) -> int:
    """Where the number of columns is, behind table id, flags and, in version 2, the extra data; or ROW_BYTES."""
    here = body + 8
    if end - body < (11 if version2 else 9):
        return ROW_BYTES
    if version2:
        extra = u16(data, here)
        if extra < 2 or extra > end - here:
            return ROW_BYTES
        here += extra
    return ROW_BYTES if here >= end else here


@inline
def _mapped_table(work: Workspace, table_id: int) -> int:
    """The address of the table that the statement's TABLE_MAP gave this id; or NO_TABLE_MAP."""
    index, state = work.tables, work.state
    slot = find_entry(index, state[layout.INDEX_MASK], table_id)
    if index[slot + layout.ENTRY_ID] == 0 or index[slot + layout.ENTRY_GENERATION] != state[layout.GENERATION]:
        state[layout.NO_TABLE] = table_id
        return NO_TABLE_MAP
    return int(index[slot + layout.ENTRY_TABLE])


@inline
def _read_images(data: Bytes, here: int, end: int, operation: int, expected: int) -> _Images:
    """What the bitmaps say, which begin with the number of columns; ``expected`` is that of the table's TABLE_MAP."""
    columns = u8(data, here)
    here += 1
    if columns == 252:
        if here + 2 > end:
            return _Images(ROW_BYTES, 0, 0, 0, 0, 0)
        columns = u16(data, here)
        here += 2
    if columns != expected:
        return _Images(COLUMN_COUNT, 0, 0, 0, 0, 0)
    bitmap = (columns + 7) >> 3
    present = present_after = here
    if operation == 1:
        present_after = here + bitmap
    here = present_after + bitmap
    if here > end:
        return _Images(ROW_BYTES, 0, 0, 0, 0, 0)
    values = values_after = count_bits(data, present, columns)
    if operation == 1:
        values_after = count_bits(data, present_after, columns)
    return _Images(here, columns, present, values, present_after, values_after)


@inline
def _put_all_rows(work: Workspace, at: int, body: int, end: int, operation: int, table: int, images: _Images) -> int:
    """The rows from the first, or from where the kernel ran out of room in this event: 0, a code or a fault."""
    state, words = work.state, work.words
    here = images.rows
    id_size = begin_messages(work)
    if state[layout.ROW_AT] > 0:
        here = body + state[layout.ROW_AT]
    else:
        if state[layout.INNER] == 0:
            state[layout.ROW] = 0
        state[layout.EVENT_FIRST_ROW] = state[layout.ROW]
    op = layout.READ if operation == 0 and state[layout.READS] == 1 else operation
    captured = words[table + layout.TABLE_CAPTURED] == layout.CAPTURED
    if _lacks_key(work, table, op, images):
        return KEY_ABSENT
    if words[table + layout.TABLE_CONSTANTS] == 1:
        _clear_constants(work, images.columns)
    while here < end:
        begin = here
        here = _read_row(work, here, end, operation, table, images)
        if here < 0:
            return here
        if here == begin:
            return ROW_BYTES  # an image without any column would never end
        changed = operation == 1 and captured and _complete_update(work, table, images)
        if captured:
            fault = _put_row(work, at, table, op, changed, id_size)
            if fault < 0:
                state[layout.ROW_AT] = begin - body
                return layout.ROOM if fault == FULL else fault
            state[layout.STATEMENT_ROW] += 1
        else:
            state[layout.SKIPPED_ROWS] += 1
        state[layout.ROW] += 1
    return 0


@inline
def _lacks_key(work: Workspace, table: int, op: int, images: _Images) -> bool:
    """Whether columns that were chosen as the key are not in the images, of rows that are published."""
    words = work.words
    return (
        words[table + layout.TABLE_KEY_CHOSEN] == 1
        and (words[table + layout.TABLE_SKIPPED] >> op) & 1 == 0
        and images.values != images.columns
        and not holds_key(work.data, images.present, images.columns, words, words[table + layout.TABLE_KEY_COLUMNS])
    )


@inline
def _clear_constants(work: Workspace, columns: int) -> None:
    """Behind the columns of both images is one that is in none of them: what is written there is a constant."""
    for image in range(0, 2 * layout.IMAGE, layout.IMAGE):
        work.scratch[image + columns] = 0
        work.scratch[image + layout.MAX_COLUMNS + columns] = 0


@inline
def _read_row(work: Workspace, here: int, end: int, operation: int, table: int, images: _Images) -> int:
    """Read the image or the two of a row into ``scratch``; where the next row begins, or a fault."""
    specs, columns = work.words[table + layout.TABLE_SPECS], images.columns
    first = 0 if operation != 0 else layout.IMAGE
    whole = images.values == columns
    here = read_image(work, here, end, images.present, whole, columns, images.values, specs, first)
    if here < 0 or operation != 1:
        return here
    whole = images.values_after == columns
    return read_image(work, here, end, images.present_after, whole, columns, images.values_after, specs, layout.IMAGE)


@inline
def _complete_update(work: Workspace, table: int, images: _Images) -> bool:
    """Give the second image what only the first has; whether the row's key changed."""
    changed = key_changed(work, work.words[table + layout.TABLE_KEY_COLUMNS])
    if images.values_after != images.columns:
        complete_image(images.columns, work.scratch)
    return changed


@inline
def _put_row(work: Workspace, at: int, table: int, op: int, changed: bool, id_size: int) -> int:
    """The messages of the row in ``scratch``, and its count; 0, or FULL or a fault with nothing written or counted."""
    counts = work.counts
    counter = layout.COUNTS * work.words[table + layout.TABLE_COUNTER]
    row_op = op
    current = work.words[table + layout.TABLE_CURRENT]
    if current >= 0:
        row_op = op_on_current_rows(work, current, op)
        if row_op < 0:
            return row_op
        if row_op == layout.NO_VALUE:
            counts[counter + layout.OPS + op] += 1
            return 0
    changed = changed and row_op == layout.UPDATE
    kept = _is_kept(work, table, row_op, changed)
    if kept < 0:
        return kept
    if kept == 0:
        counts[counter + layout.OPS + row_op] += 1
        return 0
    fault = _put_messages(work, at, table, layout.KEY_CHANGE if changed else row_op, id_size)
    if fault < 0:
        return fault
    counts[counter + row_op] += 1
    return 0


@inline
def _is_kept(work: Workspace, table: int, op: int, changed: bool) -> int:
    """1 for a row that is published, 0 for one that the pipeline's settings leave out; or a fault."""
    words = work.words
    if (words[table + layout.TABLE_SKIPPED] >> op) & 1:
        return 0
    condition = words[table + layout.TABLE_FILTER]
    if condition >= 0:
        kept = passes(work, condition, op)
        if kept != 1:
            return kept
    watched = words[table + layout.TABLE_UNCHANGED]
    if watched >= 0 and op == layout.UPDATE and not changed:
        unchanged = is_unchanged(work, watched)
        return unchanged if unchanged < 0 else 1 - unchanged
    return 1


@inline
def _put_messages(work: Workspace, at: int, table: int, made: int, id_size: int) -> int:
    """The messages that ``made`` says are made of such a row; 0, or FULL or a fault with none of them written."""
    state, words = work.state, work.words
    seconds = u32(work.data, at)
    server_id = u32(work.data, at + 5)
    out_before = state[layout.OUT]
    messages_before, infos_before = state[layout.MESSAGES], state[layout.COMMIT_INFOS]
    events_before = state[layout.TRANSACTION_EVENTS]
    count = words[table + layout.TABLE_MESSAGES] + layout.MADE * made
    message = count + 1
    for _ in range(words[count]):
        step, op, key_image, headers = words[message], words[message + 1], words[message + 2], words[message + 3]
        if state[layout.TRANSACTION_SIZE] > 0 and op != layout.NO_VALUE:
            count_event(work, table)
        row = state[layout.ROW]
        fault = put_message(work, table, step, op, key_image, headers, id_size, server_id, seconds, row)
        if fault < 0:
            state[layout.OUT] = out_before
            state[layout.MESSAGES] = messages_before
            state[layout.COMMIT_INFOS] = infos_before
            if state[layout.TRANSACTION_SIZE] > 0:
                uncount_events(work, table, events_before)
            return fault
        message += 4
    return 0
