"""The Kafka partition of a key, in plain Python: the reference for the kernel.

Source: `org.apache.kafka.common.utils.Utils.murmur2` and `BuiltInPartitioner.partitionForKey`.
"""

from __future__ import annotations

from zlib import crc32

_SEED, _M, _MASK = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a key, unsigned."""
    value = (_SEED ^ len(data)) & _MASK
    words_end = len(data) & ~3
    for at in range(0, words_end, 4):
        word = (int.from_bytes(data[at : at + 4], "little") * _M) & _MASK
        word = ((word ^ word >> 24) * _M) & _MASK
        value = ((value * _M) & _MASK) ^ word
    if rest := data[words_end:]:
        value = ((value ^ int.from_bytes(rest, "little")) * _M) & _MASK
    value = ((value ^ value >> 13) * _M) & _MASK
    return value ^ value >> 15


def partition_of(
    key: bytes | None, event_id: bytes, partitions: int, *, gtid: bytes = b"", statement_row: int = 0
) -> int:
    """The partition that Kafka's default partitioner chooses for a key. Messages with a null key are spread.

    With a GTID, the partition of a null key depends on ``gtid`` and ``statement_row``, the row's number in its
    statement. Both are the same on each server with the transaction, so that a failover finds the messages in the same
    partitions. Without a GTID it depends on the event id, which is the same at each retry.
    """
    if key is not None:
        return (murmur2(key) & 0x7FFFFFFF) % partitions
    return (crc32(gtid) + statement_row if gtid else crc32(event_id)) % partitions
