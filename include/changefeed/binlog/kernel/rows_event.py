"""Rows events: writes the messages of each row."""

from __future__ import annotations

from typing import NamedTuple

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import COLUMN_COUNT, FULL, KEY_ABSENT, NO_TABLE_MAP, ROW_BYTES
from changefeed.binlog.kernel.images import complete_image, count_bits, holds_key, key_changed, read_image
from changefeed.binlog.kernel.row_columns import is_unchanged
from changefeed.binlog.kernel.row_filter import op_on_current_rows, passes_filter
from changefeed.binlog.kernel.rows import begin_messages, put_message
from changefeed.binlog.kernel.table_index import find_entry
from changefeed.binlog.kernel.transaction_orders import count_event, uncount_events
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, little_endian, u8, u16, u32

_DUMMY_TABLE = 0xFFFFFF
_NO_FOREIGN_KEY_CHECKS, _SQL_FOREIGN_KEYS = 0x02, 0x10
"""Flags of a rows event. The first: the session had foreign_key_checks=0. The second: MySQL itself executed the foreign
keys, and logged the rows that they changed."""
_PARTITION = 1
"""The type of extra data that has the partition."""
_UNCHECKED, _LOGGED, _BY_INNODB = 1, 2, 3
"""Values of `records.block.ForeignKeys`."""


@inline
def end_statement(state: Words, flags: int) -> None:
    """End a rows event with these ``flags``. After the last rows event of a statement its TABLE_MAPs are not valid."""
    if flags & 1:
        state[layout.GENERATION] += 1
        state[layout.STATEMENT_ROW] = 0
        state[layout.QUERY_SIZE] = state[layout.QUERY_COUNTED] = 0


class _Images(NamedTuple):
    """The columns that an event's row images have, from the event's bitmaps."""

    rows: int
    """Where the rows begin; or a fault."""
    columns: int
    present: int
    values: int
    present_after: int
    values_after: int
    """Bitmap and number of columns of the second image of an update; for other events those of the only image."""


@inline
def put_rows(work: Workspace, at: int, body: int, end: int, kind: int) -> int:
    """Write the messages of a rows event of version 1 or 2; returns 0, a code of `layout`, or a fault.

    ``kind`` is the event's type: WRITE, UPDATE or DELETE of one of the versions.

    Body: table id u48, flags u16 (bit 0: end of statement); in version 2 the size of extra data u16, which includes the
    size itself, and the extra data; number of columns (packed); a bitmap of the columns that the images have; then the
    rows. A row has one image, in an update two. An update has a bitmap for each image.
    """
    data, state, words = work.data, work.state, work.words
    operation = (kind - 30) if kind >= 30 else (kind - 23)
    here = _after_header(data, body, end, kind >= 30)
    if here < 0:
        return here
    table_id = little_endian(data, body, 6)
    flags = u16(data, body + 6)
    if table_id == _DUMMY_TABLE and flags & 1:
        state[layout.GENERATION] += 1  # the end of a statement whose rows were all omitted by a filter of the server
        state[layout.STATEMENT_ROW] = 0
        return 0
    table = _mapped_table(work, table_id)
    if table < 0:
        return table
    if words[table + layout.TABLE_CAPTURED] == layout.SKIPPED:
        end_statement(state, flags)
        return 0
    if words[table + layout.TABLE_REWRITE] == 1 and state[layout.INNER] < 2:
        return layout.REWRITE
    if not _read_partitions(data, state, body + 10, here if kind >= 30 else 0, operation == 1):
        return ROW_BYTES
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
def _foreign_keys(setting: int, flags: int) -> int:
    """The `ForeignKeys` of an event with these flags; 0 if its messages have no such header."""
    if setting > 0 and flags & _NO_FOREIGN_KEY_CHECKS:
        return _UNCHECKED
    if setting < 2:
        return 0
    return _LOGGED if flags & _SQL_FOREIGN_KEYS else _BY_INNODB


@inline
def _after_header(data: Bytes, body: int, end: int, version2: bool) -> int:
    """The address of the number of columns; ROW_BYTES, a fault, if the event ends before it.

    Table id, flags and, in version 2, the extra data are before it.
    """
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
def _read_partitions(data: Bytes, state: Words, at: int, end: int, is_update: bool) -> bool:
    """Read the partition from the extra data in [at, end); False if it ends too early.

    Extra data: type u8 (1: partition; other types are skipped), id of the partition u16; in an update also the id of
    the partition before the update, u16.
    """
    state[layout.PARTITION_ID] = state[layout.SOURCE_PARTITION_ID] = 0
    if at >= end or u8(data, at) != _PARTITION:
        return True
    if at + (5 if is_update else 3) > end:
        return False
    state[layout.PARTITION_ID] = 1 + u16(data, at + 1)
    if is_update:
        state[layout.SOURCE_PARTITION_ID] = 1 + u16(data, at + 3)
    return True


@inline
def _mapped_table(work: Workspace, table_id: int) -> int:
    """The address of the table with this id in the statement's TABLE_MAPs; or NO_TABLE_MAP."""
    index, state = work.tables, work.state
    slot = find_entry(index, state[layout.INDEX_MASK], table_id)
    if index[slot + layout.ENTRY_ID] == 0 or index[slot + layout.ENTRY_GENERATION] != state[layout.GENERATION]:
        state[layout.NO_TABLE] = table_id
        return NO_TABLE_MAP
    return int(index[slot + layout.ENTRY_TABLE])


@inline
def _read_images(data: Bytes, here: int, end: int, operation: int, expected: int) -> _Images:
    """Read the number of columns and the bitmaps; ``expected`` is the number of columns of the TABLE_MAP."""
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
    """Write the rows of an event; returns 0, a code of `layout` or a fault.

    If the room ended within this event before, the kernel continues with the next row.
    """
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
    if _is_key_missing(work, table, op, images):
        return KEY_ABSENT
    if words[table + layout.TABLE_CONSTANTS] == 1:
        _clear_constants(work, images.columns)
    while here < end:
        begin = here
        here = _read_row(work, here, end, operation, table, images)
        if here < 0:
            return here
        if here == begin:
            return ROW_BYTES  # images without columns have no bytes: the rows would never end
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
def _is_key_missing(work: Workspace, table: int, op: int, images: _Images) -> bool:
    """Whether a column that was chosen for the key is missing in the images, and the rows are published."""
    words = work.words
    return (
        words[table + layout.TABLE_KEY_CHOSEN] == 1
        and (words[table + layout.TABLE_SKIPPED] >> op) & 1 == 0
        and images.values != images.columns
        and not holds_key(work.data, images.present, images.columns, words, words[table + layout.TABLE_KEY_COLUMNS])
    )


@inline
def _clear_constants(work: Workspace, columns: int) -> None:
    """Clear the value of the constant column, which is after the columns of the images, in both images."""
    for image in range(0, 2 * layout.IMAGE, layout.IMAGE):
        work.scratch[image + columns] = 0
        work.scratch[image + layout.MAX_COLUMNS + columns] = 0


@inline
def _read_row(work: Workspace, here: int, end: int, operation: int, table: int, images: _Images) -> int:
    """Read one or two images of a row into ``scratch``; returns the address of the next row, or a fault."""
    specs, columns = work.words[table + layout.TABLE_SPECS], images.columns
    first = 0 if operation != 0 else layout.IMAGE
    all_present = images.values == columns
    here = read_image(work, here, end, images.present, all_present, columns, images.values, specs, first)
    if here < 0 or operation != 1:
        return here
    all_present = images.values_after == columns
    return read_image(
        work, here, end, images.present_after, all_present, columns, images.values_after, specs, layout.IMAGE
    )


@inline
def _complete_update(work: Workspace, table: int, images: _Images) -> bool:
    """Add to the second image the columns that only the first has; returns whether the row's key changed."""
    changed = key_changed(work, work.words[table + layout.TABLE_KEY_COLUMNS])
    if images.values_after != images.columns:
        complete_image(images.columns, work.scratch)
    return changed


@inline
def _put_row(work: Workspace, at: int, table: int, op: int, changed: bool, id_size: int) -> int:
    """Write and count the row in ``scratch``; 0, or FULL or a fault with nothing written or counted."""
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
    published = _is_published(work, table, row_op, changed)
    if published < 0:
        return published
    if published == 0:
        counts[counter + layout.OPS + row_op] += 1
        return 0
    fault = _put_messages(work, at, table, layout.KEY_CHANGE if changed else row_op, id_size)
    if fault < 0:
        return fault
    counts[counter + row_op] += 1
    return 0


@inline
def _is_published(work: Workspace, table: int, op: int, changed: bool) -> int:
    """1 if the row is published, 0 if the pipeline's settings exclude it; or a fault."""
    words = work.words
    if (words[table + layout.TABLE_SKIPPED] >> op) & 1:
        return 0
    condition = words[table + layout.TABLE_FILTER]
    if condition >= 0:
        published = passes_filter(work, condition, op)
        if published != 1:
            return published
    watched = words[table + layout.TABLE_UNCHANGED]
    if watched >= 0 and op == layout.UPDATE and not changed:
        unchanged = is_unchanged(work, watched)
        return unchanged if unchanged < 0 else 1 - unchanged
    return 1


@inline
def _put_messages(work: Workspace, at: int, table: int, change: int, id_size: int) -> int:
    """Write the messages of a change of kind ``change``; 0, or FULL or a fault with none of them written."""
    state, words = work.state, work.words
    seconds = u32(work.data, at)
    server_id = u32(work.data, at + 5)
    out_before = state[layout.OUT]
    messages_before, infos_before = state[layout.MESSAGES], state[layout.COMMIT_INFOS]
    events_before = state[layout.TRANSACTION_EVENTS]
    count = words[table + layout.TABLE_MESSAGES] + layout.CHANGE_WORDS * change
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
