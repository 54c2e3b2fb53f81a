"""Publish a snapshot's rows. Argument: a file with what the task `plan` returned.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when all of its tables are published, 2 with an error
that a retry cannot mend, 1 with any other; a retry goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from changefeed.connection import from_environment
from changefeed.endpoints.endpoints import Endpoints
from changefeed.pipelines.file import load_pipeline
from changefeed.snapshot.planning import SnapshotPlan
from changefeed.snapshot.status import progress_line
from changefeed.spark.session import session
from changefeed.spark.snapshot import run_snapshot
from changefeed.spark.submitted import planned, submitted

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the request, the tables and the snapshot's identity")


def publish(given: argparse.Namespace) -> Iterator[str]:
    """Publish what is left of the snapshot; a line a round."""
    plan = SnapshotPlan.from_json(planned(given.plan))
    endpoints = Endpoints(load_pipeline(plan.request.pipeline), from_environment)
    with session(endpoints.pipeline, submitted=True) as spark:
        for stands in run_snapshot(spark, endpoints, plan):
            yield f"snapshot: {progress_line(stands)}{', finished' if stands.finished else ''}"


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, publish))
