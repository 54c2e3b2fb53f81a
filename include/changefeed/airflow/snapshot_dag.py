"""A pipeline's snapshot DAG: plan >> snapshot >> finish, by hand. Rows that tables have already go to their topics as
op r, beside the pipeline's windows."""

from __future__ import annotations

import logging
import os
from typing import Any, cast

from airflow.sdk import DAG, Context, get_current_context, task

from changefeed.airflow.backfill_dag import POOL_VARIABLE
from changefeed.airflow.connections import task_connections
from changefeed.airflow.handed_over import check_own_snapshot
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import given_params, snapshot_params
from changefeed.airflow.reporting import table_lines
from changefeed.airflow.tasks import checkpoint_store_of, failing_at_once
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest

_log = logging.getLogger(__name__)


def snapshot_dag_id(pipeline: str) -> str:
    """The id of a pipeline's snapshot DAG."""
    return f"changefeed_snapshot__{pipeline}"


def snapshot_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline's snapshots: Airflow's rights on it are the rights to start them.

    A run that failed, or was stopped, goes on where it was when its task `snapshot` is cleared. That runs in the pool
    of backfills.
    """
    dag = manual_dag(
        pipeline,
        snapshot_dag_id(pipeline.name),
        "snapshot",
        f"Publish the rows that the tables of pipeline {pipeline.name} have",
        __doc__,
        retries=2,
    )
    with dag:
        plan = task(task_id="plan")(plan_tables)(pipeline.name)
        snapshot = SnapshotOperator(
            task_id="snapshot",
            pipeline=pipeline.name,
            job="snapshot.py",
            arguments=[],
            pool=os.environ.get(POOL_VARIABLE, "default_pool"),
        )
        finish = task(task_id="finish")(finish_tables)(pipeline.name, cast(Any, plan))
        plan >> snapshot >> finish
    dag.params.update(snapshot_params())  # at the end: each task that is made after it copies it
    return dag


class SnapshotOperator(JobOperator):
    """Publishes the tables that the task `plan` found, where those are this pipeline's and this run's."""

    def _planned(self, context: Context) -> Any:
        planned = super()._planned(context)
        run_id = str(context["run_id"])
        failing_at_once(lambda: check_own_snapshot(self.pipeline_name, run_id, planned))
        return planned


def plan_tables(name: str) -> dict[str, Any]:
    """Find the tables and show them. Fails at once where there are none, or a snapshot of them cannot be right."""
    from changefeed.snapshot.planning import plan_snapshot

    def planned() -> dict[str, Any]:
        request = SnapshotRequest.of({**given_params(snapshot_params()), "pipeline": name})
        identity = snapshot_identity(name, get_current_context()["dag_run"].run_id)
        pipeline = load_pipeline(name)
        plan = plan_snapshot(task_connections(pipeline), checkpoint_store_of(pipeline), request, identity)
        rows = [
            (table.name, table.estimated_rows, table.key or "none: one consistent read", plan.topics.get(table.name))
            for table in plan.tables
        ]
        for line in table_lines(["table", "rows, about", "key", "topic"], rows):
            _log.info("%s", line)
        return plan.to_json()

    return failing_at_once(planned)


def finish_tables(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Check that all is published, say what, and forget what snapshots of long ago kept."""
    from changefeed.snapshot.snapshot_status import finish_snapshot

    run_id = get_current_context()["dag_run"].run_id
    failing_at_once(lambda: check_own_snapshot(name, run_id, planned))
    connections = task_connections(load_pipeline(name))
    stands = failing_at_once(lambda: finish_snapshot(connections, str(planned["identity"])))
    rows = [(table.name, table.rows - table.left_out, table.left_out, table.chunks) for table in stands.tables]
    for line in table_lines(["table", "rows", "left to windows", "chunks"], rows):
        _log.info("%s", line)
    return {"rows": {table.name: table.rows - table.left_out for table in stands.tables}}
