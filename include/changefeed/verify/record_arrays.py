"""The records of a partition, batch by batch, as arrays: no object is made of a record that nobody asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from changefeed.batches.compression import codec_of
from changefeed.batches.record_batch import HEAD, HEAD_BYTES
from changefeed.binlog.kernel import kafka_records as kernel
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.block import GTID_HEADER, ID_HEADER
from changefeed.errors import BadRecordError
from changefeed.kafka.partition_reader import partition_reader
from changefeed.verify.job import PartitionPiece, VerifyJob

_PATIENCE_SECONDS = 60.0
_NAMES = np.frombuffer(bytearray(f"{ID_HEADER}{GTID_HEADER}".encode()), np.uint8)


Flags = NDArray[np.bool_]
"""Something that each record is or is not."""


@dataclass(frozen=True)
class RecordArrays:
    """Records of one batch; ``words`` has a row for each, by `kernel.kafka_records`, ``offsets`` their offsets."""

    data: Bytes
    offsets: Words
    words: Words

    def __len__(self) -> int:
        return len(self.offsets)

    def key(self, number: int) -> bytes | None:
        """The key of a record."""
        return self._part(number, kernel.KEY)

    def value(self, number: int) -> bytes | None:
        """The value of a record."""
        return self._part(number, kernel.VALUE)

    def event_id(self, number: int) -> bytes:
        """What its header says, b"" without one."""
        return self._part(number, kernel.ID) or b""

    def gtid(self, number: int) -> bytes:
        """What its header says, b"" without one."""
        return self._part(number, kernel.GTID) or b""

    def column(self, word: int) -> Words:
        """A word of all of them."""
        column: Words = self.words[:, word]
        return column

    def _part(self, number: int, word: int) -> bytes | None:
        start, end = self.words[number, word : word + 2]
        return None if start < 0 else self.data[start:end].tobytes()


def record_arrays(job: VerifyJob, piece: PartitionPiece) -> Iterator[RecordArrays]:
    """All records of ``piece``. Raises as `PartitionReader.to_end`, and BadRecordError for a batch that is none."""
    ends = {piece.topic_partition: piece.end}
    with partition_reader(
        job.endpoints.kafka, [piece.topic_partition], "to verify a topic", whole_batches=True
    ) as reader:
        for batch in reader.to_end(ends, patience_seconds=_PATIENCE_SECONDS):
            yield _within(_read(batch.value or b"", piece), piece)


def _read(batch: bytes, piece: PartitionPiece) -> RecordArrays:
    base, *_, attributes, _, _, _, _, _, _, count = HEAD.unpack_from(batch)
    records = codec_of(attributes).decompress(memoryview(batch)[HEAD_BYTES:])
    data = np.frombuffer(bytearray(records), np.uint8)
    words = np.empty((count, kernel.RECORD_WORDS), np.int64)
    failed = kernel.read_records(data, count, _NAMES, len(ID_HEADER), words.reshape(-1))
    if failed < 0:
        raise BadRecordError(
            f"the record batch at offset {base} of partition {piece.partition} of {piece.topic!r} is none: its record "
            f"{-1 - failed} of {count} is cut off, though the batch's checksum is right: whoever wrote it is at fault"
        )
    return RecordArrays(data, words[:, kernel.OFFSET] + base, words)


def _within(records: RecordArrays, piece: PartitionPiece) -> RecordArrays:
    inside = (records.offsets >= piece.first) & (records.offsets < piece.end)
    if inside.all():
        return records
    return RecordArrays(records.data, records.offsets[inside], np.ascontiguousarray(records.words[inside]))
