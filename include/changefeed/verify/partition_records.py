"""Reads the records of a partition batch by batch, without an object for each record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from changefeed.errors import BadRecordError
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.records.record_batch import records_in
from changefeed.records.record_index import RecordIndex, build_index
from changefeed.verify.job import OffsetRange, VerifyJob

_TIMEOUT_SECONDS = 60.0

Flags = NDArray[np.bool_]
"""A boolean for each record."""


def records_of(job: VerifyJob, offset_range: OffsetRange) -> Iterator[RecordIndex]:
    """Yield all records of ``offset_range``, by batch.

    Raises what `PartitionReader.to_end` raises, and BadRecordError for a batch that cannot be read.
    """
    ends = {offset_range.topic_partition: offset_range.end}
    with partition_reader(
        job.connections.kafka, [offset_range.topic_partition], "to verify a topic", stored_batches=True, nearest=True
    ) as reader:
        for batch in reader.to_end(ends, timeout_seconds=_TIMEOUT_SECONDS):
            yield _read(batch, job.source_uuid).between(offset_range.first, offset_range.end)


def _read(batch: KafkaRecord, server_uuid: str) -> RecordIndex:
    try:
        return build_index(*records_in(batch.value or b""), server_uuid, batch.offset)
    except ValueError as error:
        raise BadRecordError(
            f"expected a record batch at offset {batch.offset} of partition {batch.partition} of {batch.topic!r}, "
            f"found bytes that cannot be read, though their checksum is correct: {error}. The fault is in the program "
            "that wrote them."
        ) from error
