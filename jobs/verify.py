"""Compare the rows of a pipeline's source with its topics. Arguments: the job's file, the pipeline's
name.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 the comparison is complete, whatever its result, 2 a terminal error, 1 an error that a retry may
resolve.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator

from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.spark.job_file import read_job_file
from changefeed.spark.run_as_job import run_as_job
from changefeed.spark.session import session
from changefeed.verify.plan import plan_verify
from changefeed.verify.positions import check_has_run, wait_for_runs
from changefeed.verify.run import verify_topics

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the request and the name of the run")
ARGUMENTS.add_argument("pipeline")


def compare(arguments: argparse.Namespace) -> Generator[str]:
    """Compare, and store the report in the commit log.

    Yields its lines, with the first differing keys and both rows.
    """
    plan = read_job_file(arguments.job)
    request = VerifyRequest.of(plan["request"])
    pipeline = load_pipeline(arguments.pipeline)
    connections = PipelineConnections(pipeline, from_environment)
    check_has_run(connections)
    comparison = plan_verify(connections, request)
    with session(pipeline, "changefeed.verify.run", is_submitted=True) as spark:
        published = wait_for_runs(connections, request.wait_seconds)
        verified = verify_topics(spark, comparison, published, run=plan["run"])
    yield from verified.lines()


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, compare))
