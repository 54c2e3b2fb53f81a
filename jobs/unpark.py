"""Publish the changes that parked tables of a pipeline miss, and end their parking. Arguments: the job's file, whose
plan has the request and the parked tables, and the pipeline's name.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 the tables have returned, 2 a terminal error, 1 an error that a retry may resolve. A retry continues, and
publishes nothing twice.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator

from changefeed.kafka.commit_log.records import ParkedRecord
from changefeed.model.connection import from_environment
from changefeed.operations.unpark import unpark
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.unpark import UnparkRequest
from changefeed.spark.job_file import read_job_file
from changefeed.spark.run_as_job import run_as_job
from changefeed.spark.session import session

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the request and the parked tables")
ARGUMENTS.add_argument("pipeline")


def return_tables(arguments: argparse.Namespace) -> Generator[str]:
    """Return the tables; yields a line for each."""
    plan = read_job_file(arguments.job)
    request = UnparkRequest.of(plan["request"])
    records = [ParkedRecord.from_json([table], values) for table, values in plan["parked"]]
    pipeline = load_pipeline(arguments.pipeline)
    connections = PipelineConnections(pipeline, from_environment)
    with session(pipeline, "changefeed.ingest.run", is_submitted=True) as spark:
        yield from unpark(spark, connections, records, skip=request.skip_changes)


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, return_tables))
