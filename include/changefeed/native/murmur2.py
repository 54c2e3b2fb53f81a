"""Kafka's hash of a record key.

Source: `org.apache.kafka.common.utils.Utils.murmur2` and `BuiltInPartitioner.partitionForKey`.
"""

from __future__ import annotations

from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, u8, u32

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


@inline
def murmur2(data: Bytes, start: int, end: int) -> int:
    """The 32-bit hash of ``data[start:end]``, unsigned."""
    length = end - start
    h = (0x9747B28C ^ length) & _MASK
    at = start
    while at + 4 <= end:
        k = (u32(data, at) * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
        at += 4
    rest = end - at
    if rest == 3:
        h ^= u8(data, at + 2) << 16
    if rest >= 2:
        h ^= u8(data, at + 1) << 8
    if rest >= 1:
        h = ((h ^ u8(data, at)) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


@inline
def partition_of(data: Bytes, start: int, end: int, partitions: int) -> int:
    """The partition that Kafka's default partitioner chooses for the key ``data[start:end]``."""
    return (murmur2(data, start, end) & 0x7FFFFFFF) % partitions
