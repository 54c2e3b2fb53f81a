"""A pipeline's unpark DAG: plan >> unpark, started by hand. It publishes what parked tables miss, and ends their
parking."""

from __future__ import annotations

import json
import logging
from typing import Any, cast

from airflow.sdk import DAG, get_current_context, task

from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.manual_dag import manual_dag
from changefeed.airflow.params import read_params, unpark_params
from changefeed.airflow.tasks import fail_fast
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.unpark import UnparkRequest

_log = logging.getLogger(__name__)


def unpark_dag_id(pipeline: str) -> str:
    """The id of a pipeline's unpark DAG."""
    return f"changefeed_unpark__{pipeline}"


def unpark_dag(pipeline: Pipeline) -> DAG:
    """The DAG that brings one pipeline's parked tables back. Users who may trigger it in Airflow may unpark tables."""
    dag = manual_dag(
        pipeline,
        unpark_dag_id(pipeline.name),
        "unpark",
        f"Publish what parked tables of pipeline {pipeline.name} miss, and publish them with its windows again",
        __doc__,
        retries=2,
    )
    with dag:
        plan = task(task_id="plan")(plan_unpark)(pipeline.name)
        unpark = JobOperator(
            task_id="unpark", pipeline=pipeline.name, job="unpark.py", arguments=[pipeline.name], pool=pipeline.pool
        )
        cast(Any, plan) >> unpark
    dag.params.update(unpark_params())  # last: tasks that are created later copy the params
    return dag


def plan_unpark(name: str) -> dict[str, Any]:
    """Check the run's params, log the parked tables of the request, and return the request and the run's id, so
    that the job of another run is another one."""
    from changefeed.operations.unpark import requested_tables

    def plan() -> dict[str, Any]:
        request = UnparkRequest.of(read_params(unpark_params()))
        for record in requested_tables(task_connections(load_pipeline(name)), request):
            _log.info("%s is parked from %s on: %s", record.table, record.at, record.reason)
        run_id = get_current_context()["dag_run"].run_id
        return {"request": json.loads(request.model_dump_json()), "run_id": run_id}

    return fail_fast(plan)
