"""verify: a plan -> a report, kept in the commit log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from changefeed.spark.verify_stages import SparkStages
from changefeed.verify.account import keep
from changefeed.verify.comparison import Published, compare
from changefeed.verify.differing import differing_lines
from changefeed.verify.plan import VerifyPlan
from changefeed.verify.report import VerifyReport, summary


@dataclass(frozen=True)
class Verified:
    """A comparison that is done."""

    plan: VerifyPlan
    report: VerifyReport

    def lines(self) -> Iterator[str]:
        """What is to be said of it: the account, and the first keys that differ with both rows, which are read anew."""
        yield from summary(self.report)
        yield from differing_lines(self.plan.job, self.plan.chunks, self.report.verdicts)


def verify_topics(spark: SparkSession, plan: VerifyPlan, published: Published, *, run: str = "") -> Verified:
    """Compare the source with the topics, and keep the report, which names the ``run`` that it is of.

    Raises what ``published`` raises where the pipeline does not come so far, and what reading either side raises.
    """
    with closing(SparkStages(spark)) as stages:
        report = replace(compare(plan.job, plan.chunks, stages, published), run=run)
    keep(plan.job.endpoints, report)
    return Verified(plan, report)
