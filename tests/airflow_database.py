"""Airflow with a database of its own, for tests that run it in a process of its own.

Airflow reads its settings when it is imported, so one process has one Airflow: tests start another one.
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


def migrated(directory: Path, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of an Airflow in ``directory``, its database migrated; further ``settings`` win."""
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(empty_database(Home.default()), directory)
    return environment(directory) | dict(settings or {})


def environment(directory: Path) -> dict[str, str]:
    """What Airflow in ``directory`` and the programs that it starts need, without the caller's own Airflow."""
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
