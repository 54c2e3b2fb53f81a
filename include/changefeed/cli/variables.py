"""Reads and writes Airflow's Variables for the command, if an Airflow is set up, without output on stdout."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout, suppress
from importlib.util import find_spec
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.settings.pipeline import Pipeline
from changefeed.state.variable_row import AirflowNeededError, read_variable
from changefeed.state.variable_store import MetadataVariables, VariableCheckpointStore

_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_DATABASE_VARIABLES = ("AIRFLOW_CONFIG", _DATABASE, f"{_DATABASE}_CMD", f"{_DATABASE}_SECRET")
"""Environment variables. Each of them sets Airflow's database."""

_AIRFLOW_FILES = ("airflow.cfg", "airflow.db")
"""AIRFLOW_HOME has at least one of these files after an Airflow was started there."""


class CommandVariables(MetadataVariables):
    """Airflow's Variables, with Airflow's log on stderr instead of stdout, which has the command's output.

    Reading imports no Airflow if the environment has the database and the key.
    """

    def get(self, key: str) -> str | None:
        with suppress(AirflowNeededError):
            return read_variable(key)
        with redirect_stdout(sys.stderr):
            return super().get(key)

    def set(self, key: str, value: str, description: str) -> None:
        with redirect_stdout(sys.stderr):
            super().set(key, value, description)

    def keys(self, prefix: str) -> list[str]:
        with redirect_stdout(sys.stderr):
            return super().keys(prefix)

    def delete(self, key: str) -> None:
        with redirect_stdout(sys.stderr):
            super().delete(key)


def find_airflow_problem() -> str:
    """Why Airflow is not imported: it is not installed, or the import would create an empty one in ~/airflow.

    '' if an Airflow is set up.
    """
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    if find_spec("airflow") is None:
        return "apache-airflow is not installed here"
    if any(name in os.environ for name in _DATABASE_VARIABLES) or any(
        (home / name).exists() for name in _AIRFLOW_FILES
    ):
        return ""
    named = "is" if "AIRFLOW_HOME" in os.environ else "is not set; its default is"
    return f"no Airflow is set up here: AIRFLOW_HOME {named} {str(home)!r}, which has no airflow.cfg"


def variable_store(pipeline: Pipeline) -> VariableCheckpointStore:
    """The store of a pipeline whose checkpoint is an Airflow Variable; raises SettingsError if no Airflow is set up."""
    problem = find_airflow_problem()
    if not problem:
        return VariableCheckpointStore(CommandVariables())
    raise SettingsError(
        f"the checkpoint of pipeline {pipeline.name!r} is an Airflow Variable (checkpoint.store: variable), and "
        f"{problem}. Set AIRFLOW_HOME and {_DATABASE} as the Airflow that runs the pipeline has them, and its "
        "AIRFLOW__CORE__FERNET_KEY (`make demo` prints its own); or store the checkpoint without Airflow: "
        "write `checkpoint: {store: kafka}` in the pipeline's YAML; or `checkpoint: {store: table, connection: "
        "state}`, and set AIRFLOW_CONN_STATE=sqlite:////var/lib/changefeed/state.db or another database."
    )
