"""Run comparisons in this process, on Spark or on `InlineSpark`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from faults.inline_spark import InlineSpark

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.verify.comparison import compare
from changefeed.verify.plan import VerifyPlan, plan_verify
from changefeed.verify.report import VerifyReport
from changefeed.verify.stages import SparkStages

WaitUntilPublished = Callable[[BinlogCoordinates], None]


def run_verify(
    connections: PipelineConnections,
    wait_until_published: WaitUntilPublished = lambda _: None,
    *,
    spark: Any = None,
    **asked: Any,
) -> VerifyReport:
    """Plan and run a comparison. Without ``wait_until_published`` the pipeline must have published everything."""
    request = VerifyRequest.of({name: value for name, value in asked.items() if name != "chunk_rows"})
    return verify_planned(
        plan_verify(connections, request, chunk_rows=asked.get("chunk_rows", 20_000)), wait_until_published, spark
    )


def verify_planned(
    planned: VerifyPlan, wait_until_published: WaitUntilPublished = lambda _: None, spark: Any = None
) -> VerifyReport:
    """Run a planned comparison."""
    with closing(SparkStages(spark or InlineSpark())) as stages:
        return compare(planned.job, planned.chunks, stages, wait_until_published)
