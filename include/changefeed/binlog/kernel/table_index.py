"""The index of table maps: the row program of each table id.

The kernel reads it for each rows event, and compares the bytes of each TABLE_MAP with it. Python adds new table maps.
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import ROW_BYTES
from changefeed.native.compiled import inline, python_of
from changefeed.native.memory import Bytes, Words, i64, little_endian, u8


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
    """Address of a table id's entry, or of the free entry that it would take."""
    slot = (table_id ^ (table_id >> 16)) & mask
    while True:
        at = slot * layout.ENTRY
        known = index[at + layout.ENTRY_ID]
        if known == 0 or known == table_id + 1:
            return at
        slot = (slot + 1) & mask


@inline
def take_table_map(data: Bytes, body: int, end: int, state: Words, index: Words, literals: Bytes) -> int:
    """Process a TABLE_MAP with known bytes: its table id is valid from now on. NEW_TABLE_MAP for unknown bytes."""
    if end - body < 8:
        return ROW_BYTES
    at = find_entry(index, state[layout.INDEX_MASK], little_endian(data, body, 6))
    if index[at + layout.ENTRY_ID] == 0:
        return layout.NEW_TABLE_MAP
    size = index[at + layout.ENTRY_BODY_SIZE]
    if size != end - body - 6 or not _same_bytes(data, body + 6, literals, index[at + layout.ENTRY_BODY], size):
        return layout.NEW_TABLE_MAP
    index[at + layout.ENTRY_GENERATION] = state[layout.GENERATION]
    return 0


_find = python_of(find_entry)


class TableIndex:
    """The index of one slice. In ``state`` the kernel reads the index's mask and the number of the statement."""

    def __init__(self, state: Words) -> None:
        self.words: Words = np.zeros(layout.ENTRY * 1024, np.int64)
        self._state = state
        self._entries = 0
        state[layout.INDEX_MASK] = 1023

    def put(self, table_id: int, table: int, body: int, body_size: int) -> None:
        """Store the table's header at ``table`` for the TABLE_MAP whose bytes are at ``body`` in the program memory."""
        if 2 * self._entries >= len(self.words) // layout.ENTRY:
            self._grow()
        at = self._at(table_id)
        if self.words[at] == 0:
            self._entries += 1
        self.words[at : at + layout.ENTRY] = (table_id + 1, table, body, body_size, self._state[layout.GENERATION])

    def table(self, table_id: int) -> int | None:
        """Address of the table's header; None if the current statement has no TABLE_MAP of the table."""
        at = self._at(table_id)
        if self.words[at] == 0 or self.words[at + layout.ENTRY_GENERATION] != self._state[layout.GENERATION]:
            return None
        return int(self.words[at + layout.ENTRY_TABLE])

    def clear(self) -> None:
        """Remove all entries, so that Python processes each table map again."""
        self.words[:] = 0
        self._entries = 0

    def _at(self, table_id: int) -> int:
        return _find(self.words, int(self._state[layout.INDEX_MASK]), table_id)

    def _grow(self) -> None:
        old = self.words
        self.words = np.zeros(2 * len(old), np.int64)
        self._state[layout.INDEX_MASK] = len(self.words) // layout.ENTRY - 1
        for at in range(0, len(old), layout.ENTRY):
            if old[at]:
                to = self._at(int(old[at]) - 1)
                self.words[to : to + layout.ENTRY] = old[at : at + layout.ENTRY]
