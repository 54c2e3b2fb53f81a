"""The checksum of binlog events: zlib's CRC-32, eight bytes at a step.

Source: https://dev.mysql.com/doc/refman/9.7/en/replication-options-binary-log.html#sysvar_binlog_checksum
"""

from __future__ import annotations

import numpy as np

from changefeed.binlog.compiled import inline
from changefeed.binlog.memory import Bytes, Words, i64, shift_right, u8


def _tables() -> Words:
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        tables[0, byte] = value
    for byte in range(256):
        for table in range(1, 8):
            before = int(tables[table - 1, byte])
            tables[table, byte] = before >> 8 ^ int(tables[0, before & 0xFF])
    return tables.reshape(-1)


_TABLES = _tables()


@inline
def crc32(data: Bytes, start: int, end: int) -> int:
    """The checksum of ``data[start:end]``."""
    crc = 0xFFFFFFFF
    at = start
    while at + 8 <= end:
        word = i64(data, at) ^ int(crc)
        crc = (
            _TABLES[1792 + (word & 255)]
            ^ _TABLES[1536 + ((word >> 8) & 255)]
            ^ _TABLES[1280 + ((word >> 16) & 255)]
            ^ _TABLES[1024 + ((word >> 24) & 255)]
            ^ _TABLES[768 + ((word >> 32) & 255)]
            ^ _TABLES[512 + ((word >> 40) & 255)]
            ^ _TABLES[256 + ((word >> 48) & 255)]
            ^ _TABLES[shift_right(word, 56)]
        )
        at += 8
    while at < end:
        crc = crc >> 8 ^ _TABLES[(crc ^ u8(data, at)) & 255]
        at += 1
    return crc ^ 0xFFFFFFFF
