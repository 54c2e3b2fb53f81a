"""Makes kafka-python's consumer return record batches as they are stored, instead of single records.

Like `client_internals`, this file depends on the internals of kafka-python 3.0.12. kafka-python still chooses the
brokers, fetches the batches, verifies their checksums and skips aborted transactions.
"""

from __future__ import annotations

from typing import Any

import kafka
import kafka.errors
from kafka.consumer.fetcher import Fetcher
from kafka.record.default_records import DefaultRecord, DefaultRecordBatch

from changefeed.records.compression import MOST_OF_A_LOG, UnpackedTooLargeError, codec_of

_MAGIC = 2
"""The magic byte of the record batch format since Kafka 0.11."""


class _StoredBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A fetched batch that returns itself as its only record. kafka-python still skips aborted batches and control
    records."""

    def __iter__(self) -> Any:
        if self.is_control_batch:
            return super().__iter__()
        return iter([DefaultRecord(0, self.last_offset, 0, 0, None, bytes(self._buffer), [])])


class UnpackableError(kafka.errors.KafkaError):  # type: ignore[misc]
    """A batch whose unpacked size exceeds the limit."""


class _LogBatch(DefaultRecordBatch):  # type: ignore[misc]
    """A fetched batch of a log; it raises UnpackableError if it unpacks to more than MOST_OF_A_LOG bytes."""

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
    """kafka-python's MemoryRecords, with batches of the class ``kind``."""

    def __init__(self, records: Any, kind: type[DefaultRecordBatch]) -> None:
        self._records, self._kind = records, kind

    def next_batch(self) -> Any:
        """The next batch, None after the last."""
        batch = self._records.next_batch()
        if batch is not None and batch.magic != _MAGIC:
            raise kafka.errors.UnsupportedVersionError(f"a record batch of magic {batch.magic}, which has no headers")
        return None if batch is None else self._kind(batch._buffer)


class _StoredBatches(Fetcher.PartitionRecords):  # type: ignore[misc]
    def _unpack_records(self, partition: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(partition, _Batches(records, _StoredBatch), *deserializers)


class _LogRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    def _unpack_records(self, partition: Any, records: Any, *deserializers: Any) -> Any:
        return super()._unpack_records(partition, _Batches(records, _LogBatch), *deserializers)


def bound_batches(consumer: kafka.KafkaConsumer) -> None:
    """Make ``consumer`` raise UnpackableError when it reads a batch that unpacks to more than MOST_OF_A_LOG bytes."""
    consumer._fetcher.PartitionRecords = _LogRecords


def return_batches(consumer: kafka.KafkaConsumer) -> None:
    """Make ``consumer`` return a stored batch as one record. Its value is the bytes of the batch, its offset that of
    the batch's last record, after which the consumer continues."""
    consumer._fetcher.PartitionRecords = _StoredBatches
