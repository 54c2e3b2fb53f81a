"""An Airflow with its own database, for tests that start it in another process.

Airflow reads its settings when it is imported, so a process can have only one Airflow.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from devstack.airflow import empty_database
from devstack.home import Home

PROJECT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.executable).parent
_NOT_INHERITED = ("AIRFLOW", "CHANGEFEED_PIPELINES", "PYSPARK_", "SPARK_")


def create_database(directory: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Create the migrated database of an Airflow in ``directory``.

    Returns its environment, with ``settings`` on top.
    """
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty_database(Home.default()), directory)
    return environment(directory) | dict(settings or {})


def environment(directory: Path) -> dict[str, str]:
    """The environment of an Airflow in ``directory`` and its programs, without variables of the caller's Airflow."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    return kept | {
        "AIRFLOW_HOME": str(directory),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(directory / "plugins"),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{directory / 'airflow.db'}",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT / "include"),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
