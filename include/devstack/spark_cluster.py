"""A standalone Spark cluster: a master at 127.0.0.1, and workers at 127.0.0.1, 127.0.0.2 and so on.

Each worker is a host of its own for Spark: with its own address, folders, one core and 600 MB. Python on the workers is
this one, which imports the package from `include/`.
"""

from __future__ import annotations

import os
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import PROJECT, Home
from devstack.identity import ProcessId
from devstack.java import fetch_java
from devstack.port import LOCALHOST, free_port, is_listening
from devstack.process import ServerProcess

START_SECONDS = 240.0


class SparkCluster:
    """A master and *workers* workers, which require a secret; *owner* as for the other servers.

    `start` raises ServerError with the end of a log if one of them does not start.
    """

    def __init__(
        self, directory: Path, *, workers: int = 2, home: Home | None = None, owner: ProcessId | None = None
    ) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self.port = free_port()
        self.url = f"spark://{LOCALHOST}:{self.port}"
        self._owner = owner
        self._master = self._process("master")
        self.workers = [self._process(f"worker{number}") for number in range(1, workers + 1)]

    @property
    def conf_folder(self) -> Path:
        """The value of SPARK_CONF_DIR for a driver: its spark-defaults.conf has the secret of the cluster."""
        return self.directory / "conf"

    def start(self) -> None:
        """Start the master and the workers, and wait until the workers are registered."""
        self.conf_folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "spark.authenticate": "true",
            "spark.authenticate.secret": secrets.token_hex(32),
            "spark.network.crypto.enabled": "true",
        }
        file = self.conf_folder / "spark-defaults.conf"
        file.touch(0o600)
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self._start(self._master, LOCALHOST, "master.Master", "--port", str(self.port))
        self._master.wait_until(lambda: is_listening(self.port), START_SECONDS)
        for worker in self.workers:
            self.start_worker(worker)

    def start_worker(self, worker: ServerProcess) -> None:
        """Start one of `workers`, and wait until it is registered."""
        number = self.workers.index(worker) + 1
        host, folder = f"127.0.0.{number}", str(self.directory / f"worker{number}")
        size = ["--cores", "1", "--memory", "600m", "--work-dir", folder]
        self._start(worker, host, "worker.Worker", *size, self.url)
        worker.wait_until(lambda: "Successfully registered with master" in worker.log_text(), START_SECONDS)

    def stop(self, grace: float = 10.0) -> None:
        """Stop all; SIGKILL if one takes longer than *grace* seconds."""
        for process in (*self.workers, self._master):
            process.stop(grace)

    def _process(self, name: str) -> ServerProcess:
        folder = self.directory / name
        record = self.home.record_of(folder)
        return ServerProcess(f"Spark {name} in {self.directory}", record, folder / "server.log", self._owner)

    def _start(self, process: ServerProcess, host: str, program: str, *options: str) -> None:
        java = fetch_java(self.home)
        spark = spark_home()
        own = f"org.apache.spark.deploy.{program}"
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "JAVA_HOME": str(java.resolve().parent.parent),
            "SPARK_HOME": str(spark),
            "SPARK_SCALA_VERSION": "2.13",
            "SPARK_CONF_DIR": str(self.conf_folder),
            "SPARK_LOCAL_IP": host,  # otherwise Spark resolves the machine's name, which may have no address
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT / "include"),
        }
        command = [str(java), "-Xmx200m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{spark}/jars/*", own]
        process.start([*command, "--host", host, "--webui-port", "0", *options], env=env, cwd=self.directory)


def spark_home() -> Path:
    """The folder of pyspark; raises FetchError if it is not installed."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise FetchError("expected the package pyspark, found none. Run `make setup`.")
    return Path(spec.origin).parent
