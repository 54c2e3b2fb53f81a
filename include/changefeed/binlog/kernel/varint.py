"""Numbers of varying length, as Kafka's records have them: zigzag, so that small ones of either sign take few bytes.

Source: https://kafka.apache.org/protocol#protocol_types, "VARINT"
"""

from __future__ import annotations

from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.memory import Bytes, put8


@inline
def size_of_varint(value: int) -> int:
    """Bytes of the varint of ``value``, which is not negative."""
    size = 1
    rest = value >> 6
    while rest > 0:
        rest >>= 7
        size += 1
    return size


@inline
def put_varint(out: Bytes, at: int, value: int) -> int:
    """Write ``value`` of either sign; returns where it ends."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        put8(out, at, (rest & 127) | 128)
        rest >>= 7
        at += 1
    put8(out, at, rest)
    return at + 1
