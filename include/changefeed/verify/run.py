"""verify: a plan -> a report, kept in the commit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import orjson

from changefeed.kafka.partition_reader import partition_reader
from changefeed.spark.target import SparkTarget
from changefeed.verify.comparison import compare
from changefeed.verify.job import TableChunk, VerifyJob
from changefeed.verify.key_comparison import Verdict
from changefeed.verify.plan import VerifyPlan
from changefeed.verify.positions import Published
from changefeed.verify.report import VerifyReport, first_of, keep_report, summary
from changefeed.verify.row_digests import Row
from changefeed.verify.server_rows import ServerRows
from changefeed.verify.stages import SparkStages


@dataclass(frozen=True)
class Verified:
    """A comparison that is done."""

    plan: VerifyPlan
    report: VerifyReport

    def lines(self) -> Iterator[str]:
        """What is to be said of it: the account, and the first keys that differ with both rows, which are read anew."""
        yield from summary(self.report)
        yield from differing_lines(self.plan.job, self.plan.chunks, self.report.verdicts)


def verify_topics(spark: SparkTarget, plan: VerifyPlan, published: Published, *, run: str = "") -> Verified:
    """Compare the source with the topics, and keep the report, which names the ``run`` that it is of.

    Raises what ``published`` raises where the pipeline does not come so far, and what reading either side raises.
    """
    with closing(SparkStages(spark)) as stages:
        report = replace(compare(plan.job, plan.chunks, stages, published), run=run)
    keep_report(plan.job.connections, report)
    return Verified(plan, report)


MOST_SHOWN = 5
"""So many keys of a table."""
_PATIENCE_SECONDS = 30.0


def differing_lines(
    job: VerifyJob,
    chunks: Sequence[TableChunk],
    verdicts: Sequence[Verdict],
    most: int = MOST_SHOWN,
) -> Iterator[str]:
    """Three lines for each of the first keys of a table: the key and what became of it, the server's row as it is now,
    and what the topic has. Masked columns are masked in both."""
    first = first_of(verdicts, most)
    numbered = {chunk.number: chunk for chunk in chunks}
    with ServerRows(job) as server:
        rows = {
            (chunk.table, key): row
            for number in dict.fromkeys(verdict.chunk for verdict in first if verdict.chunk >= 0)
            for chunk in [numbered[number]]
            for key, _, row in server.rows(chunk)
            if any((verdict.table, verdict.key) == (chunk.table, key) for verdict in first)
        }
    for verdict in first:
        table = job.table(verdict.table)
        row = rows.get((verdict.table, verdict.key))
        after = _published(job, verdict)
        key = orjson.dumps(row or after).decode() if table.without_key else verdict.key.decode("utf-8", "replace")
        yield f"{table.name} {key}: {verdict.kind}"
        yield f"  server: {_text(row)}"
        where = f", partition {verdict.partition}, offset {verdict.offset}" if verdict.offset >= 0 else ""
        yield f"  topic {table.topic}{where}: {_text(after)}"


def _published(job: VerifyJob, verdict: Verdict) -> Row | None:
    """The row as the record has it; None where it has none, or none is there any more."""
    if verdict.offset < 0:
        return None
    partition = (job.table(verdict.table).topic, verdict.partition)
    start = {partition: verdict.offset}
    with partition_reader(job.connections.kafka, [partition], "to show a record", start=start) as reader:
        for record in reader.to_end({partition: verdict.offset + 1}, patience_seconds=_PATIENCE_SECONDS):
            if record.offset == verdict.offset and record.value is not None:
                change = job.record_reader(job.table(verdict.table)).of(record.value)[0]
                return change.after or (change.before if job.table(verdict.table).without_key else None)
    return None


def _text(row: Row | None) -> str:
    return "no row" if row is None else orjson.dumps(row).decode()
