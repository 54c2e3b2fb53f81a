"""The decode stage: slices -> blocks, on any worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from changefeed.block import Block
from changefeed.errors import ChangefeedError
from changefeed.mysql.catalog import catalog_lookup
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.reference import ReferenceReader
from changefeed.mysql.session import Session
from changefeed.reader import SliceReader, SliceReport
from changefeed.spark import frame
from changefeed.spark.job import IngestJob
from changefeed.window import Slice


def reader_of(job: IngestJob, piece: Slice) -> SliceReader:
    """The reader that the pipeline names."""
    session = Session(job.mysql)
    return ReferenceReader(
        DumpStream(session, file=piece.file, start=piece.start, end=piece.end, server_id=job.server_id(piece.number)),
        is_mariadb=session.is_mariadb,
        version=session.version_number,
        server_uuid=job.window.server_uuid,
        router=job.route,
        schemas=catalog_lookup(lambda: Session(job.mysql)),
        format=job.format(),
    )


def read_slices(job: IngestJob, slices: Iterable[Slice]) -> Iterator[Block | SliceReport]:
    for piece in slices:
        yield from reader_of(job, piece).read(piece)


def decode_batches(job: IngestJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` of the decode stage: a row a block, then the slice's report, or its error."""
    for piece in frame.slices_of(batches):
        try:
            for item in reader_of(job, piece).read(piece):
                if isinstance(item, Block):
                    yield frame.block_batch(item)
                else:
                    yield frame.decoded_text_batch("report", frame.report_text(item), piece.number)
        except ChangefeedError as error:
            yield frame.decoded_text_batch("error", frame.error_text(error), piece.number)
