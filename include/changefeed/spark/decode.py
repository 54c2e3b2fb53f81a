"""The decode stage: slices -> blocks, on any worker."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from changefeed import fault_point
from changefeed.block import Block
from changefeed.errors import ChangefeedError
from changefeed.spark import frame
from changefeed.spark.expected import Decoded
from changefeed.spark.job import IngestJob
from changefeed.window import Slice


def decode_batches(
    job: IngestJob, batches: Iterable[pa.RecordBatch], count: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` of the decode stage: a row a block, then the slice's sizes and its report, or its error.

    ``count`` gets the number of messages of each block.
    """
    gc.freeze()  # all that was imported: Spark's worker has the collector look at it after each task
    return frame.decoded_batches(_rows(job, frame.slices_of(batches), count))


def _rows(job: IngestJob, slices: Iterable[Slice], count: Callable[[int], None]) -> Iterator[frame.DecodedRow]:
    from changefeed.spark.readers import reader_of  # only workers read, and only they load the kernels

    reader = reader_of(job)
    for piece in slices:
        decoded = Decoded()
        try:
            for item in reader.read(piece):
                fault_point.reached("in_decode")
                if isinstance(item, Block):
                    count(item.message_count)
                    yield frame.block_row(item, decoded.add_block(item))
                else:
                    yield frame.text_row("sizes", decoded.text(), piece.number)
                    yield frame.text_row("report", frame.report_text(item), piece.number)
        except ChangefeedError as error:
            yield frame.text_row("error", frame.error_text(error), piece.number)
