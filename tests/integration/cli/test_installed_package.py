"""The package as a wheel, installed in a virtual environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest
from integration.topic_rows import records_of

from changefeed.native.compiled import cache_key
from devstack.home import PROJECT, Home
from devstack.java import fetch_java
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]

NOT_FOR_USERS = {"pytest", "selenium", "mypy", "ruff", "uv", "hypothesis", "axe-core-python"}


@dataclass
class Installed:
    """A virtual environment with the wheel in it, and a copy of the example project."""

    python: Path
    wheel: Path
    project: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        passed = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
        cache = os.environ.get("CHANGEFEED_KERNEL_CACHE")
        java = fetch_java(Home.default())
        return subprocess.run(
            [self.python, *arguments],
            env={
                **passed,
                **({"CHANGEFEED_KERNEL_CACHE": cache} if cache else {}),
                "PATH": f"{self.python.parent}:{java.parent}:/usr/bin:/bin",
                "JAVA_HOME": str(java.resolve().parent.parent),
                "AIRFLOW_HOME": str(self.project),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                **environment,
            },
            cwd=self.project,
            capture_output=True,
            text=True,
            timeout=600,
        )


def sources_with_kernels(folder: Path) -> Path:
    """A copy of the wheel's sources with kernels for any CPU, as `make wheel` builds from.

    The kernels stay in the session's home: to compile them takes 70 seconds of CPU after each change of a kernel.
    """
    for name in ("include/changefeed", "plugins", "jobs"):
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "kernels"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, folder)
    kernels = Home.default().root / "generic-kernels"
    subprocess.run([sys.executable, "-m", "changefeed.native", "--into", kernels], check=True)
    key = cache_key(PROJECT / "include" / "changefeed")
    shutil.copytree(kernels / key, folder / "include" / "changefeed" / "kernels" / key)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("installed")
    old = os.umask(0o022)  # kernels that others may write to are not loaded
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "build", "--wheel", "--out-dir", folder, sources_with_kernels(folder / "sources")], check=True)
    (wheel,) = folder.glob("*.whl")
    environment = Home.default().root / "test-venv"
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([*uv, "venv", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    pinned = ("--constraint", PROJECT / "requirements.lock")
    subprocess.run([*uv, "pip", "install", "--python", python, *pinned, f"{wheel}[airflow,spark]"], check=True)
    os.umask(old)
    project = Path(shutil.copytree(PROJECT / "examples" / "airflow-project", folder / "project"))
    yield Installed(python, wheel, project)
    shutil.rmtree(environment, ignore_errors=True)


def test_wheel_contains_dags_plugin_and_jobs_and_no_tests(installed: Installed) -> None:
    names = set(ZipFile(installed.wheel).namelist())
    assert {"changefeed/airflow/dags.py", "changefeed/jobs/ingest.py", "changefeed/jobs/backfill.py"} <= names
    assert {"changefeed_plugin.py", "changefeed_web/app.py", "changefeed_web/page/page.js"} <= names
    assert not [name for name in names if name.startswith(("devstack", "tests", "pipelines"))]
    listed = installed.run("-c", "from importlib.metadata import distributions as d; print(*[x.name for x in d()])")
    assert {"changefeed", "apache-airflow", "pyspark"} <= set(listed.stdout.split())
    assert not NOT_FOR_USERS & set(listed.stdout.split()), listed.stdout


def test_wheel_loads_its_kernels_and_compiles_none(installed: Installed, tmp_path: Path) -> None:
    loaded = installed.run(
        "-c",
        "from changefeed.native.__main__ import compile_all; compile_all()\n"
        "import changefeed.native.scatter as module; print(sum(module.scatter._cache_hits.values()))",
        CHANGEFEED_KERNEL_CACHE="",
        HOME=str(tmp_path),
        XDG_CACHE_HOME=str(tmp_path),
        TMPDIR=str(tmp_path),
    )
    assert (loaded.returncode, loaded.stdout, loaded.stderr) == (0, "1\n", "")
    assert not list(tmp_path.rglob("*.kernel")), "none was compiled"


def test_installed_package_has_dags_and_page(installed: Installed) -> None:
    found = installed.project / "found.json"
    shown = installed.run(str(PROJECT / "tests" / "dags" / "bag_process.py"), str(found))
    assert shown.returncode == 0, shown.stderr
    bag = json.loads(found.read_text())
    assert not bag["import_errors"]
    assert bag["dags"].keys() == {
        "changefeed_freshness",
        "changefeed_ingest__orders",
        "changefeed_seek__orders",
        "changefeed_backfill__orders",
        "changefeed_snapshot__orders",
        "changefeed_verify__orders",
    }
    shown = installed.run(
        "-c",
        "from airflow.plugins_manager import get_fastapi_plugins\n"
        "from changefeed.airflow.ingest_operator import jobs_folder\n"
        "job = jobs_folder() / 'ingest.py'\n"
        "print([app['name'] for app in get_fastapi_plugins()[0]], job.is_file(), job)",
    )
    assert shown.stdout.startswith("['changefeed'] True"), shown.stdout + shown.stderr
    assert str(installed.python.parents[1]) in shown.stdout  # the job that a DAG runs is the installed one


def test_installed_command_publishes(
    installed: Installed, mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str
) -> None:
    settings = (installed.project / "include" / "pipelines" / "orders.yaml").read_text()
    settings = settings.replace("orders.*", f"{database}.*").replace("name: orders", f"name: {database}")
    settings = settings.replace("store: variable", "store: table\n  connection: state")
    (installed.project / "include" / "pipelines" / f"{database}.yaml").write_text(settings)
    mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, name VARCHAR(20))")
    connections = {
        "AIRFLOW_CONN_MYSQL_ORDERS": mysql_server.url,
        "AIRFLOW_CONN_KAFKA_ORDERS": f"kafka://{kafka_broker.bootstrap}",
        "AIRFLOW_CONN_STATE": f"sqlite:///{installed.project}/state.db",
    }
    first = installed.run("-m", "changefeed.cli.main", "run", database, **connections)
    assert first.returncode == 3, first.stdout + first.stderr  # from latest on: nothing is new yet
    mysql_server.execute(f"INSERT INTO {database}.t VALUES (1, 'Grüße')")
    second = installed.run("-m", "changefeed.cli.main", "run", database, **connections)
    assert second.returncode == 0, second.stdout + second.stderr
    (record,) = records_of(kafka_broker.bootstrap, f"{database}.t")
    assert json.loads(record.value)["after"] == {"id": 1, "name": "Grüße"}
