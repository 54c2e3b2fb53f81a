"""Row images of a rows event: the addresses of their values, and the messages that a table's programs write of them."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.crc32 import crc32
from changefeed.binlog.kernel.faults import FULL, NULL_VALUE, ROW_BYTES, SHORT
from changefeed.binlog.kernel.masks import put_masked
from changefeed.binlog.kernel.memory import STEP, Bytes, Words, copy, copy_short, little_endian, put8, u8, u16, u32
from changefeed.binlog.kernel.murmur2 import partition_of
from changefeed.binlog.kernel.null import put_null
from changefeed.binlog.kernel.numbers import put_number
from changefeed.binlog.kernel.span import length
from changefeed.binlog.kernel.values import put_value
from changefeed.binlog.kernel.varint import put_varint, size_of_varint
from changefeed.binlog.kernel.workspace import Workspace

_ROOM = 256


@inline
def count_bits(data: Bytes, at: int, bits: int) -> int:
    """How many of the first ``bits`` bits are set."""
    count = 0
    for index in range(bits):
        count += (u8(data, at + (index >> 3)) >> (index & 7)) & 1
    return count


@inline
def read_image(
    work: Workspace,
    at: int,
    end: int,
    present: int,
    all_present: bool,
    columns: int,
    values: int,
    specs: int,
    image: int,
) -> int:
    """Note the addresses of the values of the image at ``at``; returns its end, or a fault.

    ``present`` is the address of the event's bitmap of columns, ``values`` the number of bits set in it. An image: a
    bit for each present column (1: NULL), then the values of the others.
    """
    data, words, scratch = work.data, work.words, work.scratch
    nulls = at
    at += (values + 7) >> 3
    if at > end:
        return ROW_BYTES
    bit = 0
    spec = specs
    for column in range(columns):
        if not all_present and (u8(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            scratch[image + column] = layout.ABSENT
        else:
            if (u8(data, nulls + (bit >> 3)) >> (bit & 7)) & 1:
                scratch[image + column] = layout.NULL
            else:
                prefix = words[spec + layout.SPEC_PREFIX]
                size = words[spec + layout.SPEC_FIXED]
                if prefix > 0:
                    if at + prefix > end:
                        return SHORT
                    size = little_endian(data, at, prefix)
                    at += prefix
                if size > end - at:
                    return SHORT
                scratch[image + column] = at
                scratch[image + layout.MAX_COLUMNS + column] = size
                at += size
            bit += 1
        spec += layout.SPEC
    return at


@inline
def holds_key(data: Bytes, present: int, words: Words, key_columns: int) -> bool:
    """Whether the event's bitmap of columns at ``present`` has all columns of the key."""
    for index in range(words[key_columns]):
        column = words[key_columns + 1 + index]
        if (u8(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            return False
    return True


@inline
def complete_image(columns: int, scratch: Words) -> None:
    """Give the after image what it leaves out: a column that is only in the before image did not change."""
    for column in range(columns):
        if scratch[layout.IMAGE + column] == layout.ABSENT:
            scratch[layout.IMAGE + column] = scratch[column]
            scratch[layout.IMAGE + layout.MAX_COLUMNS + column] = scratch[layout.MAX_COLUMNS + column]


@inline
def key_changed(work: Workspace, key_columns: int) -> bool:
    """Whether a column of the primary key has other bytes in the after image."""
    data, words, scratch = work.data, work.words, work.scratch
    for index in range(words[key_columns]):
        column = words[key_columns + 1 + index]
        before = scratch[column]
        after = scratch[layout.IMAGE + column]
        if before < 0 or after < 0:
            if before != after and after != layout.ABSENT:
                return True
            continue
        size = scratch[layout.MAX_COLUMNS + column]
        if size != scratch[layout.IMAGE + layout.MAX_COLUMNS + column]:
            return True
        for byte in range(size):
            if u8(data, before + byte) != u8(data, after + byte):
                return True
    return False


@inline
def _put_row(work: Workspace, at: int, image: int, columns: int, specs: int) -> int:
    """Write the columns of an image that are listed at ``words[columns]``, with separators between them."""
    out, words, scratch = work.out, work.words, work.scratch
    room = length(out)
    skip = words[columns + 1]  # no separator before the first that is written
    for index in range(words[columns]):
        column = words[columns + 2 + index]
        start = scratch[image + column]
        spec = specs + column * layout.SPEC
        if start >= 0:
            size = words[spec + layout.SPEC_VALUE + 1] - skip
            if at + size + _ROOM > room:
                return FULL
            copy_short(out, at, work.literals, words[spec + layout.SPEC_VALUE] + skip, size)
            value = at + size
            end = put_value(work, value, room, start, scratch[image + layout.MAX_COLUMNS + column], spec)
            mask = words[spec + layout.SPEC_MASK]
            if mask >= 0:
                if end == NULL_VALUE:  # a mask is made of text
                    end = put_null(out, value)
                if end >= 0:
                    end = put_masked(out, value, end, room, words, mask, work.literals, scratch)
            if end >= 0:
                at = end
                skip = 0
                continue
            if end != NULL_VALUE:
                return end
            start = layout.NULL
        literal = spec + layout.SPEC_MISSING
        if start == layout.NULL:
            literal = spec + layout.SPEC_NULL
        size = words[literal + 1]
        if size > 0:
            size -= skip
            if at + size + _ROOM > room:
                return FULL
            copy_short(out, at, work.literals, words[literal] + skip, size)
            at += size
            skip = 0
    return at


@inline
def _put_length(out: Bytes, begin: int, end: int) -> int:
    """Put the length of ``out[begin + 1:end]`` before it, where one byte was left for it; the new end, or FULL."""
    size = end - begin - 1
    shift = size_of_varint(size) - 1
    if shift > 0:
        if end + shift > length(out):
            return FULL
        for back in range(1, size + 1):
            put8(out, end + shift - back, u8(out, end - back))
    put_varint(out, begin, size)
    return end + shift


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
def run_program(
    work: Workspace, at: int, program: int, key_image: int, table: int, server_id: int, seconds: int, row: int
) -> int:
    """Write what the program at ``words[program]`` says of the row whose images are in ``scratch``."""
    out, state, words, scratch = work.out, work.state, work.words, work.scratch
    room = length(out)
    specs = words[table + layout.TABLE_SPECS]
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
            at = _put_row(work, at, image, b, specs)
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
            at = put_number(out, at, row)
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
        elif code == layout.OP_QUERY or code == layout.OP_XID:
            size = state[layout.QUERY_SIZE] if code == layout.OP_QUERY else state[layout.XID_SIZE]
            if size == 0:
                if at + b + STEP > room:
                    return FULL
                copy_short(out, at, work.literals, a, b)
                at += b
            else:
                if at + size > room:
                    return FULL
                if code == layout.OP_QUERY:
                    copy(out, at, work.query, 0, size)
                else:
                    copy(out, at, work.texts, layout.XID_TEXT, size)
                at += size
        elif code == layout.OP_PART:
            scratch[layout.PART] = at
            at += 1
        elif code == layout.OP_PART_END:
            at = _put_length(out, scratch[layout.PART], at)
            if at < 0:
                return at
        elif code == layout.OP_GTID_TEXT:
            size = state[layout.GTID_SIZE]
            if at + size > room:
                return FULL
            copy(out, at, work.texts, layout.GTID_TEXT, size)
            at += size
        elif code >= layout.OP_EVENT_TYPE:
            at = _put_event(out, at, work.data, state, code)
    return at


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

    A null key has no partition of its own: such messages are spread by the CRC-32 of their event id, the same at each
    retry (`changefeed.partition` is the same in plain Python).

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
    program = words[table + layout.TABLE_KEY]
    if program >= 0:
        at = run_program(work, at, program, image, table, server_id, seconds, row)
        if at < 0:
            return at
    else:
        null = 1
    key_end = at
    if op < layout.OPS:
        program = words[table + layout.TABLE_VALUES + op]
        at = run_program(work, at, program, image, table, server_id, seconds, row)
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
    if step > 0:
        put8(out, at, 47)
        put8(out, at + 1, 48 + step)
        at += 2
    id_end = at
    if headers >= 0:
        put8(out, at, gtid_size)
        put8(out, at + 1, words[headers])
        copy_short(out, at + 2, texts, layout.GTID_TEXT, gtid_size)
        at = run_program(work, at + 2 + gtid_size, headers + 1, image, table, server_id, seconds, row)
        if at < 0:
            return at
        null |= 4
    else:
        copy_short(out, at, texts, layout.GTID_TEXT, gtid_size)
        at += gtid_size
    partitions = words[table + layout.TABLE_PARTITIONS]
    if null & 1:
        partition = crc32(out, value_end, row_end) % partitions
    else:
        partition = partition_of(out, begin, key_end, partitions)
    work.positions[number] = state[layout.POSITION]
    work.sequences[number] = row << 2 | step
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
