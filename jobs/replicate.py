"""Apply changes to a follower up to the pipeline's low watermark. Arguments: the job's file, the pipeline's name.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 the follower is at the low watermark, 2 a terminal error, 1 an error that a retry may resolve.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator

from changefeed.model.connection import from_environment
from changefeed.model.topic_name import schema_changes_topic
from changefeed.pipeline.connections import PipelineConnections, mysql_connection
from changefeed.replicate.run import replicate
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline_settings import OnStatement
from changefeed.settings.requests.replicate import ReplicateRequest
from changefeed.spark.job_file import read_job_file
from changefeed.spark.job_result import write_result
from changefeed.spark.run_as_job import run_as_job

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the follower, its databases and sessions")
ARGUMENTS.add_argument("pipeline")


def apply(arguments: argparse.Namespace) -> Generator[str]:
    """Apply new changes.

    Yields the range when the follower is at the watermark, and tables that wait for a snapshot.
    """
    request = ReplicateRequest.of(read_job_file(arguments.job))
    connections = PipelineConnections(load_pipeline(arguments.pipeline), from_environment)
    follower = mysql_connection(request.connection, from_environment)
    runs = request.statements is OnStatement.RUN
    done = replicate(connections, follower, request.databases, sessions=request.sessions, runs_statements=runs)
    topic = schema_changes_topic(arguments.pipeline, connections.pipeline.topics.suffix)
    write_result(rows=done.tables, records={topic: done.definitions})
    if done.start is None:
        yield f"{request.connection}: nothing is published yet; the follower starts with the pipeline's first window"
        return
    yield (
        f"{request.connection}: {done.start} to {done.end}, {done.rows} row changes, {done.definitions} DDL statements"
    )
    if done.waiting:
        yield f"{request.connection}: tables that wait for a snapshot or for its rows: {', '.join(done.waiting)}"


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, apply))
