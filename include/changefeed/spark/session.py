"""Opens the Spark of a run: on a Connect server, on the pipeline's master, or as spark-submit set it up."""

from __future__ import annotations

import gc
import importlib
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from pyspark.sql import SparkSession

from changefeed.errors import SettingsError
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import (
    JOB_CONF,
    LOCAL_CONF,
    ON_THIS_MACHINE,
    PRIVATE_UMASK,
    environment_at,
    is_local,
    job_conf,
    properties,
    unprotected,
)
from changefeed.spark.connect import connect_session
from changefeed.spark.target import ClassicSpark, SparkTarget

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
            classic = ClassicSpark(_session() if submitted else local_session(pipeline))
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

    Raises SettingsError where Java does not start Spark, or Spark not its context.
    """
    master = pipeline.spark.master
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(INCLUDE), os.environ.get("PYTHONPATH"))))
    os.environ.update(environment_at(master))
    defaults = with_class_archive(JOB_CONF | {"spark.log.level": "ERROR"}) | ON_THIS_MACHINE
    if is_local(master):
        defaults |= LOCAL_CONF
    conf = job_conf(pipeline.spark.conf, master, defaults)
    with _started_with(conf | {"spark.master": master, "spark.app.name": f"changefeed-{pipeline.name}"}):
        return _session()


@contextmanager
def _started_with(conf: Mapping[str, str]) -> Iterator[None]:
    """Have PySpark start its JVM with ``conf`` from a file, and all that it makes for this user alone.

    Settings of PySpark's own builder would be on the command line, which is shown to all who list processes. Spark
    makes some of its folders, with decoded rows in them, for everybody.
    """
    others = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    with NamedTemporaryFile("w", prefix="changefeed-spark-") as file:
        file.write(properties(conf))
        file.flush()
        ours = shlex.join(["--properties-file", file.name, "--load-spark-defaults"])
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{ours} {others}"
        umask = os.umask(PRIVATE_UMASK)
        try:
            yield
        finally:
            os.umask(umask)
            os.environ["PYSPARK_SUBMIT_ARGS"] = others


def _session() -> SparkSession:
    """Of the JVM that spark-submit set up, or else of a new one. Raises SettingsError where it does not start."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkRuntimeError

    try:
        session = SparkSession.builder.getOrCreate()
    except PySparkRuntimeError as error:
        java = os.environ.get("JAVA_HOME") or shutil.which("java")
        raise SettingsError(
            f"Spark did not start, which needs Java 17 or 21 in JAVA_HOME or PATH, where {java or 'none'!r} was found: "
            f"{str(error).splitlines()[0]} What Java said stands above. Nothing was published. Install one (Debian and "
            "Ubuntu: openjdk-17-jre-headless), or name its folder in JAVA_HOME."
        ) from error
    except Py4JJavaError as error:
        if "spark.authenticate.secret" not in str(error.java_exception):
            raise
        raise SettingsError(
            "expected the Spark cluster's secret in spark.authenticate.secret, and found none: without one whoever "
            "reaches a port of a run reads its rows and passwords. Nothing was published. Set spark.authenticate=true "
            "and the same spark.authenticate.secret on the cluster's master and workers, and for this driver in "
            "spark-defaults.conf (docs/security.md)."
        ) from error
    context = session.sparkContext
    if missing := unprotected(dict(context.getConf().getAll()), context.master or ""):
        raise SettingsError(
            f"expected a Spark whose ports and disks are closed to others, and found one at {context.master} without "
            f"{', '.join(missing)}: whoever reaches a port of a run would read its rows and passwords. Nothing was "
            "published. Set that where the job is submitted (docs/security.md)."
        )
    return session
