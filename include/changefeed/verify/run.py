"""Runs a planned comparison, and stores its report in the commit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import orjson

from changefeed.kafka.partition_reader import partition_reader
from changefeed.spark.target import SparkTarget
from changefeed.verify.comparison import compare
from changefeed.verify.job import TableChunk, VerifyJob
from changefeed.verify.key_comparison import KeyResult
from changefeed.verify.plan import VerifyPlan
from changefeed.verify.positions import WaitUntilPublished
from changefeed.verify.report import VerifyReport, first_results, store_report, summary
from changefeed.verify.row_digests import Row
from changefeed.verify.server_rows import ServerRows
from changefeed.verify.stages import SparkStages


@dataclass(frozen=True)
class VerifyResult:
    """A finished comparison: its plan and its report."""

    plan: VerifyPlan
    report: VerifyReport

    def lines(self) -> Iterator[str]:
        """Yield the summary, then the first keys that differ with the rows of both sides, which are read again."""
        yield from summary(self.report)
        yield from describe_differences(self.plan.job, self.plan.chunks, self.report.results)


def verify_topics(
    spark: SparkTarget, plan: VerifyPlan, wait_until_published: WaitUntilPublished, *, run: str = ""
) -> VerifyResult:
    """Compare the server of ``plan`` with the topics, store the report, and return both. ``run`` is the DAG run's id.

    Raises what ``wait_until_published`` and the readers of either side raise.
    """
    with closing(SparkStages(spark)) as stages:
        report = replace(compare(plan.job, plan.chunks, stages, wait_until_published), run=run)
    store_report(plan.job.connections, report)
    return VerifyResult(plan, report)


MOST_SHOWN = 5
"""The maximum number of keys of a table that are shown."""
_TIMEOUT_SECONDS = 30.0


def describe_differences(
    job: VerifyJob,
    chunks: Sequence[TableChunk],
    results: Sequence[KeyResult],
    most: int = MOST_SHOWN,
) -> Iterator[str]:
    """Yield three lines for each of the first ``most`` keys of each table that differ.

    The lines are: the key with its result, the server's current row, and the row of the topic. Masked columns are
    masked in both rows.
    """
    first = first_results(results, most)
    numbered = {chunk.number: chunk for chunk in chunks}
    with ServerRows(job) as server:
        rows = {
            (chunk.table, key): row
            for number in dict.fromkeys(result.chunk for result in first if result.chunk >= 0)
            for chunk in [numbered[number]]
            for key, _, row in server.rows(chunk)
            if any((result.table, result.key) == (chunk.table, key) for result in first)
        }
    for result in first:
        table = job.table(result.table)
        row = rows.get((result.table, result.key))
        after = _read_record(job, result)
        key = orjson.dumps(row or after).decode() if table.without_key else result.key.decode("utf-8", "replace")
        yield f"{table.name} {key}: {result.kind}"
        yield f"  server: {_row_text(row)}"
        where = f", partition {result.partition}, offset {result.offset}" if result.offset >= 0 else ""
        yield f"  topic {table.topic}{where}: {_row_text(after)}"


def _read_record(job: VerifyJob, result: KeyResult) -> Row | None:
    """The row in the record of ``result``; None if the record has no row, or was removed since."""
    if result.offset < 0:
        return None
    partition = (job.table(result.table).topic, result.partition)
    start = {partition: result.offset}
    with partition_reader(job.connections.kafka, [partition], "to show a record", start=start) as reader:
        for record in reader.to_end({partition: result.offset + 1}, timeout_seconds=_TIMEOUT_SECONDS):
            if record.offset == result.offset and record.value is not None:
                change = job.record_reader(job.table(result.table)).of(record.value)[0]
                return change.after or (change.before if job.table(result.table).without_key else None)
    return None


def _row_text(row: Row | None) -> str:
    return "no row" if row is None else orjson.dumps(row).decode()
