"""Publish a backfill's window. Argument: the job's file, whose plan also has the root of the archive, which Airflow's
worker checked.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 the window is sealed, 2 a terminal error, 1 an error that a retry may resolve.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator

from changefeed.ingest.window_run import ingest
from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import archive_below
from changefeed.spark.job_file import read_job_file
from changefeed.spark.run_as_job import accept_attempt, claim_timeout, run_as_job
from changefeed.spark.session import session

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the request, the window and the backfill's identity")
accept_attempt(ARGUMENTS)


def publish(arguments: argparse.Namespace) -> Generator[str]:
    """Publish the window to the backfill's topics; yields one line when it is sealed."""
    plan = read_job_file(arguments.job)
    request = BackfillRequest.of(plan["request"])
    connections = PipelineConnections(backfill_pipeline(load_pipeline(request.pipeline), request), from_environment)
    window = Window.from_json(plan["window"])
    archive = archive_below(request.archive, plan.get("archive_roots", [])) if request.archive else None
    with session(connections.pipeline, "changefeed.ingest.run", is_submitted=True) as spark:
        timeout = claim_timeout(arguments, connections.pipeline.kafka.lease_seconds)
        manifest = ingest(
            spark, connections, window, identity=plan["identity"], archive=archive, claim_timeout_seconds=timeout
        )
    yield f"sealed backfill: {manifest.row_count} rows in {manifest.message_count} messages"


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, publish))
