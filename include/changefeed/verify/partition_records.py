"""The records of a partition, batch by batch: no object is made of a record that nobody asks for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from changefeed.errors import BadRecordError
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader
from changefeed.records.record_batch import records_in
from changefeed.records.record_index import RecordIndex, indexed
from changefeed.verify.job import PartitionPiece, VerifyJob

_PATIENCE_SECONDS = 60.0

Flags = NDArray[np.bool_]
"""Something that each record is or is not."""


def records_of(job: VerifyJob, piece: PartitionPiece) -> Iterator[RecordIndex]:
    """All records of ``piece``. Raises as `PartitionReader.to_end`, and BadRecordError for a batch that is none."""
    ends = {piece.topic_partition: piece.end}
    with partition_reader(
        job.connections.kafka, [piece.topic_partition], "to verify a topic", whole_batches=True, nearest=True
    ) as reader:
        for batch in reader.to_end(ends, patience_seconds=_PATIENCE_SECONDS):
            yield _read(batch, job.source_uuid).between(piece.first, piece.end)


def _read(batch: KafkaRecord, server_uuid: str) -> RecordIndex:
    try:
        return indexed(*records_in(batch.value or b""), server_uuid, batch.offset)
    except ValueError as error:
        raise BadRecordError(
            f"the record batch at offset {batch.offset} of partition {batch.partition} of {batch.topic!r} is none, "
            f"though its checksum is right: {error}. Whoever wrote it is at fault."
        ) from error
