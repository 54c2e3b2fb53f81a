"""A pipeline's snapshot DAG: plan >> snapshot >> finish. It publishes existing rows of tables to their topics as op r,
concurrently with the pipeline's windows. It is started by hand. With `start: snapshot` Airflow starts it once, and with
`snapshot: {new_tables: true}` on the pipeline's schedule: a run that finds nothing to do skips its tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow.sdk import DAG, Context, get_current_context, task
from airflow.sdk.exceptions import AirflowSkipException

from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.lineage import DatasetsTask
from changefeed.airflow.manual_dag import manual_dag, manual_pool
from changefeed.airflow.params import read_params, snapshot_params
from changefeed.airflow.reporting import table_lines
from changefeed.airflow.tasks import checkpoint_store_of, fail_fast
from changefeed.airflow.xcom_checks import check_own_snapshot
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest

_log = logging.getLogger(__name__)
_EACH_FIVE_MINUTES = "*/5 * * * *"
_RETRIES_OF_AUTOMATIC = 1000
"""Retries of a run that nobody watches: for a week."""


def snapshot_dag_id(pipeline: str) -> str:
    """The id of a pipeline's snapshot DAG."""
    return f"changefeed_snapshot__{pipeline}"


def snapshot_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline's snapshots. Users who may trigger it in Airflow may start snapshots.

    To resume a failed or stopped run, clear its task `snapshot`. The task runs in the `manual_pool`.
    """
    dag = manual_dag(
        pipeline,
        snapshot_dag_id(pipeline.name),
        "snapshot",
        f"Publish the existing rows of the tables of pipeline {pipeline.name}",
        __doc__,
        retries=_RETRIES_OF_AUTOMATIC if _schedule(pipeline) else 2,
        schedule=_schedule(pipeline),
    )
    with dag:
        plan = task(task_id="plan")(plan_tables)(pipeline.name)
        snapshot = SnapshotOperator(
            task_id="snapshot",
            pipeline=pipeline.name,
            job="snapshot.py",
            arguments=[],
            pool=manual_pool(),
        )
        finish = DatasetsTask(
            task_id="finish", pipeline=pipeline.name, python_callable=finish_tables, op_args=[pipeline.name, plan]
        )
        plan >> snapshot >> finish
    dag.params.update(snapshot_params())  # last: tasks that are created later copy the params
    return dag


def _schedule(pipeline: Pipeline) -> str | None:
    """The schedule of automatic snapshots. Airflow begins no run while another one of the DAG is active."""
    if pipeline.snapshot.new_tables and pipeline.schedule:
        return pipeline.schedule if pipeline.schedule not in ("@continuous", "@once") else _EACH_FIVE_MINUTES
    return "@once" if pipeline.start == "snapshot" else None


class SnapshotOperator(JobOperator):
    """Publishes the tables of the task `plan`. Fails if the plan is of another pipeline or another run."""

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)
        fail_fast(lambda: check_own_snapshot(self.pipeline_name, _run_of(context, planned), planned))
        return planned


def _is_automatic(context: Context) -> bool:
    """Whether Airflow's scheduler started the run."""
    return bool(context["dag_run"].run_type == "scheduled")


def _run_of(context: Context, planned: Mapping[str, Any]) -> str:
    """The run id of the snapshot: the DAG run's; for a run that Airflow started, the automatic one that is planned."""
    from changefeed.snapshot.automatic import FIRST_RUN, automatic_run_id

    if not _is_automatic(context):
        return str(context["dag_run"].run_id)
    return automatic_run_id(str(planned["request"]["pipeline"]), str(planned["identity"])) or FIRST_RUN


def plan_tables(name: str) -> dict[str, Any]:
    """Find the tables to snapshot, log them, and return the plan.

    Fails if no table matches, or if a consistent snapshot of a table is not possible. The run that Airflow starts is
    skipped if the pipeline must take no snapshot by itself now.
    """
    from changefeed.snapshot.automatic import due_snapshot
    from changefeed.snapshot.planning import plan_snapshot

    context = get_current_context()
    is_automatic = _is_automatic(context)

    def plan_and_log() -> dict[str, Any]:
        pipeline = load_pipeline(name)
        connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
        if is_automatic:
            due = due_snapshot(connections)
            if due is None:
                raise AirflowSkipException(f"pipeline {name!r} needs no snapshot now: nothing is published")
            _log.info("pipeline %s: %s", name, due.purpose)
            request, identity = due.request, due.identity
        else:
            request = SnapshotRequest.of({**read_params(snapshot_params()), "pipeline": name})
            identity = snapshot_identity(name, str(context["dag_run"].run_id))
        plan = plan_snapshot(connections, store, request, identity, may_be_empty=is_automatic)
        rows = [
            (table.name, table.estimated_rows, table.key or "none: one consistent read", plan.topics.get(table.name))
            for table in plan.tables
        ]
        for line in table_lines(["table", "rows (estimate)", "key", "topic"], rows):
            _log.info("%s", line)
        return plan.to_json()

    if is_automatic:
        return plan_and_log()  # retried until somebody has mended the error
    return fail_fast(plan_and_log)


def finish_tables(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Check that all chunks are published, log the rows by table, and delete records of old snapshots."""
    from changefeed.snapshot.snapshot_status import finish_snapshot

    run = _run_of(get_current_context(), planned)
    fail_fast(lambda: check_own_snapshot(name, run, planned))
    connections = task_connections(load_pipeline(name))
    status = fail_fast(lambda: finish_snapshot(connections, str(planned["identity"])))
    rows = [(table.name, table.rows - table.left_out, table.left_out, table.chunks) for table in status.tables]
    for line in table_lines(["table", "rows", "left to windows", "chunks"], rows):
        _log.info("%s", line)
    return {"rows": {table.name: table.rows - table.left_out for table in status.tables}}
