"""The kernel: walks the events of a block, and turns the rows of those it knows into messages.

One call goes on until the block ends or Python is needed: for a TABLE_MAP that is new, for an event that changes
more than rows, for room. What it returns is a code of `layout` or, negative, a fault of `faults`; all that it knows
between calls is in ``state``.
"""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog import layout
from changefeed.binlog.compiled import entry, inline
from changefeed.binlog.crc32 import crc32
from changefeed.binlog.faults import (
    CHECKSUM,
    COLUMN_COUNT,
    EVENT_SIZE,
    FULL,
    NO_TABLE_MAP,
    PAST_END,
    ROW_BYTES,
)
from changefeed.binlog.memory import Bytes, Ends, Words, copy, i64, little_endian, put8, u8, u16, u32
from changefeed.binlog.numbers import put_number
from changefeed.binlog.rows import complete_image, count_bits, key_changed, put_message, read_image

_QUERY, _XID, _TABLE_MAP = 2, 16, 19
_GTID, _ANONYMOUS_GTID, _MARIADB_GTID = 33, 34, 162
_DUMMY_TABLE = 0xFFFFFF
_HEX = b"0123456789abcdef"


@inline
def _same_bytes(a: Bytes, a_at: int, b: Bytes, b_at: int, size: int) -> bool:
    difference = 0
    index = 0
    while index + 8 <= size:
        difference |= i64(a, a_at + index) ^ i64(b, b_at + index)
        index += 8
    while index < size:
        difference |= u8(a, a_at + index) ^ u8(b, b_at + index)
        index += 1
    return difference == 0


@inline
def find_entry(index: Words, mask: int, table_id: int) -> int:
    """Where a table id stands in the index, or the free entry where it would."""
    slot = (table_id ^ (table_id >> 16)) & mask
    while True:
        at = slot * layout.ENTRY
        known = index[at + layout.ENTRY_ID]
        if known == 0 or known == table_id + 1:
            return at
        slot = (slot + 1) & mask


@inline
def _table_map(data: Bytes, body: int, end: int, state: Words, index: Words, literals: Bytes) -> int:
    """Take note of a TABLE_MAP that is known by its bytes; TABLE_WANTED for another."""
    if end - body < 8:
        return ROW_BYTES
    at = find_entry(index, state[layout.INDEX_MASK], little_endian(data, body, 6))
    if index[at + layout.ENTRY_ID] == 0:
        return layout.TABLE_WANTED
    size = index[at + layout.ENTRY_BODY_SIZE]
    if size != end - body - 6 or not _same_bytes(data, body + 6, literals, index[at + layout.ENTRY_BODY], size):
        return layout.TABLE_WANTED
    index[at + layout.ENTRY_GENERATION] = state[layout.GENERATION]
    return 0


@inline
def _gtid(data: Bytes, body: int, end: int, state: Words, texts: Bytes, kind: int) -> int:
    """Take note of the transaction's GTID.

    MySQL: flags u8, uuid [16], number i64. MariaDB: number u64, domain u32, flags u8.
    """
    if end - body < (13 if kind == _MARIADB_GTID else 25):
        return EVENT_SIZE
    if state[layout.IN_TRANSACTION] == 1:
        return layout.EVENT  # Python says what is wrong
    at = layout.GTID_TEXT
    state[layout.IN_TRANSACTION] = 2
    if kind == _ANONYMOUS_GTID:
        state[layout.GTID_SIZE] = 0
        state[layout.GTID_KIND] = 0
        return 0
    if kind == _MARIADB_GTID:
        number = i64(data, body)
        domain = u32(data, body + 8)
        server = u32(data, body - 14)
        if number < 0:
            return EVENT_SIZE
        at = put_number(texts, at, domain)
        put8(texts, at, 45)
        at = put_number(texts, at + 1, server)
        put8(texts, at, 45)
        at = put_number(texts, at + 1, number)
        state[layout.GTID_KIND] = 2
        state[layout.GTID_A] = domain
        state[layout.GTID_B] = server
        state[layout.GTID_NUMBER] = number
        # Bit 0: a statement of its own, without BEGIN and COMMIT. Otherwise this event is the BEGIN.
        if u8(data, body + 12) & 1 == 0:
            state[layout.IN_TRANSACTION] = 1
    else:
        number = i64(data, body + 17)
        if number <= 0:
            return EVENT_SIZE
        for index in range(16):
            if index == 4 or index == 6 or index == 8 or index == 10:
                put8(texts, at, 45)
                at += 1
            byte = u8(data, body + 1 + index)
            put8(texts, at, _HEX[byte >> 4])
            put8(texts, at + 1, _HEX[byte & 15])
            at += 2
        put8(texts, at, 58)
        at = put_number(texts, at + 1, number)
        state[layout.GTID_KIND] = 1
        state[layout.GTID_A] = i64(data, body + 1)
        state[layout.GTID_B] = i64(data, body + 9)
        state[layout.GTID_NUMBER] = number
    state[layout.GTID_SIZE] = at - layout.GTID_TEXT
    return 0


@inline
def end_transaction(state: Words, runs: Words) -> None:
    """Count a transaction and add its GTID to the list, as one more of a run where it follows one."""
    state[layout.TRANSACTIONS] += 1
    kind = state[layout.GTID_KIND]
    number = state[layout.GTID_NUMBER]
    used = state[layout.RUNS]
    if kind != 0:
        found = False
        for back in range(1, 5):
            at = (used - back) * layout.RUN
            if (
                at >= 0
                and runs[at] == kind
                and runs[at + 1] == state[layout.GTID_A]
                and runs[at + 2] == state[layout.GTID_B]
                and runs[at + 4] + 1 == number
            ):
                runs[at + 4] = number
                found = True
                break
        if not found:
            at = used * layout.RUN
            runs[at] = kind
            runs[at + 1] = state[layout.GTID_A]
            runs[at + 2] = state[layout.GTID_B]
            runs[at + 3] = number
            runs[at + 4] = number
            state[layout.RUNS] = used + 1
    state[layout.IN_TRANSACTION] = 0
    state[layout.GTID_KIND] = 0
    state[layout.GTID_SIZE] = 0
    state[layout.QUERY_SIZE] = 0
    state[layout.XID_SIZE] = 0
    state[layout.GENERATION] += 1


@inline
def _begin_or_commit(data: Bytes, body: int, end: int, state: Words, runs: Words) -> int:
    """Take the QUERY events BEGIN and COMMIT; EVENT for another.

    Body: thread u32, seconds u32, size of the database's name u8, error u16, size of the variables u16, variables,
    database, 0, statement.
    """
    if end - body < 13:
        return layout.EVENT
    at = body + 13 + u16(data, body + 11) + u8(data, body + 8) + 1
    if end - at == 5:
        if u32(data, at) == 0x49474542 and u8(data, at + 4) == 0x4E:  # BEGIN
            if state[layout.IN_TRANSACTION] == 1:
                return layout.EVENT
            state[layout.IN_TRANSACTION] = 1
            return 0
    elif end - at == 6 and u32(data, at) == 0x4D4D4F43 and u16(data, at + 4) == 0x5449:  # COMMIT
        end_transaction(state, runs)
        return 0
    return layout.EVENT


@inline
def _rows(
    data: Bytes,
    at: int,
    body: int,
    end: int,
    kind: int,
    state: Words,
    words: Words,
    literals: Bytes,
    index: Words,
    texts: Bytes,
    query: Bytes,
    scratch: Words,
    bytes_scratch: Bytes,
    counts: Words,
    out: Bytes,
    positions: Words,
    sequences: Words,
    groups: Words,
    ends: Ends,
    nulls: Bytes,
) -> int:
    """A WRITE (0), UPDATE (1) or DELETE (2) rows event of version 1 or 2: 0, a code or a fault.

    Body: table id u48, flags u16 (bit 0: end of statement); in version 2 the size of extra data u16, itself included,
    and that data; number of columns (packed), a bitmap of those that the images hold (of an update one for each
    image), then the rows: an image, or two.
    """
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
    slot = find_entry(index, state[layout.INDEX_MASK], table_id)
    if index[slot + layout.ENTRY_ID] == 0 or index[slot + layout.ENTRY_GENERATION] != state[layout.GENERATION]:
        state[layout.NO_TABLE] = table_id
        return NO_TABLE_MAP
    table = index[slot + layout.ENTRY_TABLE]
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
    captured = words[table + layout.TABLE_CAPTURED] == 1
    seconds = u32(data, at)
    server_id = u32(data, at + 5)
    id_size = state[layout.NAMES_SIZE]
    copy(texts, layout.ID_TEXT, texts, layout.NAMES, id_size)
    id_end = put_number(texts, layout.ID_TEXT + id_size, state[layout.POSITION])
    put8(texts, id_end, 47)
    id_size = id_end + 1 - layout.ID_TEXT
    for same in range(layout.MAX_SAME):
        scratch[layout.SAME + 2 * same + 1] = -1
    if state[layout.ROW_AT] > 0:
        here = body + state[layout.ROW_AT]
    elif state[layout.INNER] == 0:
        state[layout.ROW] = 0
    specs = words[table + layout.TABLE_SPECS]
    key_columns = words[table + layout.TABLE_KEY_COLUMNS]
    keyed = words[table + layout.TABLE_KEY] >= 0
    tombstones = keyed and words[table + layout.TABLE_TOMBSTONES] == 1
    counter = words[table + layout.TABLE_COUNTER]
    while here < end:
        row_begin = here
        first_image = 0 if operation != 0 else layout.IMAGE
        here = read_image(
            data, here, end, present, values == columns, columns, values, words, specs, scratch, first_image
        )
        if here < 0:
            return here
        changed = False
        if operation == 1:
            here = read_image(
                data,
                here,
                end,
                present_after,
                values_after == columns,
                columns,
                values_after,
                words,
                specs,
                scratch,
                layout.IMAGE,
            )
            if here < 0:
                return here
            if captured:
                changed = key_changed(data, words, key_columns, scratch)
                if values_after != columns:
                    complete_image(columns, scratch)
        if here == row_begin:
            return ROW_BYTES  # an image without any column would never end
        row = state[layout.ROW]
        if captured:
            out_before = state[layout.OUT]
            messages_before = state[layout.MESSAGES]
            for step in range(3):
                if step == 1 and not (tombstones and (operation == 2 or changed)):
                    continue
                if step == 2 and not changed:
                    break
                message_op = operation
                image = 0 if operation == 2 else layout.IMAGE
                if step == 1:
                    message_op = 3
                    image = 0
                elif step == 2:
                    message_op = 0
                elif changed:
                    message_op = 2
                    image = 0
                fault = put_message(
                    out,
                    table,
                    step,
                    message_op,
                    image,
                    id_size,
                    data,
                    state,
                    server_id,
                    seconds,
                    row,
                    words,
                    literals,
                    texts,
                    query,
                    scratch,
                    bytes_scratch,
                    positions,
                    sequences,
                    groups,
                    ends,
                    nulls,
                )
                if fault < 0:
                    state[layout.OUT] = out_before
                    state[layout.MESSAGES] = messages_before
                    state[layout.ROW_AT] = row_begin - body
                    return layout.ROOM if fault == FULL else fault
            counts[3 * counter + operation] += 1
        else:
            state[layout.SKIPPED_ROWS] += 1
        state[layout.ROW] = row + 1
    state[layout.ROW_AT] = 0
    if flags & 1:
        state[layout.GENERATION] += 1
        state[layout.QUERY_SIZE] = 0
    return 0


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


@entry(
    "int64(uint8[::1], int64[::1], int64[::1], uint8[::1], int64[::1], uint8[::1], uint8[::1], int64[::1], uint8[::1],"
    " int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1], int64[::1], uint32[::1], uint8[::1])"
)
def walk(
    data: Bytes,
    state: Words,
    words: Words,
    literals: Bytes,
    index: Words,
    texts: Bytes,
    query: Bytes,
    scratch: Words,
    bytes_scratch: Bytes,
    counts: Words,
    runs: Words,
    out: Bytes,
    positions: Words,
    sequences: Words,
    groups: Words,
    ends: Ends,
    nulls: Bytes,
) -> int:
    """Go through the events of ``data`` from state[AT] on; returns a code of `layout` or a fault.

    Writes finished messages to ``out`` and the arrays behind it, from state[OUT] and state[MESSAGES] on. Leaves
    state[AT] at the event that it returns for.
    """
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
            code = _table_map(data, body, end, state, index, literals)
        elif (30 <= kind <= 32) or (23 <= kind <= 25):
            code = _rows(
                data,
                at,
                body,
                end,
                kind,
                state,
                words,
                literals,
                index,
                texts,
                query,
                scratch,
                bytes_scratch,
                counts,
                out,
                positions,
                sequences,
                groups,
                ends,
                nulls,
            )
        elif kind == _GTID or kind == _ANONYMOUS_GTID or kind == _MARIADB_GTID:
            code = _gtid(data, body, end, state, texts, kind)
        elif kind == _XID:
            end_transaction(state, runs)
            code = 0
        elif kind == _QUERY:
            code = _begin_or_commit(data, body, end, state, runs)
        if code != 0:
            return code
        if kind != _TABLE_MAP:
            seconds = u32(data, at)
            if state[layout.FIRST_TS] == 0:
                state[layout.FIRST_TS] = seconds
            state[layout.LAST_TS] = seconds
        advance(state, size)
