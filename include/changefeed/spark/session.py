"""Open the Spark session of a run: on a Connect server, on the pipeline's master, or in the JVM of spark-submit."""

from __future__ import annotations

import atexit
import gc
import importlib
import logging
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from pyspark import SparkContext
from pyspark.sql import SparkSession

from changefeed.errors import SettingsError
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.class_archive import with_class_archive
from changefeed.spark.conf import (
    JOB_CONF,
    LOCAL_CONF,
    PRIVATE_UMASK,
    environment_at,
    is_local,
    job_conf,
    missing_protection,
    properties,
)
from changefeed.spark.connect import connect_session
from changefeed.spark.progress_line import web_page_text
from changefeed.spark.target import ClusterSpark, LocalSpark, SparkTarget

_log = logging.getLogger(__name__)
INCLUDE = Path(__file__).parents[2]


@contextmanager
def session(pipeline: Pipeline, job: str, *, is_submitted: bool = False) -> Iterator[SparkTarget]:
    """The Spark of a run, in a process that ends with it.

    It is on the pipeline's Connect server if there is one; else, with ``is_submitted``, in the JVM that spark-submit
    started; else on the pipeline's master. The module ``job`` is imported meanwhile, which takes about as long as the
    start of the JVM or of a worker. The JVM stops its context when this process ends; to stop it explicitly would take
    another second.
    """
    if url := pipeline.spark.connect:
        with ExitStack() as stack:
            with _import_in_thread(job):
                spark = stack.enter_context(connect_session(url))
                spark.warm_up(1)
            yield spark
    else:
        with nullcontext() if is_submitted else jvm_output() as output:
            with _import_in_thread(job):
                spark_session = _session() if is_submitted else start_session(pipeline, output)
                target = _target(spark_session, pipeline)
                target.warm_up(1)
            yield target


@contextmanager
def _import_in_thread(module: str) -> Iterator[None]:
    """Import ``module`` in a thread until the end of the block. An error is raised by the next import of the module.

    The garbage collector is off meanwhile, because it would scan the imported objects again and again.
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


@contextmanager
def jvm_output() -> Iterator[IO[bytes] | None]:
    """A file for the output of a JVM and its workers, if stderr is a terminal, whose line of progress it would break.

    If the block fails, the error gets a note that names the file. Else the file is removed. Without a terminal None:
    the output stays on stderr, which a log collects.
    """
    if not sys.stderr.isatty():
        yield None
        return
    with NamedTemporaryFile("wb", prefix="changefeed-spark-", suffix=".log", delete=False) as file:
        path = Path(file.name)
        try:
            yield file
        except BaseException as error:
            if isinstance(error, Exception) and path.stat().st_size:
                error.add_note(f"The output of Spark and Java is in {path}")
            else:
                path.unlink()
            raise
        else:
            path.unlink()


def _target(spark_session: SparkSession, pipeline: Pipeline) -> SparkTarget:
    if is_local(spark_session.sparkContext.master or ""):
        return LocalSpark(spark_session)
    return ClusterSpark(spark_session, pipeline.spark.executor_seconds)


def start_session(pipeline: Pipeline, output: IO[bytes] | None = None) -> SparkSession:
    """A session on the pipeline's master, without a web page unless `spark.conf` enables it.

    Its JVM writes to ``output``, by default to stderr. Its workers have the Python of `spark.conf`
    (spark.pyspark.python) or PYSPARK_PYTHON, else this one. Raises SettingsError if Spark or its context does not
    start.
    """
    master = pipeline.spark.master
    named = pipeline.spark.conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = named or sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(INCLUDE), os.environ.get("PYTHONPATH"))))
    os.environ.update(environment_at(master))
    defaults = with_class_archive(JOB_CONF | {"spark.log.level": "ERROR"})
    if is_local(master):
        defaults |= LOCAL_CONF
    conf = job_conf(pipeline.spark.conf, master, defaults)
    with _submit_arguments(conf | {"spark.master": master, "spark.app.name": f"changefeed-{pipeline.name}"}):
        return _session(output)


@contextmanager
def _submit_arguments(conf: Mapping[str, str]) -> Iterator[None]:
    """In the block, PySpark starts its JVM with ``conf`` from a file, and with a umask that denies access to other
    users.

    Settings of PySpark's builder would be on the command line, which any user can list. Spark creates some folders with
    decoded rows readable for everybody.
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


def _session(output: IO[bytes] | None = None) -> SparkSession:
    """A session of the JVM that spark-submit started, or of a new JVM, which writes to ``output``.

    Raises SettingsError if it does not start.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    try:
        if output is not None and SparkContext._gateway is None:
            gateway = launch_gateway(popen_kwargs={"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway)
        session = SparkSession.builder.getOrCreate()
    except PySparkRuntimeError as error:
        java = os.environ.get("JAVA_HOME") or shutil.which("java")
        raise SettingsError(
            f"Spark did not start. Expected Java 17 or 21 in JAVA_HOME or PATH, found {java or 'none'!r}: "
            f"{str(error).splitlines()[0]} The output of Java is {'in the file below' if output else 'above'}. Nothing "
            "was published. Install Java (Debian and Ubuntu: openjdk-17-jre-headless), or set JAVA_HOME to its folder."
        ) from error
    except Py4JJavaError as error:
        if "spark.authenticate.secret" not in str(error.java_exception):
            raise
        raise SettingsError(
            "expected the Spark cluster's secret in spark.authenticate.secret, found none: without it, anybody who "
            "reaches a port of a run can read its rows and passwords. Nothing was published. Set "
            "spark.authenticate=true and the same spark.authenticate.secret on the cluster's master and workers, and "
            "for this driver in spark-defaults.conf (docs/explanation/security.md)."
        ) from error
    context = session.sparkContext
    _remove_socket_at_exit(context)
    if missing := missing_protection(dict(context.getConf().getAll()), context.master or ""):
        raise SettingsError(
            f"expected Spark's ports and disks to be closed to others, found Spark at {context.master} without "
            f"{', '.join(missing)}: anybody who reaches a port of a run could read its rows and passwords. Nothing "
            "was published. Set these where the job is submitted (docs/explanation/security.md)."
        )
    if url := context.uiWebUrl:
        _log.info("%s", web_page_text(url))
    return session


def _remove_socket_at_exit(context: SparkContext) -> None:
    """Remove the Unix domain socket of accumulators when this process ends; only a stopped context would."""
    server = context._accumulatorServer
    if server is not None and isinstance(address := server.server_address, str):
        atexit.register(Path(address).unlink, missing_ok=True)
