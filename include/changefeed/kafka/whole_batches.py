"""Record batches as they are stored, out of kafka-python's consumer, which hands out records else.

As `client_internals`, it goes through what is inside of kafka-python 3.0.12. Which batches are fetched, from whom,
their checksums, and which belong to aborted transactions stays its business.
"""

from __future__ import annotations

from typing import Any

import kafka
import kafka.errors
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from changefeed.records.compression import MOST_OF_A_LOG, UnpackedTooLargeError, codec_of

_MAGIC = 2
"""Of record batches as they are since Kafka 0.11."""


class _WholeBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A fetched batch that has itself for its only record, so that aborted ones and marks are passed over as ever."""

    def __iter__(self) -> Any:
        if self.is_control_batch:
            return super().__iter__()
        return iter([DefaultRecord(0, self.last_offset, 0, 0, None, bytes(self._buffer), [])])


class UnpackableError(kafka.errors.KafkaError):  # type: ignore[misc]
    """A batch that unpacks to more than it may."""


class _LogBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A fetched batch of a log, that unpacks to no more than MOST_OF_A_LOG."""

    _decompressed: bool
    _buffer: bytearray
    _pos: int

    def _maybe_uncompress(self) -> None:
        if not self._decompressed and self.compression_type:
            packed = memoryview(self._buffer)[self._pos :]
            try:
                plain = codec_of(self.compression_type).decompress(packed, MOST_OF_A_LOG)
            except UnpackedTooLargeError as error:
                raise UnpackableError(f"the batch at offset {self.base_offset} {error}") from error
            self._buffer, self._pos = bytearray(plain), 0
        self._decompressed = True


class _Batches:
    """kafka-python's MemoryRecords, with batches of a class of ours."""

    def __init__(self, records: Any, kind: type[DefaultRecordBatch]) -> None:
        self._records, self._kind = records, kind

    def next_batch(self) -> Any:
        """The next one, None behind the last."""
        batch = self._records.next_batch()
        if batch is not None and batch.magic != _MAGIC:
            raise kafka.errors.UnsupportedVersionError(f"a record batch of magic {batch.magic}, which has no headers")
        return None if batch is None else self._kind(batch._buffer)


class _WholeBatches(Fetcher.PartitionRecords):  # type: ignore[misc]
    def _unpack_records(self, partition: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(partition, _Batches(records, _WholeBatch), *deserializers)


class _LogRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    def _unpack_records(self, partition: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(partition, _Batches(records, _LogBatch), *deserializers)


def bound_batches(consumer: kafka.KafkaConsumer) -> None:
    """From now on a batch that unpacks to more than MOST_OF_A_LOG bytes raises UnpackableError where it is read."""
    consumer._fetcher.PartitionRecords = _LogRecords


def hand_out_batches(consumer: kafka.KafkaConsumer) -> None:
    """From now on a record of ``consumer`` is a whole batch: its value is the batch's bytes, its offset that of the
    batch's last record, from which the consumer goes on."""
    consumer._fetcher.PartitionRecords = _WholeBatches
