"""The package as an Airflow project of somebody else gets it: a wheel, in a virtual environment of its own."""

from __future__ import annotations

import hashlib
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
from integration.rebuilt import records_of

import changefeed
from changefeed.native.compiled import ROOMS, cache_folder
from devstack.home import PROJECT, Home
from devstack.java import fetch_java
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.extended

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
            timeout=240,
        )


def _give_kernels(python: Path) -> None:
    """Have the installed kernels found compiled where the tests' own are: to compile them takes two minutes of CPU.

    numba finds them by the folder and the contents of their sources; where these differ it compiles them.
    """
    cache, (installed,) = cache_folder(), python.parents[1].glob("lib/python*/site-packages/changefeed")
    for room in ROOMS if cache is not None else ():
        ours, theirs = (
            cache / f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
            for folder in (Path(changefeed.__file__).parent / room, installed / room)
        )
        if ours.is_dir():
            shutil.copytree(ours, theirs, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    folder = tmp_path_factory.mktemp("installed")
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "build", "--wheel", "--out-dir", folder, PROJECT], check=True)
    (wheel,) = folder.glob("*.whl")
    # At a path that stays the same: compiled kernels are found again by it.
    environment = Home.default().root / "test-venv"
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([*uv, "venv", "--python", sys.executable, environment], check=True)
    python = environment / "bin" / "python"
    pinned = ("--constraint", PROJECT / "requirements.lock")
    subprocess.run([*uv, "pip", "install", "--python", python, *pinned, f"{wheel}[airflow,spark]"], check=True)
    _give_kernels(python)
    project = Path(shutil.copytree(PROJECT / "examples" / "airflow-project", folder / "project"))
    yield Installed(python, wheel, project)
    shutil.rmtree(environment, ignore_errors=True)


def test_the_wheel_holds_dags_plugin_and_jobs_and_nothing_of_the_tests(installed: Installed) -> None:
    names = set(ZipFile(installed.wheel).namelist())
    assert {"changefeed/airflow/dags.py", "changefeed/jobs/ingest.py", "changefeed/jobs/backfill.py"} <= names
    assert {"changefeed_plugin.py", "changefeed_web/app.py", "changefeed_web/page/page.js"} <= names
    assert not [name for name in names if name.startswith(("devstack", "tests", "pipelines"))]
    listed = installed.run("-c", "from importlib.metadata import distributions as d; print(*[x.name for x in d()])")
    assert {"changefeed", "apache-airflow", "pyspark"} <= set(listed.stdout.split())
    assert not NOT_FOR_USERS & set(listed.stdout.split()), listed.stdout


def test_one_line_brings_the_dags_and_the_entry_point_the_page(installed: Installed) -> None:
    found = installed.project / "found.json"
    shown = installed.run(str(PROJECT / "tests" / "dags" / "bag_process.py"), str(found))
    assert shown.returncode == 0, shown.stderr
    bag = json.loads(found.read_text())
    assert not bag["import_errors"]
    assert bag["dags"].keys() == {
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


def test_the_installed_command_publishes(
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
