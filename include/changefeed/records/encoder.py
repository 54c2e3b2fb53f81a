"""The encoder of message blocks into finished record batches."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator

import lz4.block
import numpy as np

from changefeed.model.publish_settings import PublishSettings
from changefeed.records import record_writer as kernel
from changefeed.records.batch import Batch
from changefeed.records.batch_limits import BatchLimits
from changefeed.records.block import GTID_HEADER, ID_HEADER, Arrays, MessageBlock, gtid_of
from changefeed.records.compression import CODECS
from changefeed.records.record_batch import HEAD_BYTES, Times, record_batch

_NAMES = [b"%c%b" % (2 * len(name), name.encode()) for name in (ID_HEADER, GTID_HEADER)]
"""The names of the headers, each after its length as a zigzag varint of one byte."""
_FULL = 0.9
"""Fill level of a batch whose compressed size is estimated from the previous batch."""


class BatchEncoder:
    """Encodes blocks into batches. Each task has its own encoder, because an encoder has buffers.

    - The encoder calls ``limits_of`` once for each topic. A batch does not exceed the topic's limit, except for a
      single message that is too large.
    - If the broker sets a compression for the topic, batches use it.
    - The timestamp of a record is the time of its event, if the settings say so and the topic accepts it. Otherwise it
      is the time of encoding. It is never in the future.
    """

    def __init__(self, settings: PublishSettings, limits_of: Callable[[str], BatchLimits]) -> None:
        self._settings, self._limits_of = settings, limits_of
        self._limits: dict[str, BatchLimits] = {}
        self._shrinks: dict[str, float] = {}
        self._out = np.empty(0, np.uint8)
        self._names = np.frombuffer(bytearray(b"".join(_NAMES)), np.uint8)

    def batches(self, block: MessageBlock, number: int = 0) -> Iterator[Batch]:
        """Yield the messages of ``block`` in batches, which are numbered from ``number`` on."""
        arrays = block.arrays()
        sizes = _Sizes(arrays)
        first, count = 0, len(arrays.positions)
        while first < count:
            last = self._last(block.topic, sizes, first, count)
            batch = self._batch(block, arrays, sizes, first, last, number)
            while len(batch.records) > self._limits[block.topic].largest_bytes and last - first > 1:
                last = self._last(block.topic, sizes, first, (first + last) // 2)
                batch = self._batch(block, arrays, sizes, first, last, number)
            yield batch
            first, number = last, number + 1

    def _last(self, topic: str, sizes: _Sizes, first: int, count: int) -> int:
        """The end of the batch that begins with message ``first``, estimated by the compression of earlier batches."""
        if topic not in self._limits:
            self._limits[topic] = self._limits_of(topic)
        room = _FULL * self._limits[topic].largest_bytes / self._shrinks.get(topic, 0.01)
        size_bytes = min(self._settings.batch_bytes, max(1, int(room)))
        last = min(sizes.last_within(first, size_bytes), first + self._settings.transaction_rows, count)
        return max(last, first + 1)

    def _batch(self, block: MessageBlock, arrays: Arrays, sizes: _Sizes, first: int, last: int, number: int) -> Batch:
        raw, times = self._records(block.topic, arrays, first, last)
        compression = self._limits[block.topic].compression or self._settings.compression
        level = self._settings.compression_level if compression == self._settings.compression else None
        codec = CODECS[compression]
        compressed = codec.compress(raw, level)
        if len(compressed) >= len(raw):
            codec, compressed = CODECS["none"], bytes(raw)
        records = record_batch(compressed, last - first, codec, times)
        self._shrinks[block.topic] = len(records) / (len(raw) + HEAD_BYTES)
        gtid, gtid_messages = _last_transaction(arrays, first, last)
        coordinates = b"".join((arrays.positions[first:last], arrays.sequences[first:last]))
        return Batch(
            block.topic,
            block.partition,
            block.origin,
            block.slice,
            number,
            last - first,
            sizes.value_bytes(first, last),
            sizes.largest(first, last),
            gtid,
            gtid_messages,
            lz4.block.compress(coordinates),
            records,
        )

    def _records(self, topic: str, arrays: Arrays, first: int, last: int) -> tuple[memoryview, Times]:
        """The uncompressed records, which are valid until the next call, and their times."""
        now_ms = int(time.time() * 1000)
        earliest = max(1, self._limits[topic].oldest_seconds) if self._settings.timestamps == "event" else 1 << 40
        times = np.array([earliest, now_ms // 1000, now_ms, 0, 0], np.int64)
        size = arrays.ends[4 * last - 1] - (arrays.ends[4 * first - 1] if first else 0)
        room = size + (last - first) * kernel.RECORD_ROOM
        if len(self._out) < room:
            self._out = np.empty(room, np.uint8)
        size = kernel.put_records(
            first,
            last,
            np.frombuffer(arrays.ends, np.uint32),
            np.frombuffer(arrays.seconds, np.uint32),
            np.frombuffer(arrays.nulls, np.uint8),
            np.frombuffer(arrays.data, np.uint8),
            self._names,
            times,
            self._out,
            len(_NAMES[0]),
        )
        return self._out[:size].data, Times(int(times[kernel.FIRST]), int(times[kernel.GREATEST]))


class _Sizes:
    """The begin and end of each message of a block in the block's data."""

    def __init__(self, arrays: Arrays) -> None:
        ends = np.frombuffer(arrays.ends, np.uint32).astype(np.int64).reshape(-1, 4)
        self._values = ends[:, 1] - ends[:, 0]
        self._ends = ends[:, 3]
        self._sizes = np.diff(self._ends, prepend=0)

    def last_within(self, first: int, size_bytes: int) -> int:
        """The index after the last message that ends within ``size_bytes`` from the begin of message ``first``."""
        begin = int(self._ends[first - 1]) if first else 0
        return int(np.searchsorted(self._ends, begin + size_bytes, side="right"))

    def value_bytes(self, first: int, last: int) -> int:
        """The bytes of the values of messages ``first`` to ``last`` - 1."""
        return int(self._values[first:last].sum())

    def largest(self, first: int, last: int) -> int:
        """The bytes of key, value and headers of the largest of messages ``first`` to ``last`` - 1."""
        return int(self._sizes[first:last].max())


def _last_transaction(arrays: Arrays, first: int, last: int) -> tuple[bytes, int]:
    """The GTID of the last message, and the number of messages at the end that have it.

    The messages of a transaction are contiguous, so a binary search finds the begin of the last transaction.
    """
    ends, data, nulls = arrays.ends, arrays.data, arrays.nulls

    def gtid(index: int) -> bytes:
        return gtid_of(data[ends[4 * index + 2] : ends[4 * index + 3]], nulls[index])

    its = gtid(last - 1)
    begin = bisect_left(range(first, last), True, key=lambda index: gtid(index) == its)
    return its, last - first - begin
