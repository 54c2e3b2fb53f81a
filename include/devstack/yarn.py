"""A YARN cluster: a ResourceManager and a NodeManager at 127.0.0.1, and local folders in place of HDFS.

The servers are Hadoop's own, of the version whose clients come with pyspark. Only those are fetched that pyspark does
not have. Containers run as the user of this process.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from xml.sax.saxutils import escape

from devstack.home import PROJECT, Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.maven import Artifact, read_checksums, retrieve
from devstack.port import LOCALHOST, free_port
from devstack.process import ServerProcess
from devstack.spark_cluster import spark_home

HADOOP = "3.5.0"
ARTIFACTS = [
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", HADOOP),
    *(Artifact("org.bouncycastle", f"{name}-jdk18on", "1.82") for name in ("bcprov", "bcpkix", "bcutil")),
]
CHECKSUMS = Path(__file__).with_name("yarn.sha256")
DOWNLOAD_BYTES = 66_300_000

START_SECONDS = 180.0
MEMORY_MB = 3072

LOGGING_SETTINGS = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n%throwable
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


def fetch_yarn(home: Home) -> Path:
    """The folder with the servers' jars, which are fetched once from Maven Central."""

    def build(target: Path) -> None:
        retrieve(
            fetch_java(home),
            ARTIFACTS,
            target,
            what=f"YARN {HADOOP} (Maven Central)",
            size=DOWNLOAD_BYTES,
            checksums=read_checksums(CHECKSUMS),
            transitive=False,
        )

    return install_once(home, f"yarn-{HADOOP}", build)


class YarnCluster:
    """A ResourceManager and a NodeManager; *owner* as for the other servers.

    `start` raises FetchError if the software cannot be fetched, and ServerError with the end of a log if one of them
    does not start.
    """

    def __init__(self, directory: Path, *, home: Home | None = None, owner: ProcessId | None = None) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self._owner = owner
        self._port = free_port()
        self.manager_url = f"http://{LOCALHOST}:{self._port}"
        self._manager = self._process("resourcemanager")
        self._node = self._process("nodemanager")

    @property
    def conf_folder(self) -> Path:
        """The value of HADOOP_CONF_DIR for clients."""
        return self.directory / "conf"

    @property
    def node_folders(self) -> tuple[Path, Path]:
        """The node's folders: of the containers and their files, and of the containers' logs."""
        return self.directory / "local", self.directory / "logs"

    def start(self) -> None:
        """Start both, and wait until the node is registered."""
        self.conf_folder.mkdir(parents=True, exist_ok=True)
        for name, settings in (("core-site.xml", self._core_settings()), ("yarn-site.xml", self._yarn_settings())):
            (self.conf_folder / name).write_text(_xml(settings))
        (self.directory / "log4j2.properties").write_text(LOGGING_SETTINGS)
        jars = fetch_yarn(self.home)
        self._start(self._manager, "resourcemanager.ResourceManager", jars)
        self._start(self._node, "nodemanager.NodeManager", jars)
        self._node.wait_until(self._has_node, START_SECONDS)

    def stop(self, grace: float = 10.0) -> None:
        """Stop both, and all containers; SIGKILL if one takes longer than *grace* seconds."""
        for process in (self._node, self._manager):
            process.stop(grace)

    def _has_node(self) -> bool:
        self._manager.check_running()
        try:
            with urllib.request.urlopen(f"{self.manager_url}/ws/v1/cluster/metrics", timeout=10) as answer:
                return bool(json.load(answer)["clusterMetrics"]["activeNodes"])
        except (OSError, ValueError):
            return False

    def _core_settings(self) -> dict[str, str]:
        return {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.directory / "tmp")}

    def _yarn_settings(self) -> dict[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        ports = (
            *(f"{manager}.{name}address" for name in ("", "scheduler.", "resource-tracker.", "admin.")),
            *(f"{node}.{name}address" for name in ("", "localizer.", "webapp.")),
        )
        local, logs = self.node_folders
        return {
            **{name: f"{LOCALHOST}:{free_port()}" for name in ports},
            f"{manager}.webapp.address": f"{LOCALHOST}:{self._port}",
            f"{manager}.hostname": LOCALHOST,
            f"{manager}.bind-host": LOCALHOST,
            f"{manager}.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.scheduler.minimum-allocation-mb": "64",
            f"{node}.hostname": LOCALHOST,
            f"{node}.bind-host": LOCALHOST,
            f"{node}.local-dirs": str(local),
            f"{node}.log-dirs": str(logs),
            f"{node}.resource.memory-mb": str(MEMORY_MB),
            f"{node}.disk-health-checker.enable": "false",  # it would refuse a disk that is nearly full
            f"{node}.vmem-check-enabled": "false",
            f"{node}.pmem-check-enabled": "false",
        }

    def _process(self, name: str) -> ServerProcess:
        record = self.home.record_of(self.directory / name)
        return ServerProcess(f"YARN's {name} in {self.directory}", record, self.directory / f"{name}.log", self._owner)

    def _start(self, process: ServerProcess, program: str, jars: Path) -> None:
        java = fetch_java(self.home)
        env = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "HADOOP_", "YARN_"))
            },
            "JAVA_HOME": str(java.resolve().parent.parent),
            "HADOOP_CONF_DIR": str(self.conf_folder),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(PROJECT / "include"),
        }
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options += [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"]
        path = os.pathsep.join((str(self.conf_folder), f"{jars}/*", f"{spark_home()}/jars/*"))
        command = [str(java), *options, "-cp", path, f"org.apache.hadoop.yarn.server.{program}"]
        process.start(command, env=env, cwd=self.directory)


def _xml(settings: dict[str, str]) -> str:
    properties = (
        f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>" for k, v in settings.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>\n"
