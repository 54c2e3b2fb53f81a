"""Airflow 3: API server, scheduler, DAG processor and triggerer, with SQLite or another metadata database."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from devstack.errors import ServerError
from devstack.home import PROJECT, Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.lock import hold_lock
from devstack.port import LOCALHOST, free_port
from devstack.process import POLL_SECONDS, ServerProcess
from devstack.spark import PACKAGES_LOCK

START_SECONDS = 240.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 60.0

COMPONENTS: Mapping[str, tuple[str, ...]] = {
    "api-server": ("--workers", "1"),
    "scheduler": ("--skip-serve-logs",),
    "dag-processor": (),
    "triggerer": ("--skip-serve-logs",),
}
"""The components and their arguments. Log servers are skipped, because they listen on all addresses."""

HEALTHY_PARTS = ("metadatabase", "scheduler", "dag_processor", "triggerer")

USER = "admin"
"""The only user, an administrator."""

_NOT_INHERITED = ("AIRFLOW", "PYTHONPATH", "SPARK_", "PYSPARK_", "VIRTUAL_ENV")


@dataclass(frozen=True)
class _Installation:
    """Port and keys, stored with the data; only the owner can read the file."""

    port: int
    jwt_secret: str
    secret_key: str
    fernet_key: str


class AirflowServer:
    """An Airflow whose AIRFLOW_HOME is *directory*, with the project's DAGs and plugins.

    - *connections* maps a connection's id to its URI or JSON.
    - *settings* are further environment variables of all components, which override devstack's
      (`{"AIRFLOW__CORE__PARALLELISM": "8"}`).
    - *owner* is a process. When it has ended, the server is an orphan. Without an owner the server runs until it is
      stopped.
    - *database* is the SQLAlchemy URL of an empty metadata database, with an asynchronous driver. Default: SQLite in
      *directory*.
    - *quick*, for tests: SQLite's database is copied from a migrated one.

    The first `start` creates database, port, keys and the generated password of the only user, `USER`. Other objects
    for the same directory use them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        project: Path = PROJECT,
        connections: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        home: Home | None = None,
        owner: ProcessId | None = None,
        database: str = "",
        quick: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self._database = database
        self._quick = quick
        self.project = project.absolute()
        self.home = home or Home.default()
        self.connections = dict(connections or {})
        self.settings = dict(settings or {})
        record = self.home.record_of(self.directory)
        self._processes = {
            component: ServerProcess(
                f"Airflow's {component} in {self.directory}",
                record.with_name(f"{record.stem}-{component}.json"),
                self.directory / f"{component}.log",
                owner,
            )
            for component in COMPONENTS
        }

    @property
    def port(self) -> int:
        """TCP port of page and REST API at 127.0.0.1; it does not change while the data exist."""
        return self._installation().port

    @property
    def url(self) -> str:
        """URL of the page; the REST API is below `/api/v2`."""
        return f"http://{LOCALHOST}:{self.port}"

    @property
    def password(self) -> str:
        """Password of `USER`; it does not change while the data exist, unless *settings* name another passwords
        file."""
        return str(json.loads(self._passwords_file.read_text())[USER])

    @property
    def running(self) -> bool:
        """Whether all components are alive."""
        return all(process.running for process in self._processes.values())

    @property
    def any_running(self) -> bool:
        """Whether at least one component is alive."""
        return any(process.running for process in self._processes.values())

    @property
    def pids(self) -> list[int]:
        """Pids of the components that are alive."""
        return [process.pid for process in self._processes.values() if process.pid is not None]

    @property
    def logs(self) -> dict[str, Path]:
        """Each component's log."""
        return {component: process.log for component, process in self._processes.items()}

    @property
    def env(self) -> dict[str, str]:
        """The complete environment of the components, also for other processes that use this Airflow."""
        java = fetch_java(self.home)
        return {
            **self._environment(java.parent),
            "JAVA_HOME": str(java.resolve().parent.parent),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": LOCALHOST,
            **self.settings,
        }

    def _environment(self, *folders: Path) -> dict[str, str]:
        """The environment of commands that start no Spark; *folders* are added to their PATH."""
        installation = self._installation()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        programs = [str(Path(sys.executable).parent), *map(str, folders), os.environ.get("PATH", "")]
        return {
            **inherited,
            **self._airflow_settings(installation),
            **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in self.connections.items()},
            "PATH": os.pathsep.join(programs),
            "PYTHONPATH": str(self.project / "include"),
            **self.settings,
        }

    @property
    def database_env(self) -> dict[str, str]:
        """The part of `env` that another process needs to read and write this Airflow's Variables."""
        settings = self._airflow_settings(self._installation())
        names = ("AIRFLOW_HOME", "AIRFLOW__CORE__FERNET_KEY", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
        return {name: settings[name] for name in names}

    def prepare(self) -> None:
        """Create the missing files, which takes 15 seconds for the database; needs neither connections nor Java."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        if not self._installation_file.exists():
            installation = _Installation(
                port=free_port(),
                jwt_secret=secrets.token_urlsafe(64),
                secret_key=secrets.token_urlsafe(32),
                fernet_key=base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            )
            partial = self._installation_file.with_suffix(".partial")
            partial.write_text(json.dumps(asdict(installation)))
            partial.replace(self._installation_file)
        if not self._passwords_file.exists():
            self._passwords_file.touch(mode=0o600)
            self._passwords_file.write_text(json.dumps({USER: secrets.token_urlsafe(12)}))
        migrated = self.directory / f"migrated-{version('apache-airflow')}"
        if not migrated.exists():
            if self._quick and not self._database:
                shutil.copy(empty_database(self.home), self.directory)
            else:
                with hold_lock(self.home.root / PACKAGES_LOCK, "Airflow: waiting until Spark is installed"):
                    self._run(self._environment(), "db", "migrate")
            migrated.touch()

    def start(self) -> None:
        """Create missing files, start all components, and wait until Airflow reports them healthy.

        If all components run already, only wait; if some do, stop them first. Raises ServerError with the end of the
        log of the component that did not start.
        """
        try:
            if not self.running:
                self.stop()
                self.prepare()
                self._start_components()
            self._processes["api-server"].wait_until(self._healthy, START_SECONDS)
        except BaseException:
            self.stop(grace=5)
            raise

    def stop(self, grace: float = STOP_SECONDS) -> None:
        """Stop the components and their tasks; SIGKILL if that takes longer than *grace* seconds each.

        The API server is stopped last, because running tasks report to it.
        """
        others = [process for component, process in self._processes.items() if component != "api-server"]
        with ThreadPoolExecutor(len(others)) as threads:
            list(threads.map(lambda process: process.stop(grace), others))
        self._processes["api-server"].stop(grace)

    def kill(self) -> None:
        """`kill -9` to all components and their tasks."""
        self.stop(grace=0)

    def restart_killed(self, component: str) -> None:
        """`kill -9` to the process of *component*, whose tasks continue, and start it again."""
        process = self._processes[component]
        if process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        while process.running:
            time.sleep(POLL_SECONDS)
        process.start(_command(component), env=self.env, cwd=self.directory)

    def cli(self, *arguments: str) -> str:
        """Output of the command `airflow` with *arguments*; raises ServerError if it fails.

        Each call takes several seconds; the REST API is faster.
        """
        return self._run(self.env, *arguments)

    def _run(self, environment: Mapping[str, str], *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            tail = (done.stdout + done.stderr)[-3000:]
            raise ServerError(f"`airflow {' '.join(arguments)}` failed with exit code {done.returncode}:\n{tail}")
        return done.stdout

    def read(self, path: str) -> Any:
        """The REST API's answer to a GET of *path* as `USER`. Raises urllib's HTTPError and URLError."""
        return self._request(path, self._login())

    def trigger(self, dag_id: str) -> bool:
        """Start a run of the DAG; False if Airflow has not read it yet. Raises urllib's HTTPError and URLError."""
        body = json.dumps({"logical_date": None, "conf": {}}).encode()
        headers = {**self._login(), "Content-Type": "application/json"}
        try:
            self._request(f"/api/v2/dags/{dag_id}/dagRuns", headers, body)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return False
            raise
        return True

    def _login(self) -> dict[str, str]:
        login = json.dumps({"username": USER, "password": self.password}).encode()
        token = self._request("/auth/token", {"Content-Type": "application/json"}, login)["access_token"]
        return {"Authorization": f"Bearer {token}"}

    def _request(self, path: str, headers: dict[str, str], body: bytes | None = None) -> Any:
        request = urllib.request.Request(self.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)

    def _start_components(self) -> None:
        env = self.env
        for component in COMPONENTS:
            self._processes[component].start(_command(component), env=env, cwd=self.directory)

    # --- files

    @property
    def _installation_file(self) -> Path:
        return self.directory / "installation.json"

    def _installation(self) -> _Installation:
        if not self._installation_file.exists():
            raise ServerError(f"Airflow in {self.directory} has no port and keys yet. Start it first")
        return _Installation(**json.loads(self._installation_file.read_text()))

    @property
    def _passwords_file(self) -> Path:
        return self.directory / "passwords.json"

    def _airflow_settings(self, installation: _Installation) -> dict[str, str]:
        url = f"http://{LOCALHOST}:{installation.port}"
        return {
            "AIRFLOW_HOME": str(self.directory),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__HOST": LOCALHOST,
            "AIRFLOW__API__PORT": str(installation.port),
            "AIRFLOW__API__SECRET_KEY": installation.secret_key,
            "AIRFLOW__API_AUTH__JWT_SECRET": installation.jwt_secret,
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.project / "dags"),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__FERNET_KEY": installation.fernet_key,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(self.project / "plugins"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self._passwords_file),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
            **self._database_settings(),
            # A new asset is inactive until this cleanup has run; tasks that use it before fail without a retry.
            "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "10",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    def _database_settings(self) -> dict[str, str]:
        name = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
        if self._database:
            return {name: self._database, f"{name}_ASYNC": self._database}
        # SQLite serializes writers. Its default of 5 seconds of waiting is too short on a busy machine.
        return {name: f"sqlite:///{self.directory / 'airflow.db'}?timeout=60"}

    # --- health

    def _healthy(self) -> bool:
        for process in self._processes.values():
            process.check_running()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:
                health = json.load(answer)
        except (urllib.error.URLError, OSError, ValueError):
            return False
        return all(health.get(part, {}).get("status") == "healthy" for part in HEALTHY_PARTS)


def _command(component: str) -> list[str]:
    return [sys.executable, "-m", "airflow", component, *COMPONENTS[component]]


def empty_database(home: Home) -> Path:
    """The file `airflow.db` that `airflow db migrate` creates. It takes 15 seconds, so it is created once, and copied.

    Raises ServerError if Airflow cannot create it.
    """

    def make(target: Path) -> None:
        AirflowServer(target, home=home).prepare()

    return install_once(home, f"airflow-{version('apache-airflow')}-database", make) / "airflow.db"
