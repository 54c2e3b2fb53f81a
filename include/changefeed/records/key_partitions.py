"""A kernel that computes the partitions of many keys."""

from __future__ import annotations

from changefeed.native.compiled import entry
from changefeed.native.crc32 import crc32
from changefeed.native.memory import Bytes, Words
from changefeed.native.murmur2 import partition_of
from changefeed.native.span import length, span


@entry("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def key_partitions(
    data: Bytes, starts: Words, sizes: Words, spread_starts: Words, spread_sizes: Words, shifts: Words, counts: Words
) -> None:
    """Replace each number of partitions in ``counts`` by the partition of the key at ``starts``.

    If the key is null (a start of -1), the partition depends on the text at ``spread_starts``, which is the GTID or
    else the event id, plus ``shifts``. `changefeed.records.partition` does the same.
    """
    data, starts, sizes = span(data), span(starts), span(sizes)
    spread_starts, spread_sizes, shifts, counts = span(spread_starts), span(spread_sizes), span(shifts), span(counts)
    for row in range(length(starts)):
        if starts[row] < 0:
            begin = spread_starts[row]
            counts[row] = (crc32(data, begin, begin + spread_sizes[row]) + shifts[row]) % counts[row]
        else:
            counts[row] = partition_of(data, starts[row], starts[row] + sizes[row], counts[row])
