"""How many row events of each table a binlog has, and their bytes; and where it has statements."""

# ruff: noqa: SIM109 - numba compiles a chain of == into jumps, and `in` into a loop
from __future__ import annotations

from changefeed.binlog.kernel.compiled import entry
from changefeed.binlog.kernel.hop import AT, LOOK, READY, is_rows, pass_over, peek
from changefeed.binlog.kernel.layout import ENTRY_ID, ENTRY_TABLE, INDEX_MASK
from changefeed.binlog.kernel.memory import Bytes, Words, little_endian, u8, u32
from changefeed.binlog.kernel.table_index import find_entry, take_table_map
from changefeed.binlog.kernel.transactions import BEGIN, COMMIT, framing_query

_QUERY, _TABLE_MAP, _PAYLOAD, _MARIADB_QUERY_COMPRESSED = 2, 19, 40, 165


@entry("int64(uint8[::1], int64[::1], int64, int64[::1], int64[::1], uint8[::1], int64[::1])")
def row_counts(
    data: Bytes, state: Words, checksum_size: int, tables: Words, index: Words, names: Bytes, counts: Words
) -> int:
    """Go over the events of ``data``; count the rows events of each table, and their bytes, in two words of ``counts``.

    ``state`` is that of `hop`; ``tables`` is the state that ``index`` was made with, whose entries say where a table's
    words are. LOOK for a TABLE_MAP that is not in it, for a statement that does not frame a transaction, and for a
    compressed transaction.
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
        elif kind == _MARIADB_QUERY_COMPRESSED or kind == _PAYLOAD:
            return LOOK
        elif is_rows(kind) and end - body >= 6:
            entry_at = find_entry(index, tables[INDEX_MASK], little_endian(data, body, 6))
            if index[entry_at + ENTRY_ID] != 0:
                counts[index[entry_at + ENTRY_TABLE]] += 1
                counts[index[entry_at + ENTRY_TABLE] + 1] += size
        pass_over(state, size)
