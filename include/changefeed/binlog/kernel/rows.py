"""The messages of a row, as its table's programs write them of its images."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.commit_info import leave_room
from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.crc32 import crc32
from changefeed.binlog.kernel.event_text import put_text
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.memory import STEP, Bytes, Words, copy, copy_short, put8, u8, u16, u32
from changefeed.binlog.kernel.murmur2 import partition_of
from changefeed.binlog.kernel.numbers import put_number
from changefeed.binlog.kernel.row_columns import put_changed, put_literal, put_row
from changefeed.binlog.kernel.span import length
from changefeed.binlog.kernel.temporal import put_timestamp
from changefeed.binlog.kernel.transaction_orders import put_event_counts, put_order
from changefeed.binlog.kernel.varint import put_length, put_varint
from changefeed.binlog.kernel.workspace import Workspace

_ROOM = 256


@inline
def _put_gtid(work: Workspace, at: int, room: int, literals: int) -> int:
    """Write what OP_GTID_SIZED's literals at ``words[literals]`` say, and the GTID; the new end, or FULL."""
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
def _put_event(out: Bytes, at: int, data: Bytes, state: Words, code: int) -> int:
    """Write what ``code`` says of the event at hand, as the source wrote it."""
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
def _commit_time(state: Words, code: int, seconds: int) -> int:
    micros = int(state[layout.COMMIT_MICROS])
    if micros == 0:
        micros = seconds * 1000000
    return micros if code == layout.OP_MICROS else micros // 1000


@inline
def _put_step(out: Bytes, at: int, step: int) -> int:
    """End an event id behind its row: the step, past the first."""
    if step == 0:
        return at
    put8(out, at, 47)
    put8(out, at + 1, 48 + step)
    return at + 2


@inline
def run_program(
    work: Workspace, at: int, program: int, key_image: int, server_id: int, seconds: int, sequence: int
) -> int:
    """Write what the program at ``words[program]`` says of the row whose images are in ``scratch``.

    ``sequence`` is the message's: row << 2 | step.
    """
    out, state, words, scratch = work.out, work.state, work.words, work.scratch
    room = length(out)
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
            if at + b + STEP > room:
                return FULL
            copy_short(out, at, work.literals, a, b)
            at += b
        elif code == layout.OP_OBJECT:
            image = key_image if a == 2 else a * layout.IMAGE
            scratch[layout.OBJECT] = at
            at = put_row(work, at, image, b)
            if at < 0:
                return at
        elif code == layout.OP_SAME:
            written = scratch[layout.SAME + 2 * a + 1]
            if written >= 0:
                if at + written > room:
                    return FULL
                copy(out, at, out, scratch[layout.SAME + 2 * a], written)
                at += written
                op = program + 1 + b * layout.OP
            else:
                scratch[layout.SAME + 2 * a] = at
        elif code == layout.OP_SAME_END:
            scratch[layout.SAME + 2 * a + 1] = at - scratch[layout.SAME + 2 * a]
        elif code == layout.OP_ROW:
            at = put_number(out, at, sequence >> 2)
        elif code == layout.OP_POSITION:
            at = put_number(out, at, state[layout.POSITION])
        elif code == layout.OP_FILE:
            size = state[layout.FILE_SIZE]
            if at + size > room:
                return FULL
            copy(out, at, work.texts, state[layout.FILE_AT], size)
            at += size
        elif code == layout.OP_GTID:
            size = state[layout.GTID_SIZE]
            if size == 0:
                if at + b + STEP > room:
                    return FULL
                copy_short(out, at, work.literals, a, b)
                at += b
            else:
                put8(out, at, 34)
                copy(out, at + 1, work.texts, layout.GTID_TEXT, size)
                put8(out, at + 1 + size, 34)
                at += size + 2
        elif code == layout.OP_SERVER_ID:
            at = put_number(out, at, server_id)
        elif code == layout.OP_TS:
            at = put_number(out, at, seconds)
        elif code == layout.OP_QUERY or code == layout.OP_QUERY_COUNTED:
            counted = code == layout.OP_QUERY_COUNTED
            at = put_text(work, at, room, work.query, 0, layout.QUERY_SIZE, counted, a, b)
            if at < 0:
                return at
        elif code == layout.OP_XID or code == layout.OP_XID_COUNTED:
            counted = code == layout.OP_XID_COUNTED
            at = put_text(work, at, room, work.texts, layout.XID_TEXT, layout.XID_SIZE, counted, a, b)
            if at < 0:
                return at
        elif code == layout.OP_PART:
            scratch[layout.PART] = at
            at += 1
        elif code == layout.OP_PART_END:
            at = put_length(out, scratch[layout.PART], 1, at)
            if at < 0:
                return at
        elif code == layout.OP_TEXT:
            size = state[a]
            if at + size > room:
                return FULL
            copy(out, at, work.texts, b, size)
            at += size
        elif code == layout.OP_CHANGED:
            at = put_changed(work, at, b, b + 6)
            if at < 0:
                return at
        elif code == layout.OP_SEPARATOR:
            if at > scratch[layout.OBJECT]:
                copy_short(out, at, work.literals, a, b)
                at += b
        elif code == layout.OP_EVENT_ID:
            size = state[layout.ID_SIZE]
            if at + size + _ROOM > room:
                return FULL
            copy_short(out, at, work.texts, layout.ID_TEXT, size)
            at = _put_step(out, put_number(out, at + size, sequence >> 2), sequence & 3)
        elif code == layout.OP_TIME:
            at = put_timestamp(out, at, seconds, 0, 0, 84)
            put8(out, at, 90)
            at += 1
        elif code == layout.OP_SEQUENCE:
            at = put_number(out, at, (state[layout.FILE_NUMBER] << 40) + state[layout.POSITION] + (sequence >> 2))
        elif code == layout.OP_THREAD:
            if state[layout.THREAD] > 0:
                at = put_number(out, at, state[layout.THREAD])
            else:
                copy_short(out, at, work.literals, a, b)
                at += b
        elif code == layout.OP_MILLIS or code == layout.OP_MICROS:
            at = put_number(out, at, _commit_time(state, code, seconds))
        elif code == layout.OP_COMMIT_INFO:
            leave_room(work, at, a)
        elif code == layout.OP_LONG:
            value = state[layout.POSITION]
            if a == layout.OP_ROW:
                value = sequence >> 2
            elif a == layout.OP_SERVER_ID:
                value = server_id
            elif a == layout.OP_TS:
                value = seconds
            elif a == layout.OP_MILLIS or a == layout.OP_MICROS:
                value = _commit_time(state, a, seconds)
            at = put_varint(out, at, value * b)
        elif code == layout.OP_GTID_SIZED:
            at = _put_gtid(work, at, room, a)
            if at < 0:
                return at
        elif code == layout.OP_TRANSACTION:
            at = put_order(work, at, a)
            if at < 0:
                return at
        elif code == layout.OP_EVENT_COUNT:
            at = put_number(out, at, state[layout.TRANSACTION_EVENTS])
        elif code == layout.OP_EVENT_COUNTS:
            at = put_event_counts(work, at)
            if at < 0:
                return at
        else:
            at = _put_event(out, at, work.data, state, code)
    return at


@inline
def begin_messages(work: Workspace) -> int:
    """Prepare for the messages of the event at hand: the beginning of their ids, whose size is returned, and nothing
    that is the same in all of them."""
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
    """Write one message of a row: key, value, event id, GTID, headers. 0, FULL or a fault.

    Its partition is the table's, or follows from columns that were chosen for it, or from the key. A null key has no
    partition of its own: such messages are spread by the CRC-32 of their event id, the same at each retry
    (`changefeed.partition` is the same in plain Python).

    ``op`` chooses the value's program (`layout.CREATE` …, or NO_VALUE for a tombstone), ``image`` is the one that the
    key is of, ``headers`` is the address of the message's headers, or -1.
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
    if at + id_size + gtid_size + 64 > room:
        return FULL
    copy_short(out, at, texts, layout.ID_TEXT, id_size)
    at = put_number(out, at + id_size, row)
    row_end = at
    at = _put_step(out, at, step)
    id_end = at
    if headers >= 0:
        put8(out, at, gtid_size)
        put8(out, at + 1, words[headers])
        copy_short(out, at + 2, texts, layout.GTID_TEXT, gtid_size)
        at = run_program(work, at + 2 + gtid_size, headers + 1, image, server_id, seconds, sequence)
        if at < 0:
            return at
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
        end = run_program(work, at, program, image, server_id, seconds, sequence)  # behind the message, for a moment
        if end < 0:
            return end
        partition = partition_of(out, at, end, partitions)
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
