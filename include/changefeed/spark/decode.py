"""The decode stage: slices -> finished batches, on any worker."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from changefeed import fault_point
from changefeed.block import Block
from changefeed.errors import ChangefeedError
from changefeed.spark import frame
from changefeed.spark.expected import Decoded
from changefeed.spark.job import IngestJob
from changefeed.spark.payload_files import payload_file
from changefeed.window import Slice

if TYPE_CHECKING:
    from changefeed.batches.encoder import BatchEncoder


def encoder_of(job: IngestJob) -> BatchEncoder:
    """What makes batches for the topics of ``job``, as its pipeline says."""
    from changefeed.batches.encoder import BatchEncoder  # only workers encode, and only they load the kernels

    return BatchEncoder(job.pipeline.kafka.publishing, lambda topic: job.topics.of(topic).for_batches())


def decode_batches(job: IngestJob, slices: Iterable[Slice], count: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    """`decoded_rows` as Arrow batches."""
    return frame.decoded_batches(decoded_rows(job, slices, count))


def decoded_rows(job: IngestJob, slices: Iterable[Slice], count: Callable[[int], None]) -> Iterator[frame.DecodedRow]:
    """The decode stage: a row a batch, then the slice's sizes and its report, or its error.

    ``count`` gets the number of messages of each batch.
    """
    from changefeed.spark.readers import reader_of  # as above

    gc.freeze()  # all that was imported: Spark's worker has the collector look at it after each task
    reader = reader_of(job)
    encoder = encoder_of(job)
    with payload_file(job.folder) as file:
        for piece in slices:
            decoded, number = Decoded(), 0
            try:
                for item in reader.read(piece):
                    fault_point.reached("in_decode")
                    if isinstance(item, Block):
                        for batch in encoder.batches(item, number=number):
                            count(batch.messages)
                            yield frame.batch_row(batch, decoded.add_batch(batch), file)
                            number = batch.number + 1
                    else:
                        yield frame.text_row("sizes", decoded.text(), piece.number)
                        yield frame.text_row("report", frame.report_text(item), piece.number)
            except ChangefeedError as error:
                yield frame.text_row("error", frame.error_text(error), piece.number)
