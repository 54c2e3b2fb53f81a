"""Publish a backfill's window. Arguments: the request, the window and the identity; the first two as JSON.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the window is sealed, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from changefeed.connection import from_environment
from changefeed.endpoints.endpoints import Endpoints
from changefeed.pipelines.file import load_pipeline
from changefeed.spark.ingest import ingest
from changefeed.spark.session import session
from changefeed.spark.submitted import submitted
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_pipeline
from changefeed.window import Window

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("request")
ARGUMENTS.add_argument("window")
ARGUMENTS.add_argument("identity", help="whose progress it is: the backfill's own")


def publish(given: argparse.Namespace) -> Iterator[str]:
    """Publish the window to the backfill's topics; one line when it is sealed."""
    request = BackfillRequest.of(json.loads(given.request))
    endpoints = Endpoints(backfill_pipeline(load_pipeline(request.pipeline), request), from_environment)
    window = Window.from_json(json.loads(given.window))
    with session(endpoints.pipeline, submitted=True) as spark:
        manifest = ingest(spark, endpoints, window, identity=given.identity, archive=request.archive)
    yield f"sealed backfill: {manifest.row_count} rows in {manifest.message_count} messages"


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, publish))
