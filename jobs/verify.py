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

from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.spark.session import session
from changefeed.spark.submitted import planned, submitted
from changefeed.verify.plan import plan_verify
from changefeed.verify.positions import check_has_run, wait_for_runs
from changefeed.verify.run import verify_topics

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the request and the name of the run")
ARGUMENTS.add_argument("pipeline")


def compare(given: argparse.Namespace) -> Iterator[str]:
    """Compare, keep the report in the commit log, and say what it says: the first differing keys with both rows."""
    plan = planned(given.plan)
    request = VerifyRequest.of(plan["request"])
    pipeline = load_pipeline(given.pipeline)
    connections = PipelineConnections(pipeline, from_environment)
    check_has_run(connections)
    comparison = plan_verify(connections, request)
    with session(pipeline, "changefeed.verify.run", submitted=True) as spark:
        published = wait_for_runs(connections, request.wait_seconds)
        verified = verify_topics(spark, comparison, published, run=plan["run"])
    yield from verified.lines()


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, compare))
