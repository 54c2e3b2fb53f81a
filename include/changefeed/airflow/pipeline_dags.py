"""The DAGs of one pipeline."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline, load_pipelines
from changefeed.settings.pipeline import Pipeline

__all__ = ["pipeline_dags", "pipelines_to_parse", "refuse_invalid_pipelines"]

KINDS = ("ingest", "seek", "backfill", "snapshot", "verify", "replicate", "unpark")
"""Each kind is built by the function KIND_dag of the module KIND_dag, which is imported only if its DAG is needed."""


def pipeline_dags(pipeline: Pipeline) -> list[DAG]:
    """The DAGs ingest, seek, backfill, snapshot and verify of this pipeline; replicate if it has followers, and unpark
    if it parks tables. In a task of one of these DAGs, only that DAG.

    Airflow's permissions on these DAGs are the permissions on the pipeline.
    """
    kinds = [kind for kind in KINDS if _has_dag(pipeline, kind)]
    kind_of_task, name = _dag_of_task()
    if name == pipeline.name and kind_of_task in kinds:
        kinds = [kind_of_task]
    return [_build_dag(pipeline, kind) for kind in kinds]


def _has_dag(pipeline: Pipeline, kind: str) -> bool:
    match kind:
        case "replicate":
            return bool(pipeline.followers)
        case "unpark":
            return pipeline.on_table_error == "park"
        case _:
            return True


def _build_dag(pipeline: Pipeline, kind: str) -> DAG:
    dag: DAG = getattr(import_module(f"changefeed.airflow.{kind}_dag"), f"{kind}_dag")(pipeline)
    return dag


def _dag_of_task() -> tuple[str, str]:
    """The kind and the pipeline of the DAG whose task parses the file; two empty texts if no such task does."""
    prefix, _, name = (get_parsing_context().dag_id or "").partition("__")
    kind = prefix.removeprefix("changefeed_")
    return (kind, name) if prefix == f"changefeed_{kind}" and kind in KINDS else ("", "")


def pipelines_to_parse() -> tuple[dict[str, Pipeline], dict[Path, SettingsError]]:
    """The pipelines whose DAGs Airflow needs, and the error of each invalid file, as `load_pipelines` returns them.

    Each task parses the file of its DAG again. For a task of a pipeline's DAG that pipeline is enough: its cost does
    not depend on the number of pipelines.
    """
    _, name = _dag_of_task()
    if name:
        with suppress(SettingsError):
            return {name: load_pipeline(name)}, {}
    return load_pipelines()


def refuse_invalid_pipelines() -> None:
    """Raise SettingsError if the folder has invalid pipeline files.

    Airflow shows it to all users who see any DAG, so it has file names only.
    """
    _, errors = load_pipelines()
    if errors:
        raise SettingsError(
            f"these pipeline files are invalid and have no DAG: {', '.join(sorted(path.name for path in errors))}. "
            "To see the errors, open the page Changefeed (for users who may see the pipeline), or run `changefeed "
            "check`."
        )
