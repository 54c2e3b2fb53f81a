"""Writes the messages of a row by its table's programs."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.commit_info import leave_room
from changefeed.binlog.kernel.event_text import put_text
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.row_columns import put_changed, put_literal, put_row
from changefeed.binlog.kernel.temporal import put_timestamp
from changefeed.binlog.kernel.transaction_orders import put_event_counts, put_order
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.crc32 import crc32
from changefeed.native.memory import STEP, Bytes, Words, copy, copy_short, put8, u8, u16, u32
from changefeed.native.murmur2 import partition_of
from changefeed.native.numbers import put_number
from changefeed.native.span import length
from changefeed.native.varint import put_length, put_varint

_ROOM = 256


@inline
def _put_gtid(work: Workspace, at: int, room: int, a: int, b: int) -> int:
    """Write the GTID as a JSON string, or without a GTID the literal at ``a`` of size ``b``; the new end, or FULL."""
    size = work.state[layout.GTID_SIZE]
    if size == 0:
        return _put_literal_at(work, at, room, a, b)
    put8(work.out, at, 34)
    copy(work.out, at + 1, work.texts, layout.GTID_TEXT, size)
    put8(work.out, at + 1 + size, 34)
    return at + int(size) + 2


@inline
def _put_gtid_sized(work: Workspace, at: int, room: int, literals: int) -> int:
    """Write OP_GTID_SIZED's literals at ``words[literals]``, and the GTID; the new end, or FULL."""
    size = work.state[layout.GTID_SIZE]
    if size == 0:
        return put_literal(work.out, at, room, work.words, literals, work.literals)
    at = put_literal(work.out, at, room, work.words, literals + 2, work.literals)
    if at < 0 or at + size + STEP > room:
        return FULL
    at = put_varint(work.out, at, size)
    copy(work.out, at, work.texts, layout.GTID_TEXT, size)
    return at + int(size)


@inline
def _put_literal_at(work: Workspace, at: int, room: int, a: int, size: int) -> int:
    """Write the literal at ``a``; the new end, or FULL."""
    if at + size + STEP > room:
        return FULL
    copy_short(work.out, at, work.literals, a, size)
    return at + size


@inline
def _put_stored_text(work: Workspace, at: int, room: int, a: int, size: int) -> int:
    """Write the text of ``size`` bytes at ``texts[a]``; the new end, or FULL."""
    if at + size > room:
        return FULL
    copy(work.out, at, work.texts, a, size)
    return at + size


@inline
def _put_event(out: Bytes, at: int, data: Bytes, state: Words, code: int) -> int:
    """Write the property of the current event that the op ``code`` names, as the source wrote it."""
    header = state[layout.AT]
    if code == layout.OP_EVENT_FLAGS:
        return put_number(out, at, u16(data, header + 17))
    if code == layout.OP_EVENT_TYPE:
        kind = state[layout.EVENT_TYPE]
        return put_number(out, at, kind if kind > 0 else u8(data, header + 4))
    if code == layout.OP_EVENT_END and state[layout.INNER] > 0:
        return put_number(out, at, state[layout.EVENT_END])
    size = state[layout.EVENT_SIZE]
    if size == 0:
        size = u32(data, header + 9)
    if code == layout.OP_EVENT_END:
        size += state[layout.POSITION]
    return put_number(out, at, size)


@inline
def _number(state: Words, code: int, server_id: int, seconds: int, row: int) -> int:
    """The number that the op ``code`` writes; also for OP_LONG, whose parameter is such a code."""
    if code == layout.OP_ROW:
        return row
    if code == layout.OP_STATEMENT_ROW:
        return int(state[layout.STATEMENT_ROW])
    if code == layout.OP_EVENT_FIRST_ROW:
        return int(state[layout.EVENT_FIRST_ROW])
    if code == layout.OP_SERVER_ID:
        return server_id
    if code == layout.OP_TS:
        return seconds
    if code == layout.OP_SEQUENCE:
        return int((state[layout.FILE_NUMBER] << 40) + state[layout.POSITION] + row)
    if code == layout.OP_POSITION:
        return int(state[layout.POSITION])
    micros = int(state[layout.COMMIT_MICROS])
    if micros == 0:
        micros = seconds * 1000000
    return micros if code == layout.OP_MICROS else micros // 1000


@inline
def _put_row_number(out: Bytes, at: int, state: Words, row: int) -> int:
    """Write the row's number in an event id, and the index of its change unless that is 0."""
    at = put_number(out, at, row)
    if state[layout.SPLIT_PART] == 0:
        return at
    put8(out, at, 46)
    return put_number(out, at + 1, state[layout.SPLIT_PART])


@inline
def _put_step(out: Bytes, at: int, step: int) -> int:
    """Write the end of an event id: the step, unless it is 0."""
    if step == 0:
        return at
    put8(out, at, 47)
    put8(out, at + 1, 48 + step)
    return at + 2


@inline
def _put_event_id(work: Workspace, at: int, room: int, sequence: int) -> int:
    """Write the id of the message; the new end, or FULL."""
    size = work.state[layout.ID_SIZE]
    if at + size + _ROOM > room:
        return FULL
    copy_short(work.out, at, work.texts, layout.ID_TEXT, size)
    return _put_step(work.out, _put_row_number(work.out, at + int(size), work.state, sequence >> 2), sequence & 3)


@inline
def run_program(
    work: Workspace, at: int, program: int, key_image: int, server_id: int, seconds: int, sequence: int
) -> int:
    """Run the program at ``words[program]`` on the row whose images are in ``scratch``; the new end, FULL or a fault.

    ``sequence`` is the number of the message within its event: row << 2 | step.
    """
    words, scratch = work.words, work.scratch
    room = length(work.out)
    op = program + 1
    stop = op + words[program] * layout.OP
    while op < stop:
        code = words[op]
        a = words[op + 1]
        b = words[op + 2]
        op += layout.OP
        if at + _ROOM > room:
            return FULL
        if code == layout.OP_LITERAL:
            at = _put_literal_at(work, at, room, a, b)
        elif code == layout.OP_OBJECT:
            scratch[layout.OBJECT] = at
            at = put_row(work, at, key_image if a == 2 else a * layout.IMAGE, b)
        elif code == layout.OP_SAME:
            written = scratch[layout.SAME + 2 * a + 1]
            if written < 0:
                scratch[layout.SAME + 2 * a] = at
            elif at + written > room:
                return FULL
            else:
                copy(work.out, at, work.out, scratch[layout.SAME + 2 * a], written)
                at += written
                op = program + 1 + b * layout.OP
        elif code == layout.OP_SAME_END:
            scratch[layout.SAME + 2 * a + 1] = at - scratch[layout.SAME + 2 * a]
        elif code == layout.OP_SEPARATOR:
            if at > scratch[layout.OBJECT]:
                at = _put_literal_at(work, at, room, a, b)
        elif code == layout.OP_PART:
            scratch[layout.PART] = at
            at += 1
        elif code == layout.OP_PART_END:
            at = put_length(work.out, scratch[layout.PART], 1, at)
        elif code == layout.OP_LONG:
            at = put_varint(work.out, at, _number(work.state, a, server_id, seconds, sequence >> 2) * b)
        elif code == layout.OP_GTID:
            at = _put_gtid(work, at, room, a, b)
        elif code == layout.OP_EVENT_ID:
            at = _put_event_id(work, at, room, sequence)
        elif _is_number(code):
            at = put_number(work.out, at, _number(work.state, code, server_id, seconds, sequence >> 2))
        else:
            at = _put_source(work, at, room, code, a, b, seconds)
        if at < 0:
            return at
    return at


@inline
def _is_number(code: int) -> bool:
    return (
        code == layout.OP_ROW
        or code == layout.OP_STATEMENT_ROW
        or code == layout.OP_EVENT_FIRST_ROW
        or code == layout.OP_POSITION
        or code == layout.OP_SERVER_ID
        or code == layout.OP_TS
        or code == layout.OP_SEQUENCE
        or code == layout.OP_MILLIS
        or code == layout.OP_MICROS
    )


@inline
def _put_source(work: Workspace, at: int, room: int, code: int, a: int, b: int, seconds: int) -> int:
    """Write the property that the op ``code`` names: of the file, statement or transaction. The new end, or FULL."""
    out, state = work.out, work.state
    if code == layout.OP_FILE:
        return _put_stored_text(work, at, room, state[layout.FILE_AT], state[layout.FILE_SIZE])
    if code == layout.OP_TEXT:
        return _put_stored_text(work, at, room, b, state[a])
    if code == layout.OP_QUERY or code == layout.OP_QUERY_COUNTED:
        counted = code == layout.OP_QUERY_COUNTED
        return put_text(work, at, room, work.query, 0, layout.QUERY_SIZE, counted, a, b)
    if code == layout.OP_XID or code == layout.OP_XID_COUNTED:
        counted = code == layout.OP_XID_COUNTED
        return put_text(work, at, room, work.texts, layout.XID_TEXT, layout.XID_SIZE, counted, a, b)
    if code == layout.OP_CHANGED:
        return put_changed(work, at, b, b + 6)
    if code == layout.OP_TIME:
        at = put_timestamp(out, at, seconds, 0, 0, 84)
        put8(out, at, 90)
        return at + 1
    if code == layout.OP_THREAD:
        if state[layout.THREAD] > 0:
            return put_number(out, at, state[layout.THREAD])
        return _put_literal_at(work, at, room, a, b)
    if code == layout.OP_COMMIT_INFO:
        leave_room(work, at, a)
        return at
    if code == layout.OP_GTID_SIZED:
        return _put_gtid_sized(work, at, room, a)
    if code == layout.OP_PARTITION_INFO:
        return _put_partition_info(work, at, room, a)
    if code == layout.OP_TRANSACTION:
        return put_order(work, at, a)
    if code == layout.OP_EVENT_COUNT:
        return put_number(out, at, state[layout.TRANSACTION_EVENTS])
    if code == layout.OP_EVENT_COUNTS:
        return put_event_counts(work, at)
    return _put_event(out, at, work.data, state, code)


@inline
def _put_partition_info(work: Workspace, at: int, room: int, a: int) -> int:
    """Write the ids of the event's partitions, each after its literal; the new end, or FULL."""
    state, words = work.state, work.words
    for number in range(2):
        partition = state[layout.PARTITION_ID + number]
        if partition > 0:
            at = _put_literal_at(work, at, room, words[a + 2 * number], words[a + 2 * number + 1])
            if at < 0 or at + _ROOM > room:
                return FULL
            at = put_number(work.out, at, partition - 1)
    return at


@inline
def begin_messages(work: Workspace) -> int:
    """Write the beginning of the event ids of the current event's messages; returns its size."""
    state, texts, scratch = work.state, work.texts, work.scratch
    size = state[layout.NAMES_SIZE]
    copy(texts, layout.ID_TEXT, texts, layout.NAMES, size)
    end = put_number(texts, layout.ID_TEXT + size, state[layout.POSITION])
    put8(texts, end, 47)
    size = end + 1 - layout.ID_TEXT
    state[layout.ID_SIZE] = size
    for same in range(layout.MAX_SAME):
        scratch[layout.SAME + 2 * same + 1] = -1
    return int(size)


@inline
def put_message(
    work: Workspace,
    table: int,
    step: int,
    op: int,
    image: int,
    headers: int,
    id_size: int,
    server_id: int,
    seconds: int,
    row: int,
) -> int:
    """Write one message of a row: key, value, event id, GTID, headers; returns 0, FULL or a fault.

    The message's partition is the first of these that applies (`changefeed.records.partition` is the same in plain
    Python):

    1. the partition of the table, if it has one;
    2. a hash of the columns that are chosen for the partition;
    3. a hash of the key, unless the key is null or has the row's coordinates, which differ on each server;
    4. a hash of the GTID and the row's number in its statement, which are the same on each server;
    5. without a GTID a hash of the event id if the key is null, else of the key: both are the same at each retry.

    ``op`` chooses the value's program (`layout.CREATE` …, or NO_VALUE for a tombstone), ``image`` is the image of the
    key, ``headers`` is the address of the message's headers, or -1.
    """
    out, state, words, texts = work.out, work.state, work.words, work.texts
    number = state[layout.MESSAGES]
    if number >= length(work.positions):
        return FULL
    room = length(out)
    begin = state[layout.OUT]
    at = begin
    null = 0
    sequence = row << 2 | step
    program = words[table + layout.TABLE_KEY]
    if program >= 0:
        at = run_program(work, at, program, image, server_id, seconds, sequence)
        if at < 0:
            return at
    else:
        null = 1
    key_end = at
    if op < layout.OPS:
        program = words[table + layout.TABLE_VALUES + op]
        at = run_program(work, at, program, image, server_id, seconds, sequence)
        if at < 0:
            return at
    else:
        null |= 2
    value_end = at
    gtid_size = state[layout.GTID_SIZE]
    if at + id_size + gtid_size + 64 + layout.FOREIGN_KEYS_TEXT > room:
        return FULL
    copy_short(out, at, texts, layout.ID_TEXT, id_size)
    at = _put_row_number(out, at + id_size, state, row)
    row_end = at
    at = _put_step(out, at, step)
    id_end = at
    foreign_keys = state[layout.FOREIGN_KEYS]
    if headers >= 0 or foreign_keys > 0:
        put8(out, at, gtid_size)
        put8(out, at + 1, (words[headers] if headers >= 0 else 0) + (1 if foreign_keys > 0 else 0))
        copy_short(out, at + 2, texts, layout.GTID_TEXT, gtid_size)
        at += 2 + int(gtid_size)
        if headers >= 0:
            at = run_program(work, at, headers + 1, image, server_id, seconds, sequence)
        if at < 0:
            return at
        if at + layout.FOREIGN_KEYS_TEXT > room:
            return FULL
        if foreign_keys > 0:
            text = layout.FOREIGN_KEYS_TEXTS + layout.FOREIGN_KEYS_TEXT * foreign_keys
            copy(out, at, texts, text + 1, u8(texts, text))
            at += int(u8(texts, text))
        null |= 4
    else:
        copy_short(out, at, texts, layout.GTID_TEXT, gtid_size)
        at += gtid_size
    partitions = words[table + layout.TABLE_PARTITIONS]
    partition = words[table + layout.TABLE_PARTITION]
    program = words[table + layout.TABLE_PARTITION_PROGRAM]
    if partition >= 0:
        pass
    elif program >= 0:
        end = run_program(work, at, program, image, server_id, seconds, sequence)  # into free space after the message
        if end < 0:
            return end
        partition = partition_of(out, at, end, partitions)
    elif gtid_size > 0 and ((null & 1) or words[table + layout.TABLE_SPREAD] == 1):
        at_gtid = layout.GTID_TEXT
        partition = (crc32(texts, at_gtid, at_gtid + gtid_size) + state[layout.STATEMENT_ROW]) % partitions
    elif null & 1:
        partition = crc32(out, value_end, row_end) % partitions
    else:
        partition = partition_of(out, begin, key_end, partitions)
    work.positions[number] = state[layout.POSITION]
    work.sequences[number] = sequence
    work.groups[number] = words[table + layout.TABLE_GROUP] + partition
    work.ends[4 * number] = key_end
    work.ends[4 * number + 1] = value_end
    work.ends[4 * number + 2] = id_end
    work.ends[4 * number + 3] = at
    work.seconds[number] = seconds
    work.nulls[number] = null
    state[layout.OUT] = at
    state[layout.MESSAGES] = number + 1
    return 0
