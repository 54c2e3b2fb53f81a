"""A job on a local master that runs a task with a connection's password, and waits until its folder is deleted.

    python held_job.py command|submit|submitted|stage|closure FOLDER

command: as `changefeed run` does. submit: as Airflow's task does, which starts `run_as_job` by spark-submit. stage and
closure: with Spark's defaults, as one of our stages, or as a closure of Spark.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile

from changefeed.model.connection import MysqlConnection
from changefeed.settings.file import load_pipeline


def hold(kind: str, folder: Path) -> None:
    """Run the task, write the file `ready`, and wait."""
    from pyspark.sql import SparkSession

    from changefeed.spark.session import session
    from changefeed.spark.target import LocalSpark

    password = (folder / "password").read_text()
    connection = MysqlConnection("db", 3306, "reader", password)

    def stage(task: int) -> Iterator[str]:
        Path(os.environ["TMPDIR"], f"of-task-{task}").write_text("rows")
        yield connection.host

    if kind in ("stage", "closure"):
        opened = nullcontext(LocalSpark(SparkSession.builder.master("local[1]").getOrCreate()))
    else:
        opened = session(load_pipeline("held"), "json", is_submitted=kind == "submitted")
    with opened as spark:
        if kind == "closure":
            spark.session.sparkContext.parallelize([1, 2], 2).flatMap(stage).collect()
        else:
            assert spark.results_of([1, 2], stage) == ["db", "db"]
        with spark.local_folder() as local:
            assert local
            (folder / "ready").write_text(local)
            while folder.exists():
                time.sleep(0.05)


def submit(folder: Path) -> None:
    """Start this script by spark-submit, as the task of Airflow does."""
    from changefeed.airflow.connections import job_environment
    from changefeed.airflow.submit_hook import CleanSparkSubmitHook
    from changefeed.spark.conf import JOB_CONF

    with NamedTemporaryFile("w") as file:
        pipeline = load_pipeline("held")
        conf = {**JOB_CONF, **pipeline.spark.conf}
        arguments = ["submitted", str(folder)]
        hook = CleanSparkSubmitHook(
            job_environment(pipeline), file, conn_id="spark_default", conf=conf, application_args=arguments
        )
        hook.submit(__file__)


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    if kind == "submit":
        submit(folder)
    else:
        hold(kind, folder)
