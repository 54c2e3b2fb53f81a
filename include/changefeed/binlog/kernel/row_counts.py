"""Counts the rows of each table in a binlog, and the bytes of their events; stops at statements."""

from __future__ import annotations

from changefeed.binlog.kernel.hop import AT, LOOK, READY, is_rows, peek, skip_event
from changefeed.binlog.kernel.images import count_bits
from changefeed.binlog.kernel.layout import ENTRY_ID, ENTRY_TABLE, INDEX_MASK
from changefeed.binlog.kernel.table_index import find_entry, take_table_map
from changefeed.binlog.kernel.transactions import BEGIN, COMMIT, MARIADB_GTID, PREPARED_XA, framing_query
from changefeed.native.compiled import entry, inline
from changefeed.native.memory import Bytes, Words, little_endian, u8, u16, u32

COUNTS = 3
"""Words of a table's counts: its rows, the bytes of their events, and the address of its columns in ``columns``.

At this address: the number of columns (-1: the TABLE_MAP cannot be read); the number of JSON columns; then two words
for each column: the size of its values, and the size of the length before each value.
"""

_QUERY, _TABLE_MAP, _PARTIAL_UPDATE, _PAYLOAD = 2, 19, 39, 40


@inline
def _image_end(data: Bytes, at: int, end: int, present: int, columns: Words, of: int) -> int:
    """The end of the row image at ``at``, at most ``end``."""
    nulls = at
    at += (count_bits(data, present, columns[of]) + 7) >> 3
    bit = 0
    for column in range(columns[of]):
        if at >= end:
            return end
        if (u8(data, present + (column >> 3)) >> (column & 7)) & 1 == 0:
            continue
        if (u8(data, nulls + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            size = columns[of + 2 + 2 * column]
            prefix = columns[of + 3 + 2 * column]
            if prefix > 0:
                if prefix > end - at:
                    return end
                size = little_endian(data, at, prefix)
                at += prefix
            if size > end - at:
                return end
            at += size
        bit += 1
    return at


@inline
def _rows(data: Bytes, body: int, end: int, kind: int, columns: Words, of: int) -> int:
    """The number of rows of an event. In a damaged event the rows up to the damage are counted, and one more."""
    number = columns[of]
    here = body + 8
    if kind >= 30:
        if here + 2 > end:
            return 1
        here += u16(data, here)
    if number < 0 or here + 3 > end:
        return 1
    here += 3 if u8(data, here) == 252 else 1
    bitmap = (number + 7) >> 3
    is_partial = kind == _PARTIAL_UPDATE
    is_update = is_partial or kind == 24 or kind == 31
    present = here
    here += bitmap
    present_after = present
    if is_update:
        present_after = here
        here += bitmap
    rows = 0
    while here < end:  # if this is true, both bitmaps are before ``end``
        begin = here
        here = _image_end(data, here, end, present, columns, of)
        if is_partial and here < end:
            here += 1 + (((columns[of + 1] + 7) >> 3) if u8(data, here) & 1 else 0)
        if is_update and here < end:
            here = _image_end(data, here, end, present_after, columns, of)
        rows += 1
        if here == begin:
            break
    return rows


@entry("int64(uint8[::1], int64, int64[::1], int64)")
def rows_in(data: Bytes, checksum_size: int, columns: Words, of: int) -> int:
    """The number of rows of the rows event ``data``; its table's columns are at ``of``."""
    return _rows(data, 19, len(data) - checksum_size, u8(data, 4), columns, of)


@entry("int64(uint8[::1], int64[::1], int64, int64[::1], int64[::1], uint8[::1], int64[::1], int64[::1])")
def row_counts(
    data: Bytes,
    state: Words,
    checksum_size: int,
    tables: Words,
    index: Words,
    names: Bytes,
    counts: Words,
    columns: Words,
) -> int:
    """Count the rows of each table in ``data``, and the bytes of their events, in ``counts``; returns a code of `hop`.

    ``state`` is that of `hop`. The entries of ``index`` have the addresses of the counts; ``tables`` is the state of
    the index. The code is LOOK for a TABLE_MAP that is not in the index, for a statement other than BEGIN and COMMIT,
    for MariaDB's begin of an XA transaction, and for a compressed event.
    """
    while True:
        code = peek(data, state, checksum_size)
        if code != READY:
            return code
        at = state[AT]
        size = u32(data, at + 9)
        kind = u8(data, at + 4)
        body = at + 19
        end = at + size - checksum_size
        if kind == _TABLE_MAP:
            if take_table_map(data, body, end, tables, index, names) != 0:
                return LOOK
        elif kind == _QUERY:
            step = framing_query(data, body, end)
            if step != BEGIN and step != COMMIT:
                return LOOK
        elif kind == MARIADB_GTID:
            if end - body > 12 and u8(data, body + 12) & PREPARED_XA != 0:
                return LOOK
        elif kind == _PAYLOAD or 165 <= kind <= 171:  # 165 to 171: MariaDB's compressed statements and rows
            return LOOK
        elif is_rows(kind) and end - body >= 6:
            entry_at = find_entry(index, tables[INDEX_MASK], little_endian(data, body, 6))
            if index[entry_at + ENTRY_ID] != 0:
                count = index[entry_at + ENTRY_TABLE]
                counts[count] += _rows(data, body, end, kind, columns, counts[count + 2])
                counts[count + 1] += size
        skip_event(state, size)
