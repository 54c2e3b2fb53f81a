"""The DAG of backfills: plan >> ingest >> finish, by hand. The live checkpoint is not looked at."""

from __future__ import annotations

import json
import logging
import os
from datetime import timedelta
from typing import Any, cast

from airflow.sdk import DAG, get_current_context, task

from changefeed.airflow.connections import task_endpoints
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.params import backfill_params, given_params
from changefeed.airflow.summary import table_lines, window_lines
from changefeed.airflow.tasks import failing_at_once
from changefeed.pipelines.file import load_pipeline
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_identity
from changefeed.window import Window

_log = logging.getLogger(__name__)

DAG_ID = "changefeed_backfill"
AT_ONCE = 4
"""Backfills that run at the same time."""

POOL_VARIABLE = "CHANGEFEED_BACKFILL_POOL"


def backfill_dag(pipelines: list[str]) -> DAG:
    """One DAG for all pipelines; its form asks which. Its publishing task runs in the pool that
    CHANGEFEED_BACKFILL_POOL names, or in Airflow's default pool."""
    dag = DAG(
        dag_id=DAG_ID,
        description="Publish a part of the binlog again",
        schedule=None,
        catchup=False,
        max_active_runs=AT_ONCE,
        params=backfill_params(pipelines),
        default_args={"owner": "changefeed", "retries": 2, "retry_delay": timedelta(seconds=15)},
        tags={"changefeed"},
        doc_md=__doc__,
        is_paused_upon_creation=False,
    )
    with dag:
        plan = task(task_id="plan")(plan_range)()
        ingest = JobOperator(
            task_id="ingest",
            pipeline="{{ params.pipeline }}",
            job="backfill.py",
            arguments=[],
            pool=os.environ.get(POOL_VARIABLE, "default_pool"),
        )
        finish = task(task_id="finish")(finish_range)(cast(Any, plan))
        plan >> ingest >> finish
    return dag


def plan_range() -> dict[str, Any]:
    """Find the range and show what is in it. Fails at once where it is not there."""
    from changefeed.upkeep.backfill import plan_backfill

    known = backfill_params([])

    def planned() -> dict[str, Any]:
        request = BackfillRequest.of(given_params(known))
        identity = backfill_identity(request.pipeline, get_current_context()["dag_run"].run_id)
        backfill = plan_backfill(task_endpoints(load_pipeline(request.pipeline)), request, identity)
        window = backfill.window
        _log.info(
            "backfill %s to %s, %d bytes, from %s", window.start, window.head, backfill.size_bytes, backfill.source
        )
        for line in table_lines(["file", "bytes"], [(file.name, file.size_bytes) for file in backfill.files]):
            _log.info("%s", line)
        for line in table_lines(
            ["table", "row events", "bytes", "topic"],
            [
                (table, counts.row_events, counts.size_bytes, backfill.topics.get(table, "(left out)"))
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


def finish_range(planned: dict[str, Any]) -> dict[str, Any]:
    """Check that the backfill is sealed, say what it published, and forget what only its attempts needed."""
    from changefeed.upkeep.backfill import finish_backfill

    endpoints = task_endpoints(load_pipeline(planned["request"]["pipeline"]))
    window = Window.from_json(planned["window"])
    identity = str(planned["identity"])
    manifest = failing_at_once(lambda: finish_backfill(endpoints, window, identity))
    for line in window_lines([manifest]):
        _log.info("%s", line.replace("committed window 1", "published"))
    return {"rows": manifest.rows, "messages": manifest.message_count}
