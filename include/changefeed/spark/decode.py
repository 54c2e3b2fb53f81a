"""The decode stage: slices -> blocks, on any worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from changefeed import fault_point
from changefeed.binlog.statements import StatementKind, kind_of
from changefeed.block import Block
from changefeed.errors import ChangefeedError, SourceError
from changefeed.reader import SliceReader, SliceReport
from changefeed.spark import frame
from changefeed.spark.job import IngestJob
from changefeed.spark.readers import reader_of
from changefeed.window import Slice


def read_slices(
    job: IngestJob, slices: Iterable[Slice], reader: SliceReader | None = None
) -> Iterator[Block | SliceReport]:
    """What the pipeline's reader makes of ``slices``.

    Raises what it raises, and SourceError for a change in statement format: its rows are in no event.
    """
    reader = reader or reader_of(job)
    for piece in slices:
        for item in reader.read(piece):
            fault_point.reached("in_decode")
            if isinstance(item, SliceReport) and job.pipeline.source.on_statement == "fail":
                refuse_statements(item)
            yield item


def refuse_statements(report: SliceReport) -> None:
    """Raises SourceError for the first statement that changed rows in statement format."""
    for statement in report.statements:
        if kind_of(statement.sql) is StatementKind.CHANGE and not statement.sql.lstrip()[:4].lower().startswith("set"):
            raise SourceError(
                f"a change in statement format at {statement.file}:{statement.position} (GTID {statement.gtid!r}, "
                f"database {statement.database!r}): {statement.sql[:120]!r}. The binlog does not hold its rows, so "
                "they cannot be published, and the window is not sealed. A session ran with binlog_format=STATEMENT or "
                "MIXED: SET GLOBAL binlog_format = 'ROW', and look for programs that set it. To go on without the "
                "rows of such statements, set source.on_statement: skip."
            )


def decode_batches(job: IngestJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` of the decode stage: a row a block, then the slice's report, or its error."""
    reader = reader_of(job)
    for piece in frame.slices_of(batches):
        try:
            for item in read_slices(job, [piece], reader):
                if isinstance(item, Block):
                    yield frame.block_batch(item)
                else:
                    yield frame.decoded_text_batch("report", frame.report_text(item), piece.number)
        except ChangefeedError as error:
            yield frame.decoded_text_batch("error", frame.error_text(error), piece.number)
