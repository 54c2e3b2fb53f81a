"""Publish frozen windows, one after another. Arguments: the pipeline's name, the windows as JSON.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the windows are sealed, 2 with an error that a
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
from changefeed.spark.catch_up import ingest_windows
from changefeed.spark.session import session
from changefeed.window import Window


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("pipeline")
    arguments.add_argument("windows", help="a JSON list of windows, in order")
    arguments.add_argument("--max-seconds", type=int, default=0, help="begin no further window after so long")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    windows = [Window.from_json(values) for values in json.loads(given.windows)]
    try:
        pipeline = load_pipeline(given.pipeline)
        with session(pipeline, submitted=True) as spark:
            for manifest in ingest_windows(spark, pipeline, windows, from_environment, given.max_seconds or None):
                print(
                    f"sealed window {manifest.window.number}: {manifest.row_count} rows in {manifest.message_count} "
                    f"messages, seconds {json.dumps(manifest.seconds)}",
                    flush=True,
                )
    except ChangefeedError as error:
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return 2 if isinstance(error, TerminalError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
