"""A pipeline's seek DAG: plan_seek shows what a seek skips or repeats; when asked to, finish ends what earlier runs
left unfinished, and apply_seek moves the checkpoint."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

from airflow.sdk import DAG, Context, get_current_context, task

from changefeed.airflow.assets import pipeline_alias
from changefeed.airflow.connections import task_connections
from changefeed.airflow.handed_over import own_run
from changefeed.airflow.ingest_dag import AT_WORK, ingest_dag_id
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import given_params, seek_params
from changefeed.airflow.tasks import checkpoint_store_of, commit_and_tell, failing_at_once
from changefeed.errors import CheckpointError
from changefeed.model.checkpoint import Checkpoint
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.seek import SeekRequest

_log = logging.getLogger(__name__)


def seek_dag_id(pipeline: str) -> str:
    """The id of a pipeline's seek DAG."""
    return f"changefeed_seek__{pipeline}"


def seek_dag(pipeline: Pipeline) -> DAG:
    """The DAG that moves the checkpoint of one pipeline, by hand: Airflow's rights on it are the rights to do so."""
    dag = manual_dag(
        pipeline,
        seek_dag_id(pipeline.name),
        "seek",
        f"Seek: move the checkpoint of pipeline {pipeline.name}",
        __doc__,
        retries=0,
    )
    with dag:
        planned = task.short_circuit(task_id="plan_seek")(show_seek)(pipeline.name)
        finish = FinishOperator(task_id="finish", pipeline=pipeline.name, job="ingest.py", arguments=[pipeline.name])
        applying = task(task_id="apply_seek", outlets=[pipeline_alias(pipeline.name)])(apply_seek)
        planned >> finish >> applying(pipeline.name, cast(Any, planned))
    dag.params.update(seek_params())  # at the end: each task that is made after it copies it
    return dag


class FinishOperator(JobOperator):
    """Publishes the windows that were begun and not sealed, where the seek shall finish them first."""

    def execute(self, context: Context) -> Any:
        planned = context["ti"].xcom_pull(task_ids="plan_seek")
        if planned["finish"] and not all(window["sealed"] for window in planned["unfinished"]):
            return super().execute(context)
        _log.info("nothing is to be published first")
        return None

    def _planned(self, context: Context) -> Any:
        finish = context["ti"].xcom_pull(task_ids="plan_seek")["finish"]
        failing_at_once(lambda: own_run(self.pipeline_name, finish))
        return finish


def show_seek(name: str) -> dict[str, Any] | None:
    """Look up the target and log what a seek to it means; None, which skips the rest, when it shall not be done."""
    from changefeed.operations.seek import plan_seek, unfinished_run

    def planned() -> dict[str, Any] | None:
        given = given_params(seek_params())
        apply = given.pop("apply")
        request = SeekRequest.of(given)
        pipeline = load_pipeline(name)
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        seek_plan = plan_seek(connections, request.to, store, expected=request.expected)
        values = seek_plan.to_json()
        _log.info("seek %s from %s to %s: %s", pipeline.name, values["from"], values["to"], seek_plan.effect)
        if not apply:
            _log.info("nothing was changed: trigger it again with 'Move the checkpoint' on")
            return None
        run = unfinished_run(connections, store) if request.finish and seek_plan.unfinished else None
        values |= {"finish": run.to_json() if run else None}
        return {"why": request.why, "before": seek_plan.before.to_text() if seek_plan.before else None, **values}

    return failing_at_once(planned)


def apply_seek(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Move the checkpoint, unless a run of the pipeline is under way or it moved since it was looked at."""
    from changefeed.operations.seek import plan_seek, seek

    context = get_current_context()

    def applied() -> dict[str, Any]:
        pipeline = load_pipeline(name)
        _check_idle(context["ti"], ingest_dag_id(pipeline.name))
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        before = Checkpoint.from_text(planned["before"]) if planned["before"] else None
        if planned["finish"]:
            commit_and_tell(pipeline, connections, own_run(name, planned["finish"]), store)
            before = store.load(pipeline.name)
        seek_plan = plan_seek(connections, str(planned["to"]), store)
        if seek_plan.before != before:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} moved since it was looked at: it was at "
                f"{before.coordinates if before else None} and is at "
                f"{seek_plan.before.coordinates if seek_plan.before else None}. Nothing was changed; seek again."
            )
        who = getattr(context["dag_run"], "triggering_user_name", None) or "airflow"
        seek_plan = replace(seek_plan, asked=str(planned["asked"]))
        record = seek(connections, seek_plan, store, who=who, why=planned["why"])
        undo = f", seek to {seek_plan.undo} to undo it" if seek_plan.undo else ""
        _log.info("%s; the checkpoint is at %s now%s", seek_plan.effect, record.to, undo)
        return record.to_json()

    return failing_at_once(applied)


def _check_idle(instance: Any, dag_id: str) -> None:
    """Raises CheckpointError while the pipeline runs; a run that a pause holds between two tasks is none."""
    at_work = instance.get_ti_count(dag_id=dag_id, states=list(AT_WORK))
    running = instance.get_dr_count(dag_id=dag_id, states=["running"])
    if at_work or (running and not instance.get_dag(dag_id).is_paused):
        raise CheckpointError(
            f"DAG {dag_id} has a run under way, which would fail: wait until it ends, or pause the DAG and wait until "
            "its task ends; then seek again. The checkpoint was not moved."
        )
