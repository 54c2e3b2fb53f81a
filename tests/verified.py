"""A comparison in this process, on Spark or on the stand-in of one core."""

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

Published = Callable[[BinlogCoordinates], None]


def verified(
    connections: PipelineConnections, published: Published = lambda _: None, *, spark: Any = None, **asked: Any
) -> VerifyReport:
    """A comparison whose pipeline has published what the source has, unless ``published`` sees to that."""
    request = VerifyRequest.of({name: value for name, value in asked.items() if name != "chunk_rows"})
    return compared(plan_verify(connections, request, chunk_rows=asked.get("chunk_rows", 20_000)), published, spark)


def compared(planned: VerifyPlan, published: Published = lambda _: None, spark: Any = None) -> VerifyReport:
    """The comparison that was planned."""
    with closing(SparkStages(spark or InlineSpark())) as stages:
        return compare(planned.job, planned.chunks, stages, published)
