"""The numbers of a Kafka record: zigzag, seven bits a byte, the lowest first.

Source: https://kafka.apache.org/documentation/#record
"""

from __future__ import annotations

from changefeed.binlog.kernel.compiled import inline
from changefeed.binlog.kernel.memory import Bytes, shift_right, u8

CUT = -1
"""Where a number ends that is cut off."""


@inline
def kafka_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends: CUT where it does not."""
    value = 0
    shift = 0
    while at < end and shift < 64:
        byte = u8(data, at)
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return shift_right(value, 1) ^ -(value & 1), at
        shift += 7
    return 0, CUT
