"""Apache Kafka 4.3.1: one node, which is broker and controller."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from devstack.errors import ServerError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.java import fetch_java, java_version
from devstack.maven import Artifact, read_artifacts, retrieve
from devstack.port import LOCALHOST, free_port, is_listening
from devstack.process import ServerProcess

KAFKA = Artifact("org.apache.kafka", "kafka_2.13", "4.3.1")
LOGGING = Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4")
CHECKSUMS = Path(__file__).with_name("kafka.sha256")
DOWNLOAD_BYTES = 45_100_000

START_SECONDS = 180.0
HEAP = "512m"
STARTED = "Kafka Server started"
_ONE_COMPILER = "-XX:TieredStopAtLevel=1"

LOGGING_SETTINGS = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
logger.config.name = org.apache.kafka.common.config
logger.config.level = warn
"""

Properties = Mapping[str, str | int | bool]
"""Broker properties as in a `server.properties`."""


def fetch_kafka(home: Home) -> Path:
    """The folder with the broker's jars, which are fetched once from Maven Central."""

    def build(target: Path) -> None:
        artifacts = read_artifacts(CHECKSUMS)
        retrieve(
            fetch_java(home),
            list(artifacts),
            target,
            what=f"Kafka {KAFKA.version} (Maven Central)",
            size=DOWNLOAD_BYTES,
            checksums={artifact.jar: digest for artifact, digest in artifacts.items()},
            transitive=False,
        )

    return install_once(home, f"kafka-{KAFKA.version}", build)


@dataclass(frozen=True)
class _Node:
    """Ports and cluster id, stored with the data."""

    port: int
    controller_port: int
    cluster_id: str


class KafkaBroker:
    """A broker with its data, settings and log in *directory*.

    - *properties* override devstack's settings in `server.properties`.
    - *owner* is a process, such as the test session. When it has ended, the broker is an orphan. Without an owner the
      broker runs until it is stopped.
    - *quick*, for tests: the broker starts in a third of the time. Empty data and an archive of loaded classes are
      copied from a template, and Java's second compiler, which helps only under long load, is off. All quick brokers
      have the same cluster id.

    The first `start` creates the data. Other objects for the same directory, also in other processes, use the same
    data, port and process. Topics are not created automatically.

    `start` raises FetchError if the software cannot be fetched, and ServerError with the end of the log if the broker
    does not start.
    """

    def __init__(
        self,
        directory: Path,
        *,
        properties: Properties | None = None,
        home: Home | None = None,
        owner: ProcessId | None = None,
        quick: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self._quick = quick
        self._java_options: list[str] = []
        self.properties: dict[str, str | int | bool] = dict(properties or {})
        self._process = ServerProcess(
            f"Kafka in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "server.log",
            owner,
        )

    @property
    def port(self) -> int:
        """TCP port at 127.0.0.1; it does not change while the data exist."""
        return self._node().port

    @property
    def bootstrap(self) -> str:
        """The clients' `bootstrap.servers`."""
        return f"{LOCALHOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The broker's log."""
        return self._process.log

    @property
    def running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._process.running

    @property
    def pid(self) -> int | None:
        """Pid of the broker's process, or None if it does not run."""
        return self._process.pid

    def start(self) -> None:
        """Fetch missing software, create missing data, start the broker, and wait until it accepts requests.

        If it runs already, only wait.
        """
        if not self.running:
            fetch_kafka(self.home)
            if not self._node_file.exists():
                self._create()
            self._write_settings(self._node())
            if self._quick:
                self._java_options = [_ONE_COMPILER, f"-XX:SharedArchiveFile={self._template()._classes}"]
            command = self._java("kafka.Kafka", str(self._settings_file))
            self._process.start(command, env=java_environment(), cwd=self.directory)
        self._process.wait_until(self._answers, START_SECONDS)

    def stop(self, grace: float = 20.0) -> None:
        """Shut down cleanly; SIGKILL if that takes longer than *grace* seconds. The data stay."""
        self._process.stop(grace)

    def kill(self) -> None:
        """`kill -9`, as a machine failure would. The data stay."""
        self._process.kill()

    def restart(self, properties: Properties | None = None) -> None:
        """Stop, merge *properties* into the settings, and start with the same data and port."""
        self.stop()
        self.properties |= properties or {}
        self.start()

    @property
    def _node_file(self) -> Path:
        return self.directory / "node.json"

    @property
    def _settings_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _formatted_data(self) -> Path:
        return self.directory / "formatted"

    @property
    def _classes(self) -> Path:
        return self.directory / "classes.jsa"

    def _node(self) -> _Node:
        if not self._node_file.exists():
            raise ServerError(f"Kafka in {self.directory} has no port yet. Start it first")
        return _Node(**json.loads(self._node_file.read_text()))

    def _create(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)  # left by an incomplete creation
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.properties").write_text(LOGGING_SETTINGS)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if self._quick:
            template = self._template()
            shutil.copytree(template._formatted_data, self._data)
            cluster_id = template._node().cluster_id
        node = _Node(free_port(), free_port(), cluster_id)
        self._write_settings(node)
        if not self._quick:
            self._format(cluster_id)
        partial = self._node_file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(node)))
        partial.replace(self._node_file)

    def _format(self, cluster_id: str) -> None:
        arguments = ["format", f"--cluster-id={cluster_id}", "--config", str(self._settings_file)]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=java_environment(),
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(f"Kafka's data folder {self._data} could not be created:\n{done.stdout[-2000:]}")

    def _template(self) -> KafkaBroker:
        """The template of quick brokers: formatted data, and an archive of the classes that a broker loads."""

        def make(target: Path) -> None:
            template = KafkaBroker(target, home=self.home, owner=ProcessId.own())
            template._create()
            shutil.copytree(template._data, template._formatted_data)
            template._java_options = [_ONE_COMPILER, f"-XX:ArchiveClassesAtExit={template._classes}"]
            template.start()
            template.stop(grace=60)

        name = f"kafka-{KAFKA.version}-data-java-{java_version(fetch_java(self.home))}"
        return KafkaBroker(install_once(self.home, name, make), home=self.home)

    def _write_settings(self, node: _Node) -> None:
        listeners = f"PLAINTEXT://{LOCALHOST}:{node.port}"
        settings: dict[str, str | int | bool] = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{LOCALHOST}:{node.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{LOCALHOST}:{node.controller_port}",
            "advertised.listeners": listeners,
            "log.dirs": self._data.as_posix(),
            "auto.create.topics.enable": "false",
            "num.partitions": 1,
            "default.replication.factor": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            # After a kill -9 the controller refuses the broker until this timeout has passed.
            "broker.session.timeout.ms": 4000,
            "broker.heartbeat.interval.ms": 500,
            "group.initial.rebalance.delay.ms": 0,
            "log.segment.delete.delay.ms": 1000,
            **self.properties,
        }
        self._settings_file.write_text(properties_text(settings))

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [
            str(fetch_java(self.home)),
            f"-Xmx{HEAP}",
            "-XX:+UseSerialGC",
            *self._java_options,
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            f"{fetch_kafka(self.home)}/*",
            main,
            *arguments,
        ]

    def _answers(self) -> bool:
        return STARTED in self._process.log_text() and is_listening(self.port)


def properties_text(settings: Properties) -> str:
    """The text of a properties file with *settings*."""
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
    return "".join(f"{name}={value}\n" for name, value in values.items())


def java_environment() -> dict[str, str]:
    """The environment of Kafka's programs: the caller's, without variables of Kafka and Java."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA", "JDK_JAVA"))}
