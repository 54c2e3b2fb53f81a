"""The DAGs of one pipeline."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.airflow.ingest_dag import ingest_dag
from changefeed.airflow.replicate_dag import replicate_dag
from changefeed.airflow.seek_dag import seek_dag
from changefeed.airflow.snapshot_dag import snapshot_dag
from changefeed.airflow.unpark_dag import unpark_dag
from changefeed.airflow.verify_dag import verify_dag
from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline, load_pipelines
from changefeed.settings.pipeline import Pipeline

__all__ = ["pipeline_dags", "pipelines_to_parse", "refuse_invalid_pipelines"]

KINDS = ("ingest", "seek", "backfill", "snapshot", "verify", "replicate", "unpark")


def pipeline_dags(pipeline: Pipeline) -> list[DAG]:
    """The DAGs ingest, seek, backfill, snapshot and verify of this pipeline; replicate if it has followers, and unpark
    if it parks tables.

    Airflow's permissions on these DAGs are the permissions on the pipeline.
    """
    dags = [
        ingest_dag(pipeline),
        seek_dag(pipeline),
        backfill_dag(pipeline),
        snapshot_dag(pipeline),
        verify_dag(pipeline),
    ]
    if pipeline.followers:
        dags.append(replicate_dag(pipeline))
    if pipeline.on_table_error == "park":
        dags.append(unpark_dag(pipeline))
    return dags


def pipelines_to_parse() -> tuple[dict[str, Pipeline], dict[Path, SettingsError]]:
    """The pipelines whose DAGs Airflow needs, and the error of each invalid file, as `load_pipelines` returns them.

    Each task parses the file of its DAG again. For a task of a pipeline's DAG that pipeline is enough: its cost does
    not depend on the number of pipelines.
    """
    prefix, _, name = (get_parsing_context().dag_id or "").partition("__")
    if prefix in {f"changefeed_{kind}" for kind in KINDS}:
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
