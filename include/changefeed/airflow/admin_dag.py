"""The DAG that moves checkpoints: plan_seek shows what a seek skips or repeats, apply_seek does it when asked to."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, cast

from airflow.sdk import DAG, get_current_context, task

from changefeed.airflow.connections import task_endpoints
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.airflow.params import given_params, seek_params
from changefeed.airflow.tasks import checkpoint_store_of, failing_at_once
from changefeed.checkpoint import Checkpoint
from changefeed.errors import CheckpointError
from changefeed.pipelines.file import load_pipeline

_log = logging.getLogger(__name__)

DAG_ID = "changefeed_admin"


def admin_dag(pipelines: list[str]) -> DAG:
    """One DAG for all pipelines; its form asks which."""
    dag = DAG(
        dag_id=DAG_ID,
        description="Seek: move a pipeline's checkpoint",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        params=seek_params(pipelines),
        default_args={"owner": "changefeed", "retries": 0},
        tags={"changefeed"},
        doc_md=__doc__,
        is_paused_upon_creation=False,
    )
    with dag:
        planned = task.short_circuit(task_id="plan_seek")(show_seek)()
        planned >> task(task_id="apply_seek")(apply_seek)(cast(Any, planned))
    return dag


def show_seek() -> dict[str, Any] | None:
    """Look up the target and log what a seek to it means; None, which skips the rest, when it shall not be done."""
    from changefeed.upkeep.seek import plan_seek

    def planned() -> dict[str, Any] | None:
        given = given_params(seek_params([]))
        pipeline = load_pipeline(given["pipeline"])
        endpoints, store = task_endpoints(pipeline), checkpoint_store_of(pipeline)
        seek_plan = plan_seek(endpoints, given["to"], store, expected=given["expected"])
        values = seek_plan.to_json()
        _log.info("seek %s from %s to %s: %s", pipeline.name, values["from"], values["to"], seek_plan.effect)
        if not given["apply"]:
            _log.info("nothing was changed: trigger it again with 'Move the checkpoint' on")
            return None
        return {**given, "before": seek_plan.before.to_text() if seek_plan.before else None, **values}

    return failing_at_once(planned)


def apply_seek(planned: dict[str, Any]) -> dict[str, Any]:
    """Move the checkpoint, unless a run of the pipeline is under way or it moved since it was looked at."""
    from changefeed.upkeep.seek import plan_seek, seek

    context = get_current_context()

    def applied() -> dict[str, Any]:
        pipeline = load_pipeline(planned["pipeline"])
        running = context["ti"].get_dr_count(dag_id=ingest_dag_id(pipeline.name), states=["running"])
        if running:
            raise CheckpointError(
                f"pipeline {pipeline.name!r} has a run under way, which would fail: wait for it or pause the DAG "
                f"{ingest_dag_id(pipeline.name)}, then seek again. The checkpoint was not moved."
            )
        endpoints, store = task_endpoints(pipeline), checkpoint_store_of(pipeline)
        seek_plan = plan_seek(endpoints, str(planned["to"]), store)
        before = Checkpoint.from_text(planned["before"]) if planned["before"] else None
        if seek_plan.before != before:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} moved since it was looked at: it was at "
                f"{before.coordinates if before else None} and is at "
                f"{seek_plan.before.coordinates if seek_plan.before else None}. Nothing was changed; seek again."
            )
        who = getattr(context["dag_run"], "triggering_user_name", None) or "airflow"
        seek_plan = replace(seek_plan, asked=str(planned["asked"]))
        record = seek(endpoints, seek_plan, store, who=who, why=planned["why"])
        _log.info("the checkpoint is at %s now; seek to %s to undo it", record.to, record.before)
        return record.to_json()

    return failing_at_once(applied)
