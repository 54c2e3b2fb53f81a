"""Spark's settings for changefeed's jobs; a pipeline's `spark.conf` overrides most of them."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress

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
"""Settings of all jobs. Reasons:

- A run is short and logs to Airflow, so Spark's web page would only open a port.
- The JVM only moves batches that Python made. Its second compiler costs 3 CPU seconds a minute, more than it saves.
- Java's object streams keep each object until their next reset, by default after 100 objects, which would be 100 MB of
  batches in a task. Batches are compressed already.
- Code generation pays off at a million rows; our queries have a hundred.
"""

LOCAL_CONF = {"spark.python.daemon.module": "changefeed.spark.daemon"}
"""Settings of a local master, whose workers import the driver's packages. On a cluster the daemon starts before it has
the packages of a job."""

SMALL_BYTES = 64 * 1024 * 1024
SMALL_JOB_CONF = JOB_CONF | {
    DRIVER_OPTIONS: f"{_FIRST_COMPILER} -XX:+UseSerialGC",
}
"""Settings for a window of up to SMALL_BYTES: the JVM starts faster, but is slower at long work."""

BATCH_CONF = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "8",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
}
"""Settings of DataFrames with batches. Reasons:

- Spark holds a batch of rows in memory, by default 10,000; our rows are record batches of megabytes.
- Adaptive execution looks for better plans while a query runs; ours have only one.
- The checksum of all rows shows whether a retry of a stage returned other rows. Our batches are a checkpoint that is
  never computed again, and they are counted (`spark.stages.expected`).
"""

LOOPBACK = "127.0.0.1"

ALWAYS = {"spark.speculation": "false", "spark.authenticate": "true"}
"""Settings that a pipeline cannot change. Reasons:

- A speculative copy of a publishing task fences the first task, whose work is lost. A session that changefeed did not
  create, such as a Connect server's, may still start copies; they do no other harm (`spark.stages.publish`).
- Spark's ports must require the application's secret, because they serve tasks, which contain the pipeline's passwords,
  and deserialize Java objects.
"""

ON_THIS_MACHINE = {"spark.driver.bindAddress": LOOPBACK, "spark.driver.host": LOOPBACK}
"""Settings of a local master that a pipeline cannot change. The driver generates its own secret, which stays in the
JVM."""

ON_OTHER_MACHINES = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
}
"""Settings of any other master that a pipeline cannot change: Spark's network traffic and disks are encrypted."""

PRIVATE_UMASK = 0o077
"""The umask of each process that starts a driver, because Spark creates some folders readable for everybody, and
sockets with the permissions that the umask leaves."""

_LONGEST_SOCKET_FOLDER = 60
"""The path of a socket has at most 107 bytes (macOS: 103), of which Spark needs 43 for its name."""

_SECRET = "spark.authenticate.secret"


def is_local(master: str) -> bool:
    """Whether all tasks of ``master`` run in the driver's JVM; false for local-cluster."""
    return re.match(r"local\b(?!-)", master) is not None


def job_conf(settings: Mapping[str, str], master: str, defaults: Mapping[str, str] = JOB_CONF) -> dict[str, str]:
    """The complete conf of a job at ``master``; ``settings`` is the pipeline's `spark.conf`."""
    always = _always_at(master)
    for name, value in always.items():
        if settings.get(name, value) != value:
            _log.warning(
                "spark.conf of the pipeline sets %s=%s, which is ignored: it must be %s", name, settings[name], value
            )
    own = {_SECRET: secrets.token_hex(32)} if master.startswith("local-cluster") else {}
    sockets = unix_sockets() if is_local(master) else {}
    return {**own, **defaults, **sockets, **settings, **always}


def unix_sockets() -> dict[str, str]:
    """Settings by which a local master's JVM and Python talk through Unix domain sockets in the folder for temporary
    files; none if its path is too long for a socket.

    On TCP each job would wait 40 ms for a delayed acknowledgement. PRIVATE_UMASK keeps others from these sockets, which
    have no secret; on other machines the umask is not ours.
    """
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": folder}


def missing_protection(conf: Mapping[str, str], master: str) -> list[str]:
    """The required settings, as NAME=VALUE, that are missing in ``conf``, the conf of a job that others submitted."""
    required = {name: value for name, value in _always_at(master).items() if name != "spark.speculation"}
    return [f"{name}={value}" for name, value in required.items() if conf.get(name) != value]


def _always_at(master: str) -> dict[str, str]:
    return ALWAYS | (ON_THIS_MACHINE if is_local(master) else ON_OTHER_MACHINES)


def environment_at(master: str) -> dict[str, str]:
    """Environment variables of the process that starts the driver: the address at which it listens.

    It is this machine's address on the route to ``master``, which the cluster's machines reach. Spark would take the
    address of the host name, often 127.0.1.1. Spark chooses if SPARK_LOCAL_IP or SPARK_LOCAL_HOSTNAME is set, if the
    master has no address, as yarn, and if the route does not leave this machine.
    """
    if is_local(master):
        return {"SPARK_LOCAL_IP": LOOPBACK}
    if os.environ.get("SPARK_LOCAL_IP") or os.environ.get("SPARK_LOCAL_HOSTNAME"):
        return {}
    address = _address_towards(master)
    return {"SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address} if address else {}


def _address_towards(master: str) -> str:
    """This machine's address on the route to one of the hosts of ``master``; '' if there is none.

    A loopback address counts only for a standalone master that is named by one, as its workers are here too. Behind
    another name or the API server of Kubernetes, there may be a tunnel.
    """
    named = re.match(r"(spark|k8s)://(?:https?://)?(.+)", master)
    for host in re.findall(r"(?:^|,)([^/:,]+)", named[2]) if named else ():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.connect((host, 9))  # sends nothing
            address = str(probe.getsockname()[0])
            is_here = named is not None and named[1] == "spark" and host.startswith("127.")
            return address if is_here or not address.startswith("127.") else ""
    return ""


def properties(conf: Mapping[str, str]) -> str:
    """``conf`` as the text of a file for spark-submit's --properties-file (java.util.Properties)."""
    return "".join(f"{_escape(name)}={_escape(value)}\n" for name, value in conf.items())


def _escape(text: str) -> str:
    for character in "\\:=#!":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", "\\n").replace("\r", "\\r")
