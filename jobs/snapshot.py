"""Publish a snapshot's rows. Argument: the job's file.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 all tables are published, 2 a terminal error, 1 an error that a retry may resolve. A retry resumes after
the last published chunk.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator

from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.snapshot.planning import SnapshotPlan
from changefeed.snapshot.run import run_snapshot
from changefeed.snapshot.snapshot_status import progress_line
from changefeed.spark.job_file import read_job_file
from changefeed.spark.run_as_job import run_as_job
from changefeed.spark.session import session

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the request, the tables and the snapshot's identity")


def publish(arguments: argparse.Namespace) -> Generator[str]:
    """Publish the remaining chunks of the snapshot; yields one line a round."""
    plan = SnapshotPlan.from_json(read_job_file(arguments.job))
    connections = PipelineConnections(load_pipeline(plan.request.pipeline), from_environment)
    with session(connections.pipeline, "changefeed.snapshot.run", is_submitted=True) as spark:
        for status in run_snapshot(spark, connections, plan):
            yield f"snapshot: {progress_line(status)}{', finished' if status.finished else ''}"


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, publish))
