"""A pipeline's seek DAG: plan_seek logs what a seek skips or repeats. With the param `apply`, finish publishes the
windows that earlier runs left unfinished, and apply_seek moves the checkpoint."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import DAG, Context, get_current_context, task

from changefeed.airflow.assets import pipeline_alias
from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_dag import ACTIVE_STATES, ingest_dag_id, sent_events
from changefeed.airflow.ingest_operator import ATTEMPT, JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import read_params, seek_params
from changefeed.airflow.tasks import checkpoint_store_of, commit_and_report, fail_fast
from changefeed.airflow.xcom_checks import read_planned_run
from changefeed.errors import CheckpointError
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.seek import UnfinishedWindow
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.seek import SeekRequest

if TYPE_CHECKING:
    from changefeed.operations.seek import SeekPlan

_log = logging.getLogger(__name__)


def seek_dag_id(pipeline: str) -> str:
    """The id of a pipeline's seek DAG."""
    return f"changefeed_seek__{pipeline}"


def seek_dag(pipeline: Pipeline) -> DAG:
    """The DAG that moves one pipeline's checkpoint. Users who may trigger it in Airflow may seek."""
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
        finish = FinishOperator(
            task_id="finish", pipeline=pipeline.name, job="ingest.py", arguments=[pipeline.name, *ATTEMPT]
        )
        applying = task(task_id="apply_seek", inlets=sent_events(pipeline), outlets=[pipeline_alias(pipeline.name)])(
            apply_seek
        )
        planned >> finish >> applying(pipeline.name, cast(Any, planned))
    dag.params.update(seek_params())  # last: tasks that are created later copy the params
    return dag


class FinishOperator(JobOperator):
    """Publishes the windows that earlier runs began and did not seal, if the param `finish` is on."""

    def execute(self, context: Context) -> Any:
        planned = context["ti"].xcom_pull(task_ids="plan_seek")
        if planned["finish"] and not all(window["sealed"] for window in planned["unfinished"]):
            return super().execute(context)
        _log.info("no unfinished window has to be published before the seek")
        return None

    def _read_plan(self, context: Context) -> Any:
        finish = context["ti"].xcom_pull(task_ids="plan_seek")["finish"]
        fail_fast(lambda: read_planned_run(self.pipeline_name, finish))
        return finish


def show_seek(name: str) -> dict[str, Any] | None:
    """Resolve the target and log what a seek to it skips or repeats.

    Returns None, which skips the other tasks, unless the param `apply` is on.
    """
    from changefeed.operations.seek import plan_seek, unfinished_run

    def plan() -> dict[str, Any] | None:
        params = read_params(seek_params())
        apply = params.pop("apply")
        request = SeekRequest.of(params)
        pipeline = load_pipeline(name)
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        seek_plan = plan_seek(connections, request.to, store, expected=request.expected, finish=request.finish)
        values = seek_plan.to_json()
        _log.info("seek %s from %s to %s: %s", pipeline.name, values["from"], values["to"], seek_plan.effect)
        if not apply:
            _log.info("the checkpoint was not moved: to move it, trigger the DAG again with 'Move the checkpoint' on")
            return None
        run = unfinished_run(connections, store) if request.finish and seek_plan.unfinished else None
        values |= {"finish": run.to_json() if run else None}
        before = seek_plan.before.to_text() if seek_plan.before else None
        guards = {"server_uuid": seek_plan.server_uuid, "last_seek": seek_plan.last_seek}
        return {"why": request.why, "before": before, **guards, **values}

    return fail_fast(plan)


def apply_seek(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Move the checkpoint. Fails if a run of the pipeline is under way, or if the checkpoint moved since plan_seek;
    with the pipeline's setting `windows`, both are as they should be."""
    from changefeed.operations.seek import plan_seek, seek

    context = get_current_context()

    def apply() -> dict[str, Any]:
        pipeline = load_pipeline(name)
        if pipeline.windows is None:  # a seek goes between two windows of a continuous run
            _check_idle(context["ti"], ingest_dag_id(pipeline.name))
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        before = Checkpoint.from_text(planned["before"]) if planned["before"] else None
        if planned["finish"]:
            commit_and_report(pipeline, connections, read_planned_run(name, planned["finish"]), store)
            before = store.load(pipeline.name)
        seek_plan = plan_seek(connections, str(planned["to"]), store)
        if pipeline.windows is not None:
            seek_plan = _as_planned(seek_plan, before, planned)
        elif seek_plan.before != before:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} moved after plan_seek: expected "
                f"{before.coordinates if before else None}, found "
                f"{seek_plan.before.coordinates if seek_plan.before else None}. Nothing was changed; seek again."
            )
        who = getattr(context["dag_run"], "triggering_user_name", None) or "airflow"
        seek_plan = replace(seek_plan, asked=str(planned["asked"]))
        record = seek(connections, seek_plan, store, who=who, why=planned["why"])
        undo = f", seek to {seek_plan.undo} to undo it" if seek_plan.undo else ""
        _log.info("%s; the checkpoint is at %s now%s", seek_plan.effect, record.to, undo)
        return record.to_json()

    return fail_fast(apply)


def _as_planned(seek_plan: SeekPlan, before: Checkpoint | None, planned: dict[str, Any]) -> SeekPlan:
    """``seek_plan`` with what plan_seek showed: `seek` compares that with what it would do now."""
    return replace(
        seek_plan,
        before=before,
        to=replace(seek_plan.to, gtids=str(planned["to_gtids"])),
        server_uuid=str(planned["server_uuid"]),
        skipped_bytes=int(planned["skipped_bytes"]),
        repeated_bytes=int(planned["repeated_bytes"]),
        last_seek=int(planned["last_seek"]),
        unfinished=tuple(UnfinishedWindow(**window) for window in planned["unfinished"]),
    )


def _check_idle(instance: Any, dag_id: str) -> None:
    """Raise CheckpointError while a run of the pipeline is under way.

    A run of a paused DAG that waits between its tasks is allowed.
    """
    at_work = instance.get_ti_count(dag_id=dag_id, states=list(ACTIVE_STATES))
    running = instance.get_dr_count(dag_id=dag_id, states=["running"])
    if at_work or (running and not instance.get_dag(dag_id).is_paused):
        raise CheckpointError(
            f"DAG {dag_id} has a run under way, which a seek would make fail. The checkpoint was not moved. Wait "
            f"until the "
            "run ends, or pause the DAG and wait until its task ends; then seek again."
        )
