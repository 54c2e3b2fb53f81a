"""The checksum of binlog events: zlib's CRC-32, computed in steps of sixteen bytes.

Source: https://dev.mysql.com/doc/refman/9.7/en/replication-options-binary-log.html#sysvar_binlog_checksum
"""

from __future__ import annotations

import numpy as np

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, i64, shift_right, u8, u32

_STEP = 16


def _tables() -> Bytes:
    """For each byte of a step, the contribution of each of its values to the checksum, as words of 32 bits."""
    tables = np.zeros((_STEP, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, _STEP):
        before = tables[table - 1]
        tables[table] = before >> 8 ^ tables[0][before & 0xFF]
    return tables.reshape(-1).view(np.uint8).copy()


_TABLES = _tables()


@inline
def _table_entry(table: int, byte: int) -> int:
    return u32(_TABLES, (table << 10) + (byte << 2))


@inline
def _of_word(table: int, word: int) -> int:
    """The contribution of the eight bytes of a word. The table of the first byte is the one with the highest number."""
    return (
        _table_entry(table + 7, word & 255)
        ^ _table_entry(table + 6, (word >> 8) & 255)
        ^ _table_entry(table + 5, (word >> 16) & 255)
        ^ _table_entry(table + 4, (word >> 24) & 255)
        ^ _table_entry(table + 3, (word >> 32) & 255)
        ^ _table_entry(table + 2, (word >> 40) & 255)
        ^ _table_entry(table + 1, (word >> 48) & 255)
        ^ _table_entry(table, shift_right(word, 56))
    )


@inline
def crc32(data: Bytes, start: int, end: int) -> int:
    """The CRC-32 of ``data[start:end]``."""
    crc = 0xFFFFFFFF
    at = start
    while at + _STEP <= end:
        crc = _of_word(8, i64(data, at) ^ crc) ^ _of_word(0, i64(data, at + 8))
        at += _STEP
    while at < end:
        crc = crc >> 8 ^ _table_entry(0, (crc ^ u8(data, at)) & 255)
        at += 1
    return crc ^ 0xFFFFFFFF
