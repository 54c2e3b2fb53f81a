"""Pipelines that are in a DAG bundle. The API server has no bundle: it reads their YAML from their serialized DAGs."""

from dataclasses import dataclass
from typing import Any

from airflow.models.dag import DagModel, DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from changefeed.airflow.bundle_dags import BUNDLE_TAG
from changefeed.airflow.ingest_dag import PLAN_TASK, ingest_dag_id
from changefeed.settings.file import parse_without_functions
from changefeed.settings.folder import PipelineText
from changefeed.settings.pipeline import Pipeline

_PREFIX = ingest_dag_id("")


@dataclass(frozen=True)
class BundledPipeline(PipelineText):
    """The text of a pipeline in the bundle of this name, as the DAG processor last read it."""

    bundle: str

    def pipeline(self) -> Pipeline:
        """The pipeline without its `transforms`, whose functions only the bundle has."""
        return parse_without_functions(self.text, self.file)


def bundled_pipelines() -> dict[str, BundledPipeline]:
    """All pipelines of bundles whose DAGs Airflow has, by name."""
    return _read(DagModel.tags.any(DagTag.name == BUNDLE_TAG))


def bundled_pipeline(name: str) -> BundledPipeline | None:
    """The pipeline ``name`` if it is in a bundle."""
    return _read(DagModel.dag_id == ingest_dag_id(name)).get(name)


def _read(condition: Any) -> dict[str, BundledPipeline]:
    with create_session() as session:
        of_dags = select(DagModel.dag_id, DagModel.bundle_name).where(condition, DagModel.is_stale.is_(False))
        bundles = {dag_id: bundle for dag_id, bundle in session.execute(of_dags) if dag_id.startswith(_PREFIX)}
        dags = SerializedDagModel.get_latest_serialized_dags(dag_ids=list(bundles), session=session)
        texts = {dag.dag_id: text for dag in dags if (text := _text(dag.data or {})) is not None}
    names = {dag_id: dag_id.removeprefix(_PREFIX) for dag_id in texts}
    return {
        name: BundledPipeline(name, texts[dag_id], f"{name}.yaml", str(bundles[dag_id]))
        for dag_id, name in sorted(names.items())
    }


def _text(serialized: dict[str, Any]) -> str | None:
    tasks = [task.get("__var", {}) for task in serialized.get("dag", {}).get("tasks", [])]
    return next((task.get("doc_yaml") for task in tasks if task.get("task_id") == PLAN_TASK), None)
