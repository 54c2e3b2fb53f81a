"""The DAGs of pipelines that are in a DAG bundle, beside their DAG file. So a run has one version of them: that of its
bundle, as of a commit in git."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from changefeed.airflow.freshness_dag import FRESHNESS_DAG_ID, freshness_dag
from changefeed.airflow.ingest_dag import PLAN_TASK, ingest_dag_id
from changefeed.airflow.pipeline_dags import pipeline_dags, pipelines_to_parse, refuse_invalid_pipelines
from changefeed.settings.file import pipelines_folder
from changefeed.settings.yaml_file import settings_text

BUNDLE_TAG = "changefeed:bundle"
"""Tag of an ingest DAG that carries its pipeline's YAML, as `doc_yaml` of its task `plan`."""

_log = logging.getLogger(__name__)


def bundle_dags(folder: Path, *, freshness_dag_id: str = FRESHNESS_DAG_ID) -> dict[str, DAG]:
    """The DAGs of the pipelines in ``folder``/pipelines and the DAG that checks all of them, by DAG id.

    Call it in a DAG file with a ``folder`` of the bundle, named relative to ``__file__``. Airflow parses that file for
    each task, in the version of the run, so the task and its job read pipelines and ``folder``/transforms in that
    version. The API server has no bundle: it reads the YAML from the ingest DAG. Invalid pipelines are logged, and have
    no DAG.
    """
    variables = _variables(folder)
    with _environment(variables):
        pipelines, errors = pipelines_to_parse()
        dags = {dag.dag_id: dag for pipeline in pipelines.values() for dag in pipeline_dags(pipeline)}
        for pipeline in pipelines.values():
            if (dag := dags.get(ingest_dag_id(pipeline.name))) is not None:  # a task needs only its own DAG
                _carry_text(dag, pipelines_folder() / pipeline.display_file)
    for error in errors.values():
        _log.error("%s", error)
    dags[freshness_dag_id] = freshness_dag(freshness_dag_id, has_file_times=False)

    def use_folder(_: Any) -> None:
        os.environ.update(variables)

    tasks: list[Any] = [task for dag in dags.values() for task in dag.tasks]
    for task in tasks:
        task.pre_execute = use_folder  # Airflow calls it in the process of the task
    return dags


def refuse_invalid_bundle(folder: Path) -> None:
    """Raise SettingsError, which Airflow shows as an import error, if ``folder``/pipelines has an invalid file.

    Call it in a DAG file of its own, because Airflow stops scheduling the DAGs of a file with an import error.
    """
    with _environment(_variables(folder)):
        refuse_invalid_pipelines()


def _variables(folder: Path) -> dict[str, str]:
    return {
        "CHANGEFEED_PIPELINES": str(folder.absolute() / "pipelines"),
        "CHANGEFEED_TRANSFORMS": str(folder.absolute() / "transforms"),
    }


def _carry_text(dag: DAG, file: Path) -> None:
    plan: Any = dag.get_task(PLAN_TASK)
    plan.doc_yaml = settings_text(file)
    dag.tags.add(BUNDLE_TAG)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set ``variables``, and restore their previous values at the end: the process may parse other DAG files."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
