"""A Spark Connect server whose workers use this Python, and which requires a token."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path

from devstack.home import PROJECT, Home
from devstack.identity import ProcessId
from devstack.java import fetch_java
from devstack.port import LOCALHOST, free_port
from devstack.process import ServerProcess

START_SECONDS = 240.0


class SparkConnectServer:
    """A Spark Connect server at `local[2]`, with its log in *directory*; *owner* as for the other servers.

    `start` raises ServerError with the end of the log if it does not start.
    """

    def __init__(self, directory: Path, *, home: Home | None = None, owner: ProcessId | None = None) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self.port = free_port()
        self._token = secrets.token_urlsafe(32)
        self._process = ServerProcess(
            f"Spark Connect in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "server.log",
            owner,
        )

    @property
    def url(self) -> str:
        """The value of a pipeline's `spark.connect`.

        Without TLS, Spark sends a token only to the host name `localhost`.
        """
        return f"sc://localhost:{self.port}/;token={self._token}"

    @property
    def pid(self) -> int | None:
        """The pid of the server; None if it does not run."""
        return self._process.pid

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "spark.connect.grpc.binding.address": LOCALHOST,
            "spark.connect.grpc.binding.port": self.port,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts in half the time
            "spark.driver.bindAddress": LOCALHOST,
            "spark.driver.host": LOCALHOST,
            "spark.authenticate": "true",
            "spark.ui.enabled": "false",
            "spark.python.daemon.module": "changefeed.spark.daemon",
            "spark.python.unix.domain.socket.enabled": "true",
        }
        command = [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        java = fetch_java(self.home)
        env = {
            **os.environ,
            "JAVA_HOME": str(java.resolve().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT / "include"),
            "SPARK_LOCAL_IP": LOCALHOST,
            "SPARK_CONNECT_AUTHENTICATE_TOKEN": self._token,
        }
        self._process.start(command, env=env, cwd=self.directory)
        self._process.wait_until(self._answers, START_SECONDS)

    def stop(self, grace: float = 10.0) -> None:
        """Stop the server; SIGKILL if that takes longer than *grace* seconds."""
        self._process.stop(grace)

    def _answers(self) -> bool:
        try:
            socket.create_connection((LOCALHOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True
