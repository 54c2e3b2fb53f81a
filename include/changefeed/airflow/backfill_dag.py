"""A pipeline's backfill DAG: plan >> ingest >> finish, by hand. The live checkpoint is not looked at."""

from __future__ import annotations

import json
import logging
import os
from typing import Any, cast

from airflow.sdk import DAG, Context, get_current_context, task

from changefeed.airflow.connections import task_connections
from changefeed.airflow.handed_over import check_own_backfill
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import backfill_params, given_params
from changefeed.airflow.reporting import table_lines, window_lines
from changefeed.airflow.tasks import failing_at_once
from changefeed.model.run_identity import backfill_identity
from changefeed.model.window import Window
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.backfill import BackfillRequest
from changefeed.settings.site import site_archive

_log = logging.getLogger(__name__)

AT_ONCE = 4
"""Backfills of a pipeline that run at the same time."""

POOL_VARIABLE = "CHANGEFEED_BACKFILL_POOL"


def backfill_dag_id(pipeline: str) -> str:
    """The id of a pipeline's backfill DAG."""
    return f"changefeed_backfill__{pipeline}"


def backfill_dag(pipeline: Pipeline) -> DAG:
    """The DAG of one pipeline's backfills: Airflow's rights on it are the rights to start them.

    Its publishing task runs in the pool that CHANGEFEED_BACKFILL_POOL names, whose slots are how many backfills of all
    pipelines publish at once, or in Airflow's default pool.
    """
    dag = manual_dag(
        pipeline,
        backfill_dag_id(pipeline.name),
        "backfill",
        f"Publish a part of the binlog of pipeline {pipeline.name} again",
        __doc__,
        retries=2,
        runs_at_once=AT_ONCE,
    )
    with dag:
        plan = task(task_id="plan")(plan_range)(pipeline.name)
        ingest = BackfillOperator(
            task_id="ingest",
            pipeline=pipeline.name,
            job="backfill.py",
            arguments=[],
            pool=os.environ.get(POOL_VARIABLE, "default_pool"),
        )
        finish = task(task_id="finish")(finish_range)(pipeline.name, cast(Any, plan))
        plan >> ingest >> finish
    dag.params.update(backfill_params())  # at the end: each task that is made after it copies it
    return dag


class BackfillOperator(JobOperator):
    """Publishes the range that the task `plan` froze, where that is this pipeline's and this run's.

    Its archive is looked up in the site file anew, and the job told the root that it lies below: the administrator may
    have taken it back since, and XComs may be written by others.
    """

    def _planned(self, context: Context) -> Any:
        planned = super()._planned(context)
        run_id = str(context["run_id"])
        failing_at_once(lambda: check_own_backfill(self.pipeline_name, run_id, planned))
        return {**planned, "archive_roots": failing_at_once(lambda: self._roots_of(planned["request"]))}

    def _roots_of(self, request: dict[str, Any]) -> list[str | None]:
        url = BackfillRequest.of(request).archive
        return [site_archive(load_pipeline(self.pipeline_name).source.connection)(url).root] if url else []


def plan_range(name: str) -> dict[str, Any]:
    """Find the range and show what is in it. Fails at once where it is not there."""
    from changefeed.operations.backfill import plan_backfill

    def planned() -> dict[str, Any]:
        request = BackfillRequest.of({**given_params(backfill_params()), "pipeline": name})
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

    return failing_at_once(planned)


def finish_range(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Check that the backfill is sealed, say what it published, and forget what only its attempts needed."""
    from changefeed.operations.backfill import finish_backfill

    run_id = get_current_context()["dag_run"].run_id
    failing_at_once(lambda: check_own_backfill(name, run_id, planned))
    connections = task_connections(load_pipeline(name))
    window = Window.from_json(planned["window"])
    identity = str(planned["identity"])
    manifest = failing_at_once(lambda: finish_backfill(connections, window, identity))
    for line in window_lines([manifest]):
        _log.info("%s", line.replace("committed window 1", "published"))
    return {"rows": manifest.rows, "messages": manifest.message_count}
