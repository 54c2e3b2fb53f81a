"""Airflow's Variables as the command reaches them: only where an Airflow is set up, and without a word on stdout."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

from changefeed.errors import SettingsError
from changefeed.settings.pipeline import Pipeline
from changefeed.state.variable_store import MetadataVariables, VariableCheckpointStore

_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_CHOSEN_BY = ("AIRFLOW_CONFIG", _DATABASE, f"{_DATABASE}_CMD", f"{_DATABASE}_SECRET")
"""Environment variables each of which says by itself where Airflow's database is."""

_OF_AN_AIRFLOW = ("airflow.cfg", "airflow.db")
"""Files of which AIRFLOW_HOME has at least one when an Airflow was started there."""


class CommandVariables(MetadataVariables):
    """Variables whose log goes to stderr: Airflow writes its own to stdout, which is for what a command prints."""

    def get(self, key: str) -> str | None:
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


def lack_of_airflow() -> str:
    """Why Airflow is not to be imported here: there is none, or importing it would make one, empty, in ~/airflow.

    '' where an Airflow is set up.
    """
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    if find_spec("airflow") is None:
        return "apache-airflow is not installed here"
    if any(name in os.environ for name in _CHOSEN_BY) or any((home / name).exists() for name in _OF_AN_AIRFLOW):
        return ""
    named = "is" if "AIRFLOW_HOME" in os.environ else "is not set; its default is"
    return f"no Airflow is set up here: AIRFLOW_HOME {named} {str(home)!r}, which has no airflow.cfg"


def variable_store(pipeline: Pipeline) -> VariableCheckpointStore:
    """The store of a pipeline whose checkpoint is an Airflow Variable.

    Raises SettingsError where no Airflow is set up.
    """
    lack = lack_of_airflow()
    if not lack:
        return VariableCheckpointStore(CommandVariables())
    raise SettingsError(
        f"pipeline {pipeline.name!r} keeps its checkpoint in an Airflow Variable (checkpoint.store: variable), and "
        f"{lack}. Set AIRFLOW_HOME and {_DATABASE} as the Airflow that runs the pipeline has them, and its "
        "AIRFLOW__CORE__FERNET_KEY (`make demo` prints those of its own); or keep the checkpoint without Airflow: "
        "write `checkpoint: {store: table, connection: state}` in the pipeline's YAML, and set "
        "AIRFLOW_CONN_STATE=sqlite:////var/lib/changefeed/state.db or another database."
    )
