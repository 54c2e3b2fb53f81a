"""Bring a follower to the pipeline's low watermark. Arguments: a file with the follower, as JSON, the pipeline's name.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the follower is there, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from changefeed.model.connection import MysqlConnection, from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.replicate.run import replicate
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline_settings import OnStatement
from changefeed.settings.requests.replicate import ReplicateRequest
from changefeed.spark.submitted import planned, submitted

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the follower's connection id, its databases and sessions")
ARGUMENTS.add_argument("pipeline")


def apply(given: argparse.Namespace) -> Iterator[str]:
    """Apply what is new; one line when the follower is at the watermark."""
    request = ReplicateRequest.of(planned(given.plan))
    connections = PipelineConnections(load_pipeline(given.pipeline), from_environment)
    follower = MysqlConnection.from_uri(from_environment(request.connection))
    runs = request.statements is OnStatement.RUN
    done = replicate(connections, follower, request.databases, sessions=request.sessions, runs_statements=runs)
    if done.start is None:
        yield f"{request.connection}: nothing is published yet, it begins with the pipeline's first window"
        return
    yield f"{request.connection}: {done.start} to {done.end}, {done.rows} row changes, {done.definitions} definitions"
    if done.waiting:
        yield f"{request.connection}: these tables wait for a snapshot, or for its rows: {', '.join(done.waiting)}"


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, apply))
