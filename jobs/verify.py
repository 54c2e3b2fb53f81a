"""Compare the rows of a pipeline's source with its topics. Arguments: a file with what the task `plan` returned, the
pipeline's name.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when all is judged, whatever the verdict is, 2 with an
error that a retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from changefeed.connection import from_environment
from changefeed.endpoints.endpoints import Endpoints
from changefeed.pipelines.file import load_pipeline
from changefeed.spark.session import session
from changefeed.spark.submitted import planned, submitted
from changefeed.spark.verify import verify_topics
from changefeed.verify.plan import plan_verify
from changefeed.verify.published import check_has_run, wait_for_runs
from changefeed.verify.request import VerifyRequest

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the request and the name of the run")
ARGUMENTS.add_argument("pipeline")


def compare(given: argparse.Namespace) -> Iterator[str]:
    """Compare, keep the report in the commit log, and say what it says: the first differing keys with both rows."""
    plan = planned(given.plan)
    request = VerifyRequest.of(plan["request"])
    pipeline = load_pipeline(given.pipeline)
    endpoints = Endpoints(pipeline, from_environment)
    check_has_run(endpoints)
    comparison = plan_verify(endpoints, request)
    with session(pipeline, submitted=True) as spark:
        published = wait_for_runs(endpoints, request.wait_seconds)
        verified = verify_topics(spark, comparison, published, run=plan["run"])
    yield from verified.lines()


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, compare))
