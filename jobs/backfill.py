"""Publish a backfill's window. Argument: a file with what the task `plan` returned, and the root that Airflow's
worker found its archive to lie below.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the window is sealed, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from changefeed.ingest.window_run import ingest
from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import archive_below
from changefeed.spark.session import session
from changefeed.spark.submitted import planned, submitted

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the request, the window and the backfill's identity")


def publish(given: argparse.Namespace) -> Iterator[str]:
    """Publish the window to the backfill's topics; one line when it is sealed."""
    plan = planned(given.plan)
    request = BackfillRequest.of(plan["request"])
    connections = PipelineConnections(backfill_pipeline(load_pipeline(request.pipeline), request), from_environment)
    window = Window.from_json(plan["window"])
    archive = archive_below(request.archive, plan.get("archive_roots", [])) if request.archive else None
    with session(connections.pipeline, "changefeed.ingest.run", submitted=True) as spark:
        manifest = ingest(spark, connections, window, identity=plan["identity"], archive=archive)
    yield f"sealed backfill: {manifest.row_count} rows in {manifest.message_count} messages"


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, publish))
