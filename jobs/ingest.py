"""Publish frozen windows, one after another. Arguments: a file with what the task `plan` returned, the pipeline's name.

Run by spark-submit, or by Python itself where the pipeline names a Spark Connect server.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the windows are sealed, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.settings.file import load_pipeline
from changefeed.spark.session import session
from changefeed.spark.submitted import planned, submitted

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("plan", help="a JSON file with the windows, in order")
ARGUMENTS.add_argument("pipeline")
ARGUMENTS.add_argument("--max-seconds", type=int, default=0, help="begin no further window after so long")


def publish(given: argparse.Namespace) -> Iterator[str]:
    """Publish the windows in one Spark session; a line for each that is sealed."""
    windows = [Window.from_json(values) for values in planned(given.plan)["windows"]]
    pipeline = load_pipeline(given.pipeline)
    with session(pipeline, "changefeed.ingest.run", submitted=True) as spark:
        from changefeed.ingest.run import ingest_windows
        from changefeed.pipeline.connections import PipelineConnections  # loaded by now, while Spark started

        connections = PipelineConnections(pipeline, from_environment)
        for manifest in ingest_windows(spark, connections, windows, given.max_seconds or None):
            yield (
                f"sealed window {manifest.window.number}: {manifest.row_count} rows in {manifest.message_count} "
                f"messages, seconds {json.dumps(manifest.seconds)}"
            )


if __name__ == "__main__":
    sys.exit(submitted(ARGUMENTS, publish))
