"""Publish frozen windows, one after another; with the setting `windows`, freeze and publish windows for some time.

Arguments: the job's file, the pipeline's name.

spark-submit runs it, or Python itself if the pipeline names a Spark Connect server.

The job's file is of `changefeed.spark.job_file`. Without connections in it, the environment has them (AIRFLOW_CONN_…).
Exit codes: 0 the windows are sealed, 2 a terminal error, 1 an error that a retry may resolve.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Generator
from pathlib import Path

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.settings.file import load_pipeline
from changefeed.spark.job_file import STOP_FILE, read_job
from changefeed.spark.run_as_job import accept_attempt, claim_timeout, run_as_job
from changefeed.spark.session import session

ARGUMENTS = argparse.ArgumentParser(description=__doc__)
ARGUMENTS.add_argument("job", help="the job's file; its plan has the windows in order, or none, and the checkpoint")
ARGUMENTS.add_argument("pipeline")
ARGUMENTS.add_argument(
    "--max-seconds",
    type=int,
    default=0,
    help="start no further window after this many seconds; 0, the default: no limit",
)
accept_attempt(ARGUMENTS)


def publish(arguments: argparse.Namespace) -> Generator[str]:
    """Publish the windows in one Spark session; yields one line for each sealed window."""
    job = read_job(arguments.job)
    windows = [Window.from_json(values) for values in job.plan["windows"]]
    pipeline = load_pipeline(arguments.pipeline)
    with session(pipeline, "changefeed.ingest.continuous", is_submitted=True) as spark:
        from changefeed.ingest.continuous import ingest_continuously
        from changefeed.ingest.followed_settings import FollowedSettings
        from changefeed.ingest.handover import ALONE, Handover
        from changefeed.ingest.run import ingest_windows
        from changefeed.pipeline.connections import PipelineConnections  # Spark's start has loaded them meanwhile
        from changefeed.settings.followed_file import FollowedFile

        connections = PipelineConnections(pipeline, from_environment)
        timeout, seconds = claim_timeout(arguments, pipeline.kafka.lease_seconds), arguments.max_seconds or None
        if windows:
            timeout = max(timeout, pipeline.kafka.lease_seconds if pipeline.windows else 0.0)  # of a continuous run
            sealed = ingest_windows(spark, connections, windows, seconds, claim_timeout_seconds=timeout)
        else:
            handover = ALONE if seconds else Handover(connections)
            expected = Checkpoint.from_text(job.plan["expected"])
            file = FollowedFile(pipeline) if job.follow_folders(pipeline) else None
            followed = FollowedSettings(connections, file)
            stop = Path(arguments.job).with_name(STOP_FILE)
            sealed = ingest_continuously(spark, followed, expected, seconds, handover=handover, is_stopped=stop.exists)
        for manifest in sealed:
            yield (
                f"sealed window {manifest.window.number}: {manifest.row_count} rows in {manifest.message_count} "
                f"messages, seconds {json.dumps(manifest.seconds)}"
            )


if __name__ == "__main__":
    sys.exit(run_as_job(ARGUMENTS, publish))
