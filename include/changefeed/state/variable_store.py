"""Checkpoints in Airflow Variables."""

from __future__ import annotations

import base64
import zlib
from typing import Protocol

from changefeed.checkpoint import Checkpoint, check_forward, stale


class Variables(Protocol):
    """The two calls of Airflow's Variables that a store needs."""

    def get(self, key: str) -> str | None: ...

    def set(self, key: str, value: str, description: str) -> None: ...


class VariableCheckpointStore:
    """A `CheckpointStore` in the Variable `changefeed_checkpoint__<pipeline>`.

    Airflow's Variables have no compare-and-set: `advance` reads, compares and writes. Two writers in the same
    instant are kept apart by the DAG (`max_active_runs=1`) and by the commit log, which fences the second job. Where
    that is not enough, use the state table.
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
        self._variables.set(_key(new.pipeline), new.to_text(), f"Checkpoint of changefeed pipeline {new.pipeline}")

    def load_schemas(self, pipeline: str) -> str | None:
        text = self._variables.get(_schemas_key(pipeline))
        return None if text is None else zlib.decompress(base64.b64decode(text)).decode()

    def save_schemas(self, pipeline: str, text: str) -> None:
        packed = base64.b64encode(zlib.compress(text.encode())).decode()
        self._variables.set(_schemas_key(pipeline), packed, f"Schemas of changefeed pipeline {pipeline}, compressed")


class AirflowVariables:
    """Variables inside a task: they go through the task's supervisor."""

    def get(self, key: str) -> str | None:
        from airflow.sdk import Variable

        value = Variable.get(key, default=None)
        return None if value is None else str(value)

    def set(self, key: str, value: str, description: str) -> None:
        from airflow.sdk import Variable

        Variable.set(key, value, description=description)


class MetadataVariables:
    """Variables outside a task, as `airflow variables` reaches them: through Airflow's database."""

    def get(self, key: str) -> str | None:
        from airflow.models.variable import Variable

        value = Variable.get(key, default_var=None)
        return None if value is None else str(value)

    def set(self, key: str, value: str, description: str) -> None:
        from airflow.models.variable import Variable

        Variable.set(key, value, description=description)


def _key(pipeline: str) -> str:
    return f"changefeed_checkpoint__{pipeline}"


def _schemas_key(pipeline: str) -> str:
    return f"changefeed_schemas__{pipeline}"
