"""spark-submit entry: publish one frozen window. Arguments: the pipeline's name and the window as JSON.

Connections come from the environment (AIRFLOW_CONN_…). Exits 0 when the window is sealed, 2 with an error that a
retry cannot mend, 1 with any other.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from pyspark.sql import SparkSession

from changefeed.connection import from_environment
from changefeed.errors import ChangefeedError, TerminalError
from changefeed.pipeline_file import load_pipeline
from changefeed.spark.ingest import ingest
from changefeed.window import Window


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("pipeline")
    arguments.add_argument("window")
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    spark = SparkSession.builder.getOrCreate()
    try:
        manifest = ingest(
            spark, load_pipeline(given.pipeline), Window.from_json(json.loads(given.window)), from_environment
        )
    except ChangefeedError as error:
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return 2 if isinstance(error, TerminalError) else 1
    finally:
        spark.stop()
    print(f"sealed window {manifest.window.number}: {manifest.row_count} rows in {manifest.message_count} messages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
