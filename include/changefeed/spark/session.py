"""The Spark session of runs without Airflow."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from changefeed.pipeline import Pipeline


def local_session(pipeline: Pipeline) -> SparkSession:
    """A session on the pipeline's own master, with this Python in its workers, on 127.0.0.1 and without a web page."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    include = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (include, os.environ.get("PYTHONPATH"))))
    builder = (
        SparkSession.builder.master(pipeline.spark.master)
        .appName(f"changefeed-{pipeline.name}")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    for name, value in pipeline.spark.conf.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
