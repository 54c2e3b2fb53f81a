"""Opens the Spark of a run: on a Connect server, on the pipeline's master, or as spark-submit set it up."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from changefeed.errors import SettingsError
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import JOB_CONF, LOCAL_CONF, job_conf
from changefeed.spark.connect import connect_session
from changefeed.spark.target import ClassicSpark, SparkTarget, is_local

INCLUDE = Path(__file__).parents[2]


@contextmanager
def session(pipeline: Pipeline, job: str, *, submitted: bool = False) -> Iterator[SparkTarget]:
    """The Spark of a run, in a process that ends with it: on the pipeline's Connect server where it names one; else,
    without Airflow, on its master; else, ``submitted``, the one that spark-submit set up.

    ``job``, a module, is imported meanwhile: the JVM, or a worker of the Connect server, takes as long as that. The JVM
    stops its context when this process ends; to ask for it first would be a second more, in which PySpark's own servers
    come to hear of it.
    """
    if url := pipeline.spark.connect:
        with connect_session(url) as spark:
            spark.warm_up(1)
            with _imported_beside(job):
                pass
            yield spark
    else:
        with _imported_beside(job):
            classic = ClassicSpark(SparkSession.builder.getOrCreate() if submitted else local_session(pipeline))
            classic.warm_up(1)
        yield classic


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
    if is_local(pipeline.spark.master):
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
