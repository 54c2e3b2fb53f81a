"""A pipeline's snapshot DAG: plan >> snapshot >> finish. It publishes existing rows of tables to their topics as op r,
concurrently with the pipeline's windows. It is started by hand; with `start: snapshot` Airflow starts it once."""

from __future__ import annotations

import logging
import os
from typing import Any

from airflow.sdk import DAG, Context, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from changefeed.airflow.backfill_dag import POOL_VARIABLE
from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.lineage import DatasetsTask
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import read_params, snapshot_params
from changefeed.airflow.reporting import table_lines
from changefeed.airflow.tasks import checkpoint_store_of, fail_fast
from changefeed.airflow.xcom_checks import check_own_snapshot
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest

_log = logging.getLogger(__name__)
_RETRIES_OF_FIRST = 1000
"""Retries of a run that nobody watches: for a week."""


def snapshot_dag_id(pipeline: str) -> str:
    """The id of a pipeline's snapshot DAG."""
    return f"changefeed_snapshot__{pipeline}"


def snapshot_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline's snapshots. Users who may trigger it in Airflow may start snapshots.

    To resume a failed or stopped run, clear its task `snapshot`. The task runs in the pool of backfills.
    """
    dag = manual_dag(
        pipeline,
        snapshot_dag_id(pipeline.name),
        "snapshot",
        f"Publish the existing rows of the tables of pipeline {pipeline.name}",
        __doc__,
        retries=_RETRIES_OF_FIRST if pipeline.start == "snapshot" else 2,
        schedule="@once" if pipeline.start == "snapshot" else None,
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
        finish = DatasetsTask(
            task_id="finish", pipeline=pipeline.name, python_callable=finish_tables, op_args=[pipeline.name, plan]
        )
        plan >> snapshot >> finish
    dag.params.update(snapshot_params())  # last: tasks that are created later copy the params
    return dag


class SnapshotOperator(JobOperator):
    """Publishes the tables of the task `plan`. Fails if the plan is of another pipeline or another run."""

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)
        fail_fast(lambda: check_own_snapshot(self.pipeline_name, _run_of(context), planned))
        return planned


def _run_of(context: Context) -> str:
    """The run id of the snapshot: the DAG run's, or FIRST_RUN for the run that Airflow starts."""
    from changefeed.snapshot.first import FIRST_RUN

    dag_run = context["dag_run"]
    return FIRST_RUN if dag_run.run_type == "scheduled" else str(dag_run.run_id)


def plan_tables(name: str) -> dict[str, Any]:
    """Find the tables to snapshot, log them, and return the plan.

    Fails if no table matches, or if a consistent snapshot of a table is not possible. The run that Airflow starts is
    skipped if the pipeline had a snapshot before.
    """
    from changefeed.snapshot.first import FIRST_RUN, is_first_due
    from changefeed.snapshot.planning import plan_snapshot

    def plan_and_log() -> dict[str, Any]:
        request = SnapshotRequest.of({**read_params(snapshot_params()), "pipeline": name})
        run, pipeline = _run_of(get_current_context()), load_pipeline(name)
        connections, store, is_first = task_connections(pipeline), checkpoint_store_of(pipeline), run == FIRST_RUN
        if is_first and not is_first_due(connections):
            raise AirflowSkipException(f"pipeline {name!r} had a snapshot before: nothing is published")
        identity = snapshot_identity(name, run)
        plan = plan_snapshot(connections, store, request, identity, may_be_empty=is_first)
        rows = [
            (table.name, table.estimated_rows, table.key or "none: one consistent read", plan.topics.get(table.name))
            for table in plan.tables
        ]
        for line in table_lines(["table", "rows (estimate)", "key", "topic"], rows):
            _log.info("%s", line)
        return plan.to_json()

    if _run_of(get_current_context()) == FIRST_RUN:
        return plan_and_log()  # Airflow starts no other: it is retried until somebody has mended the error
    return fail_fast(plan_and_log)


def finish_tables(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Check that all chunks are published, log the rows by table, and delete records of old snapshots."""
    from changefeed.snapshot.snapshot_status import finish_snapshot

    run = _run_of(get_current_context())
    fail_fast(lambda: check_own_snapshot(name, run, planned))
    connections = task_connections(load_pipeline(name))
    status = fail_fast(lambda: finish_snapshot(connections, str(planned["identity"])))
    rows = [(table.name, table.rows - table.left_out, table.left_out, table.chunks) for table in status.tables]
    for line in table_lines(["table", "rows", "left to windows", "chunks"], rows):
        _log.info("%s", line)
    return {"rows": {table.name: table.rows - table.left_out for table in status.tables}}
