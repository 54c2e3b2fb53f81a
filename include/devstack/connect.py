"""Kafka Connect with Debezium's MySQL connector and transforms: one worker, for tests and benchmarks.

`make demo` and `make test` neither fetch nor start it. It is controlled by its REST interface
(https://kafka.apache.org/43/kafka-connect/user-guide/#rest-api), which listens on 127.0.0.1.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from devstack.errors import ServerError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.kafka import KAFKA, LOGGING, LOGGING_SETTINGS, Properties, java_environment, properties_text
from devstack.maven import Artifact, read_checksums, retrieve
from devstack.port import LOCALHOST, free_port, is_listening
from devstack.process import POLL_SECONDS, ServerProcess

CONNECT = Artifact("org.apache.kafka", "connect-runtime", KAFKA.version)
JSON = Artifact("org.apache.kafka", "connect-json", KAFKA.version)
DEBEZIUM = Artifact("io.debezium", "debezium-connector-mysql", "3.6.1.Final")
CHECKSUMS = Path(__file__).with_name("connect.sha256")
DOWNLOAD_BYTES = 48_500_000

START_SECONDS = 240.0
STATE_SECONDS = 180.0


def fetch_connect(home: Home) -> Path:
    """The folder with the jars of Connect and the connector, which are fetched once from Maven Central."""

    def build(target: Path) -> None:
        retrieve(
            fetch_java(home),
            [DEBEZIUM, CONNECT, JSON, LOGGING],
            target,
            what=f"Kafka Connect {CONNECT.version} and Debezium {DEBEZIUM.version} (Maven Central)",
            size=DOWNLOAD_BYTES,
            checksums=read_checksums(CHECKSUMS),
        )

    return install_once(home, f"connect-{CONNECT.version}-debezium-{DEBEZIUM.version}", build)


class ConnectWorker:
    """A standalone worker with its settings, the offsets of its connectors and its log in *directory*.

    *bootstrap* is the broker's address. *properties* override devstack's settings of the worker, which write JSON
    without schemas. *heap* is the largest heap in Java's notation. *jars* are folders with further connectors, first on
    the class path. *owner* as for the other servers.

    `start` raises FetchError if the software cannot be fetched, and ServerError with the end of the log if the worker
    does not start. The other methods raise ServerError with the worker's answer, and with the end of the log if a
    connector or its task failed.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        *,
        properties: Properties | None = None,
        heap: str = "1g",
        jars: Sequence[Path] = (),
        home: Home | None = None,
        owner: ProcessId | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self._port = free_port()
        self._heap = heap
        self._jars = tuple(jars)
        self._properties: dict[str, str | int | bool] = {
            "bootstrap.servers": bootstrap,
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": False,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": False,
            "offset.storage.file.filename": (self.directory / "offsets").as_posix(),
            "listeners": f"http://{LOCALHOST}:{self._port}",
            "rest.advertised.host.name": LOCALHOST,
            **(properties or {}),
        }
        self._process = ServerProcess(
            f"Kafka Connect in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "worker.log",
            owner,
        )

    @property
    def pid(self) -> int | None:
        """Pid of the worker's process, or None if it does not run."""
        return self._process.pid

    def start(self) -> None:
        """Fetch missing software, start the worker, and wait until it accepts requests."""
        jars = [*self._jars, fetch_connect(self.home)]
        self.directory.mkdir(parents=True, exist_ok=True)
        settings, logging = self.directory / "worker.properties", self.directory / "log4j2.properties"
        settings.write_text(properties_text(self._properties))
        logging.write_text(LOGGING_SETTINGS)
        command = [str(fetch_java(self.home)), f"-Xmx{self._heap}", "-Djava.awt.headless=true"]
        command += [f"-Dlog4j2.configurationFile={logging}", "-cp", ":".join(f"{folder}/*" for folder in jars)]
        command += ["org.apache.kafka.connect.cli.ConnectStandalone", str(settings)]
        self._process.start(command, env=java_environment(), cwd=self.directory)
        self._process.wait_until(self._answers, START_SECONDS)

    def stop(self, grace: float = 20.0) -> None:
        """Shut down cleanly; SIGKILL if that takes longer than *grace* seconds."""
        self._process.stop(grace)

    def add_stopped(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create *connector* in state STOPPED."""
        self._ask("POST", "connectors", {"name": connector, "config": dict(settings), "initial_state": "STOPPED"})
        self._wait_for(connector, "STOPPED")

    def add(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create and start *connector*; returns when its task runs."""
        self._ask("POST", "connectors", {"name": connector, "config": dict(settings)})
        self._wait_for(connector, "RUNNING")

    def resume(self, connector: str) -> None:
        """Resume the stopped *connector* at its offset; returns when its task runs."""
        self._ask("PUT", f"connectors/{connector}/resume")
        self._wait_for(connector, "RUNNING")

    def stop_connector(self, connector: str) -> None:
        """Stop *connector*; returns when its task has ended."""
        self._ask("PUT", f"connectors/{connector}/stop")
        self._wait_for(connector, "STOPPED")

    def set_offset(self, connector: str, partition: Mapping[str, Any], offset: Mapping[str, Any]) -> None:
        """Set the offset at which the stopped *connector* resumes, in the connector's own format."""
        offsets = [{"partition": dict(partition), "offset": dict(offset)}]
        self._ask("PATCH", f"connectors/{connector}/offsets", {"offsets": offsets})

    def check(self, connector: str) -> None:
        """Raise ServerError if *connector* or its task has failed."""
        self._states(connector)

    def _states(self, connector: str) -> list[str]:
        """The state of the connector, and the states of its tasks."""
        status = self._ask("GET", f"connectors/{connector}/status")
        parts = [status["connector"], *status["tasks"]]
        for part in parts:
            if part["state"] == "FAILED":
                raise ServerError(
                    f"connector {connector!r} failed: {part.get('trace')}\n{self._process.describe_log()}"
                )
        return [part["state"] for part in parts]

    def _wait_for(self, connector: str, state: str) -> None:
        expected = [state] if state == "STOPPED" else [state, state]
        deadline = time.monotonic() + STATE_SECONDS
        while (states := self._states(connector)) != expected:
            if time.monotonic() > deadline:
                raise ServerError(
                    f"connector {connector!r}: expected states {expected}, found {states} after {STATE_SECONDS:.0f} s. "
                    + self._process.describe_log()
                )
            time.sleep(POLL_SECONDS)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://{LOCALHOST}:{self._port}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=STATE_SECONDS) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            raise ServerError(
                f"Kafka Connect refused {method} {path}: {error.read().decode(errors='replace')}"
            ) from None

    def _answers(self) -> bool:
        return is_listening(self._port) and "Kafka Connect started" in self._process.log_text()
