"""The partitions of many keys at once."""

from __future__ import annotations

from changefeed.native.compiled import entry
from changefeed.native.crc32 import crc32
from changefeed.native.memory import Bytes, Words
from changefeed.native.murmur2 import partition_of
from changefeed.native.span import length, span


@entry("void(uint8[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def key_partitions(data: Bytes, starts: Words, sizes: Words, id_starts: Words, id_sizes: Words, counts: Words) -> None:
    """Put in place of each of ``counts``, which are numbers of partitions, the partition of the key at ``starts``; of a
    message whose key is null (-1) that of the event id at ``id_starts``, as `changefeed.records.partition` has it."""
    data, starts, sizes = span(data), span(starts), span(sizes)
    id_starts, id_sizes, counts = span(id_starts), span(id_sizes), span(counts)
    for row in range(length(starts)):
        if starts[row] < 0:
            counts[row] = crc32(data, id_starts[row], id_starts[row] + id_sizes[row]) % counts[row]
        else:
            counts[row] = partition_of(data, starts[row], starts[row] + sizes[row], counts[row])
