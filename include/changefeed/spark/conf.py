"""Spark's settings for our jobs, where its own defaults are for others; a pipeline's `spark.conf` goes before them."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping

_log = logging.getLogger(__name__)
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"

JOB_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    DRIVER_OPTIONS: _FIRST_COMPILER,
    "spark.executor.extraJavaOptions": _FIRST_COMPILER,
    "spark.serializer.objectStreamReset": "1",
    "spark.shuffle.compress": "false",
    "spark.shuffle.checksum.enabled": "false",
    "spark.shuffle.spill.compress": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A run is short and its log is Airflow's: a web page of its own would only open a port. The JVM moves batches that
Python made: what its second compiler costs in a minute (3 CPU seconds) is more than it wins. Java's object streams
remember each object until their next reset, by default the hundredth: finished batches on their way to disk and back
would be 100 MB a task. Those are compressed already. A plan that Spark makes a Java program of, compiles and loads is
the faster one for a million rows: we have a hundred."""

LOCAL_CONF = {"spark.python.daemon.module": "changefeed.spark.daemon"}
"""For a local master, whose workers import from where the driver does. A cluster's daemon starts without what a job
brings along."""

SMALL_BYTES = 64 * 1024 * 1024
SMALL_JOB_CONF = JOB_CONF | {
    DRIVER_OPTIONS: f"{_FIRST_COMPILER} -XX:+UseSerialGC",
}
"""For a window of so few bytes: a JVM that starts sooner, and would be slower at long work."""

BATCH_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
"""Spark counts a batch in rows, 10,000 of them, and holds it in memory; our rows are record batches, megabytes each.
It looks for better plans while a query runs, where ours has one. Its checksum of all bytes of all rows finds a stage
that made other rows when it ran again; our batches are a checkpoint that is never made again, and are counted
(`spark.stages.expected`)."""

LOOPBACK = "127.0.0.1"

ALWAYS = {"spark.speculation": "false", "spark.authenticate": "true"}
"""What no setting of a pipeline changes. A second copy of a publishing task takes over from the first, whose work is
then thrown away. Where the session is not ours, such as a Connect server's, a copy costs that and no more: see
`spark.stages.publish`. Who has no secret of the application's is answered at no port of Spark's: tasks, with the
passwords of their pipeline, are fetched there, and Java objects are read before anything else is looked at."""

ON_THIS_MACHINE = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
"""What no setting changes for a local master. Its driver makes up a secret of its own, which never leaves the JVM."""

ON_OTHER_MACHINES = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""What no setting changes for another master: nothing passes the network or stays on a disk of Spark's in clear."""

PRIVATE_UMASK = 0o077
"""Of each process that starts a driver: Spark makes some folders of blocks and of Python's files for everybody."""

_SECRET = "spark.authenticate.secret"


def is_local(master: str) -> bool:
    """Whether all tasks of a master run in the driver's JVM; those of local-cluster do not."""
    return re.match(r"local\b(?!-)", master) is not None


def job_conf(settings: Mapping[str, str], master: str, defaults: Mapping[str, str] = JOB_CONF) -> dict[str, str]:
    """The whole conf of a job at ``master`` whose pipeline has ``settings`` as its `spark.conf`."""
    always = _always_at(master)
    for name, value in always.items():
        if settings.get(name, value) != value:
            _log.warning(
                "spark.conf of the pipeline sets %s=%s, which does not count: it is %s", name, settings[name], value
            )
    own = {_SECRET: secrets.token_hex(32)} if master.startswith("local-cluster") else {}
    return {**own, **defaults, **settings, **always}


def unprotected(conf: Mapping[str, str], master: str) -> list[str]:
    """What ``conf``, of a job that others submitted, has to set besides, so that nobody else reads what it works on."""
    wanted = {name: value for name, value in _always_at(master).items() if name != "spark.speculation"}
    return [f"{name}={value}" for name, value in wanted.items() if conf.get(name) != value]


def _always_at(master: str) -> dict[str, str]:
    return ALWAYS | (ON_THIS_MACHINE if is_local(master) else ON_OTHER_MACHINES)


def environment_at(master: str) -> dict[str, str]:
    """What else is in the environment of the process that starts the driver: where a web page of Spark's listens."""
    return {"SPARK_LOCAL_IP": LOOPBACK} if is_local(master) else {}


def properties(conf: Mapping[str, str]) -> str:
    """``conf`` as a file for spark-submit's --properties-file (java.util.Properties)."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items())


def _escaped(text: str) -> str:
    for found in "\\:=#!":
        text = text.replace(found, f"\\{found}")
    return text.replace("\n", "\\n").replace("\r", "\\r")
