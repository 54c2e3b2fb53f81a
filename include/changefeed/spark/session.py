"""The Spark session of a run, and what differs between those of a JVM of ours and of a Spark Connect server."""

from __future__ import annotations

import gc
import importlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changefeed.errors import SettingsError
from changefeed.pipelines.pipeline import Pipeline
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import JOB_CONF, LOCAL_CONF, job_conf
from changefeed.spark.connect import connect_session, is_connect
from changefeed.spark.warm_up import warm_up

INCLUDE = Path(__file__).parents[2]


@contextmanager
def session(pipeline: Pipeline, *, submitted: bool = False) -> Iterator[SparkSession]:
    """The session of a run, in a process that ends with it: on the pipeline's Connect server where it names one; else,
    without Airflow, on its master; else, ``submitted``, the one that spark-submit set up.

    What ingest imports is imported meanwhile: the JVM, or a worker of the Connect server, takes as long as that. The
    JVM stops its context when this process ends; to ask for it first would be a second more, in which PySpark's own
    servers come to hear of it.
    """
    if url := pipeline.spark.connect:
        with connect_session(url) as spark:
            warm_up(spark, 1)
            with _imported_beside("changefeed.spark.run"):
                pass
            yield spark
    else:
        with _imported_beside("changefeed.spark.run"):
            spark = SparkSession.builder.getOrCreate() if submitted else local_session(pipeline)
            warm_up(spark, 1)
        yield spark


@contextmanager
def _imported_beside(module: str) -> Iterator[None]:
    """Import ``module`` in a thread, until the end of the block. Whoever imports it then gets its error, if any.

    The garbage collector is off: it would look, again and again, at what is there to stay.
    """

    def load() -> None:
        with suppress(Exception):
            importlib.import_module(module)

    thread = threading.Thread(target=load, name="changefeed-import", daemon=True)
    gc.disable()
    thread.start()
    try:
        yield
    finally:
        thread.join()
        gc.freeze()
        gc.enable()


def local_session(pipeline: Pipeline) -> SparkSession:
    """A session on the pipeline's own master, with this Python in its workers, on 127.0.0.1 and without a web page.

    Raises SettingsError where Java does not start Spark.
    """
    from pyspark.errors import PySparkRuntimeError

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(INCLUDE), os.environ.get("PYTHONPATH"))))
    builder = (
        SparkSession.builder.master(pipeline.spark.master)
        .appName(f"changefeed-{pipeline.name}")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    defaults = with_class_archive(JOB_CONF | {"spark.log.level": "ERROR"})
    if _is_local(pipeline.spark.master):
        defaults |= LOCAL_CONF
    for name, value in job_conf(pipeline.spark.conf, defaults).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        java = os.environ.get("JAVA_HOME") or shutil.which("java")
        raise SettingsError(
            f"Spark did not start, which needs Java 17 or 21 in JAVA_HOME or PATH, where {java or 'none'!r} was found: "
            f"{str(error).splitlines()[0]} What Java said stands above. Nothing was published. Install one (Debian and "
            "Ubuntu: openjdk-17-jre-headless), or name its folder in JAVA_HOME."
        ) from error


def tag_jobs(spark: SparkSession, tag: str) -> None:
    """Tag the jobs that the calling thread starts from now on, for `end_jobs`."""
    if is_connect(spark):
        spark.addTag(tag)
    else:
        spark.sparkContext.addJobTag(tag)  # a session's own tags are known to the thread that set them only


def end_jobs(spark: SparkSession, tag: str) -> None:
    """End the jobs that run with this tag, in whatever thread."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


def forget_checkpoint(checkpointed: DataFrame) -> None:
    """Free the disk that a local checkpoint takes; a Connect server frees it when nobody refers to it any more."""
    if is_connect(checkpointed.sparkSession):
        relation: Any = checkpointed._plan
        relation.__del__()  # tells the server; an exception may refer to it until the session is left, which stays
    else:
        plan: Any = checkpointed._jdf.queryExecution().logical()
        plan.rdd().unpersist(False)


def cores(spark: SparkSession) -> int:
    """How many tasks run at once."""
    if is_connect(spark):
        ((last,),) = spark.range(0, 10_000).select(F.spark_partition_id()).tail(1)
        return int(last) + 1
    return max(1, spark.sparkContext.defaultParallelism)


def runs_here(spark: SparkSession) -> bool:
    """Whether all tasks run on this machine."""
    return not is_connect(spark) and _is_local(spark.sparkContext.master or "")


def _is_local(master: str) -> bool:
    return re.match(r"local\b(?!-)", master) is not None


def makes_copies(spark: SparkSession) -> bool:
    """Whether Spark may start a second copy of a task that takes long (spark.speculation)."""
    conf = spark.conf if is_connect(spark) else spark.sparkContext.getConf()
    return conf.get("spark.speculation", "false") == "true"
