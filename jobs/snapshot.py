"""Publish a snapshot's rows. Argument: a file with what the task `plan` returned.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when all of its tables are published, 2 with an error
that a retry cannot mend, 1 with any other; a retry goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.snapshot.planning import SnapshotPlan
from changefeed.snapshot.run import run_snapshot
from changefeed.snapshot.snapshot_status import progress_line
from changefeed.spark.session import session
from changefeed.spark.submitted import planned, submitted

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the request, the tables and the snapshot's identity")


def publish(given: argparse.Namespace) -> Iterator[str]:
    """Publish what is left of the snapshot; a line a round."""
    plan = SnapshotPlan.from_json(planned(given.plan))
    connections = PipelineConnections(load_pipeline(plan.request.pipeline), from_environment)
    with session(connections.pipeline, "changefeed.snapshot.run", submitted=True) as spark:
        for stands in run_snapshot(spark, connections, plan):
            yield f"snapshot: {progress_line(stands)}{', finished' if stands.finished else ''}"


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, publish))
