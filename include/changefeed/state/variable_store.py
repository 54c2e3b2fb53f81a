"""Checkpoints in Airflow Variables."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError

from changefeed.errors import CheckpointError, StateStoreUnavailableError
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, check_forward, stale
from changefeed.records.compression import MOST_OF_A_LOG, inflate


class Variables(Protocol):
    """The calls of Airflow's Variables that a store needs."""

    def get(self, key: str) -> str | None: ...

    def set(self, key: str, value: str, description: str) -> None: ...

    def keys(self, prefix: str) -> list[str]: ...

    def delete(self, key: str) -> None:
        """Delete a Variable, if it exists."""
        ...


class VariableCheckpointStore:
    """A `CheckpointStore` in the Variable `changefeed_checkpoint__<pipeline>`.

    Airflow's Variables have no compare-and-set: `advance` reads, compares and sets. A process that is suspended between
    the read and the set overwrites a checkpoint that another process stored in between.

    That does not move the pipeline back. Under the lease, each checkpoint is written to the commit log before it is
    stored: as the first checkpoint, as the seal of a window, or as a seek. So a checkpoint that is stored too late is
    older than the log, and the next plan moves it up to the log (`pipeline.open_windows`).
    """

    def __init__(self, variables: Variables | None = None) -> None:
        self._variables = variables or AirflowVariables()

    def load(self, pipeline: str) -> Checkpoint | None:
        text = self._variables.get(_key(pipeline))
        return None if text is None else Checkpoint.from_text(text)

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        check_forward(expected, new)
        self.replace(expected, new)

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        stored = self.load(new.pipeline)
        if stored != expected:
            raise stale(new.pipeline, expected, stored)
        fault_point.reach("before_checkpoint_write")
        self._variables.set(_key(new.pipeline), new.to_text(), f"Checkpoint of changefeed pipeline {new.pipeline}")

    def pipelines(self) -> list[str]:
        prefix = _key("")
        return sorted(key.removeprefix(prefix) for key in self._variables.keys(prefix))

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        stored = self.load(pipeline)
        if stored not in (None, expected):
            raise stale(pipeline, expected, stored)
        for key in (_key(pipeline), _schemas_key(pipeline)):
            self._variables.delete(key)

    def load_schemas(self, pipeline: str) -> str | None:
        text = self._variables.get(_schemas_key(pipeline))
        return None if text is None else inflate(base64.b64decode(text), MOST_OF_A_LOG).decode()

    def save_schemas(self, pipeline: str, text: str) -> None:
        packed = base64.b64encode(zlib.compress(text.encode())).decode()
        self._variables.set(_schemas_key(pipeline), packed, f"Schemas of changefeed pipeline {pipeline}, compressed")


class AirflowVariables:
    """Variables inside a task: they go through the task's supervisor to Airflow's API.

    `Variable.get` returns the same for an error of the API and for a missing Variable, and a checkpoint that cannot be
    read would look like a lost one. So a Variable counts as missing only if the list of keys does not have it either.
    Raises StateStoreUnavailableError if the list has it, or if there is no list.
    """

    def get(self, key: str) -> str | None:
        from airflow.sdk import Variable

        value = Variable.get(key, default=None)
        if value is None and key in self.keys(key):
            raise StateStoreUnavailableError(
                f"Airflow has Variable {key!r} and does not give it: its API answers with an error, or it was written "
                "with another key than AIRFLOW__CORE__FERNET_KEY. Nothing was stored, and nothing published. The log "
                "of Airflow's API server says which; run again when the Variable can be read."
            )
        return None if value is None else str(value)

    def set(self, key: str, value: str, description: str) -> None:
        from airflow.sdk import Variable

        Variable.set(key, value, description=description)

    def keys(self, prefix: str) -> list[str]:
        from airflow.sdk import Variable
        from airflow.sdk.exceptions import AirflowRuntimeError

        try:
            return list(Variable.keys(prefix=prefix))
        except AirflowRuntimeError as error:
            raise StateStoreUnavailableError(
                f"Airflow's API, which has the Variables with the checkpoints, does not list them: {error}. Nothing "
                "was stored. Run again when it answers."
            ) from error

    def delete(self, key: str) -> None:
        from airflow.sdk import Variable

        if self.get(key) is not None:
            Variable.delete(key)


class MetadataVariables:
    """Variables outside a task: they are in Airflow's database, as for the command `airflow variables`.

    The store reads the row itself: if the database cannot be read, `Variable.get` returns its default, and the
    checkpoint would look lost. Raises StateStoreUnavailableError for such a database, and CheckpointError for a
    Variable that was encrypted with another key.
    """

    def get(self, key: str) -> str | None:
        from airflow.models.variable import Variable
        from airflow.utils.session import create_session

        with _translate_errors(), create_session() as session:
            variable = session.scalar(select(Variable).where(Variable.key == key))
            if variable is None:
                return None
            value = variable.get_val()
        if value is None:
            raise CheckpointError(
                f"Airflow's Variable {key!r} cannot be decrypted: AIRFLOW__CORE__FERNET_KEY is not the key that it was "
                "written with. Set it to that of the Airflow that runs the pipeline."
            )
        return str(value)

    def set(self, key: str, value: str, description: str) -> None:
        from airflow.models.variable import Variable

        with _translate_errors():
            Variable.set(key, value, description=description)

    def keys(self, prefix: str) -> list[str]:
        from airflow.models.variable import Variable
        from airflow.utils.session import create_session

        with _translate_errors(), create_session() as session:
            return list(session.scalars(select(Variable.key).where(Variable.key.startswith(prefix, autoescape=True))))

    def delete(self, key: str) -> None:
        from airflow.models.variable import Variable

        with _translate_errors():
            Variable.delete(key)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        from airflow import settings

        raise StateStoreUnavailableError(
            "Airflow's database, whose Variables keep the checkpoint, cannot be used: "
            f"{str(error).splitlines()[0]}. Nothing was stored. It is {_database(settings.SQL_ALCHEMY_CONN)}, by "
            "AIRFLOW_HOME or AIRFLOW__DATABASE__SQL_ALCHEMY_CONN: is it the one of the Airflow that runs the pipeline, "
            "and is it up?"
        ) from error


def _database(url: str | None) -> str:
    return make_url(url).render_as_string(hide_password=True) if url else "not set"


def _key(pipeline: str) -> str:
    return f"changefeed_checkpoint__{pipeline}"


def _schemas_key(pipeline: str) -> str:
    return f"changefeed_schemas__{pipeline}"
