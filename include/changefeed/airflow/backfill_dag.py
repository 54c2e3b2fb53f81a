"""A pipeline's backfill DAG: plan >> ingest >> finish, started by hand. It does not use the live checkpoint."""

from __future__ import annotations

import json
import logging
from typing import Any

from airflow.sdk import DAG, Context, get_current_context, task

from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import ATTEMPT, JobOperator
from changefeed.airflow.lineage import DatasetsTask
from changefeed.airflow.manual_dag import manual_dag, manual_pool
from changefeed.airflow.params import backfill_params, read_params
from changefeed.airflow.reporting import records_by_topic, table_lines, window_lines
from changefeed.airflow.tasks import fail_fast
from changefeed.airflow.xcom_checks import check_own_backfill
from changefeed.model.run_identity import backfill_identity
from changefeed.model.window import Window
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.backfill import BackfillRequest
from changefeed.settings.site import site_archive

_log = logging.getLogger(__name__)

MAX_CONCURRENT_BACKFILLS = 4
"""Backfills of one pipeline that may run at the same time."""


def backfill_dag_id(pipeline: str) -> str:
    """The id of a pipeline's backfill DAG."""
    return f"changefeed_backfill__{pipeline}"


def backfill_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline's backfills. Users who may trigger it in Airflow may start backfills.

    The publishing task runs in the `manual_pool`, whose slots limit how many backfills of all pipelines publish at the
    same time.
    """
    dag = manual_dag(
        pipeline,
        backfill_dag_id(pipeline.name),
        "backfill",
        f"Publish a range of the binlog of pipeline {pipeline.name} again",
        __doc__,
        retries=2,
        max_active_runs=MAX_CONCURRENT_BACKFILLS,
    )
    with dag:
        plan = task(task_id="plan")(plan_range)(pipeline.name)
        ingest = BackfillOperator(
            task_id="ingest",
            pipeline=pipeline.name,
            job="backfill.py",
            arguments=ATTEMPT,
            pool=manual_pool(),
        )
        finish = DatasetsTask(
            task_id="finish", pipeline=pipeline.name, python_callable=finish_range, op_args=[pipeline.name, plan]
        )
        plan >> ingest >> finish
    dag.params.update(backfill_params())  # last: tasks that are created later copy the params
    return dag


class BackfillOperator(JobOperator):
    """Publishes the range that the task `plan` froze. Fails if the plan is of another pipeline or another run.

    The archive is checked against the site file again, and the job gets its root from there: the administrator may have
    withdrawn the archive since, and other users may have edited the XCom.
    """

    def _read_plan(self, context: Context) -> Any:
        planned = super()._read_plan(context)
        run_id = str(context["run_id"])
        fail_fast(lambda: check_own_backfill(self.pipeline_name, run_id, planned))
        return {**planned, "archive_roots": fail_fast(lambda: self._roots_of(planned["request"]))}

    def _roots_of(self, request: dict[str, Any]) -> list[str | None]:
        url = BackfillRequest.of(request).archive
        return [site_archive(load_pipeline(self.pipeline_name).source.connection)(url).root] if url else []


def plan_range(name: str) -> dict[str, Any]:
    """Freeze the requested range, log its files and tables, and return the plan. Fails if the range does not exist."""
    from changefeed.operations.backfill import plan_backfill

    def plan() -> dict[str, Any]:
        request = BackfillRequest.of({**read_params(backfill_params()), "pipeline": name})
        identity = backfill_identity(name, get_current_context()["dag_run"].run_id)
        pipeline = load_pipeline(name)
        archive_of = site_archive(pipeline.source.connection)
        backfill = plan_backfill(task_connections(pipeline), request, identity, archive_of=archive_of)
        window = backfill.window
        _log.info(
            "backfill %s to %s, %d bytes, from %s", window.start, window.head, backfill.size_bytes, backfill.source
        )
        for line in table_lines(["file", "bytes"], [(file.name, file.size_bytes) for file in backfill.files]):
            _log.info("%s", line)
        for line in table_lines(
            ["table", "rows", "bytes", "topic"],
            [
                (table, counts.rows, counts.size_bytes, backfill.topics.get(table, "(left out)"))
                for table, counts in backfill.tables.items()
            ],
        ):
            _log.info("%s", line)
        return {
            "request": json.loads(request.model_dump_json()),
            "identity": identity,
            **backfill.to_json(),
        }

    return fail_fast(plan)


def finish_range(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Check that the backfill is sealed, log its rows, and delete the progress records that only its retries needed."""
    from changefeed.operations.backfill import finish_backfill

    run_id = get_current_context()["dag_run"].run_id
    fail_fast(lambda: check_own_backfill(name, run_id, planned))
    connections = task_connections(load_pipeline(name))
    window = Window.from_json(planned["window"])
    identity = str(planned["identity"])
    manifest = fail_fast(lambda: finish_backfill(connections, window, identity))
    for line in window_lines([manifest]):
        _log.info("%s", line.replace("committed window 1", "published"))
    return {
        "rows": manifest.rows,
        "records": records_by_topic([manifest]),
        "messages": manifest.message_count,
    }
