"""Publish a backfill's window. Arguments: the request, the window and the identity, as JSON.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the window is sealed, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from changefeed.connection import from_environment
from changefeed.errors import ChangefeedError, TerminalError
from changefeed.pipelines.file import load_pipeline
from changefeed.spark.ingest import ingest
from changefeed.spark.session import session
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_pipeline
from changefeed.window import Window


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("request")
    arguments.add_argument("window")
    arguments.add_argument("identity")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    try:
        request = BackfillRequest.of(json.loads(given.request))
        pipeline = backfill_pipeline(load_pipeline(request.pipeline), request)
        with session(pipeline, submitted=True) as spark:
            manifest = ingest(
                spark,
                pipeline,
                Window.from_json(json.loads(given.window)),
                from_environment,
                identity=given.identity,
                archive=request.archive,
            )
    except ChangefeedError as error:
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return 2 if isinstance(error, TerminalError) else 1
    print(f"sealed backfill: {manifest.row_count} rows in {manifest.message_count} messages", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
