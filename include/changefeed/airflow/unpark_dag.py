"""A pipeline's unpark DAG: plan >> unpark >> finish, started by hand. It publishes what parked tables miss, ends their
parking, and emits asset events."""

from __future__ import annotations

import json
import logging
from typing import Any

from airflow.sdk import DAG, get_current_context, task

from changefeed.airflow.assets import emit_events, pipeline_alias
from changefeed.airflow.connections import task_connections
from changefeed.airflow.ingest_operator import JobOperator
from changefeed.airflow.lineage import DatasetsTask
from changefeed.airflow.manual_dag import manual_dag, manual_pool
from changefeed.airflow.params import read_params, unpark_params
from changefeed.airflow.reporting import records_by_topic, sum_rows, window_lines
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
            task_id="unpark", pipeline=pipeline.name, job="unpark.py", arguments=[pipeline.name], pool=manual_pool()
        )
        finish = DatasetsTask(
            task_id="finish",
            pipeline=pipeline.name,
            python_callable=finish_unpark,
            op_args=[pipeline.name, plan],
            outlets=[pipeline_alias(pipeline.name)],
        )
        plan >> unpark >> finish
    dag.params.update(unpark_params())  # last: tasks that are created later copy the params
    return dag


def plan_unpark(name: str) -> dict[str, Any]:
    """Check the run's params, log the parked tables of the request, and return the request, these tables and the run's
    id, so that the job of another run is another one."""
    from changefeed.operations.unpark import requested_tables

    def plan() -> dict[str, Any]:
        request = UnparkRequest.of(read_params(unpark_params()))
        records = requested_tables(task_connections(load_pipeline(name)), request)
        for record in records:
            _log.info("%s is parked from %s on: %s", record.table, record.at, record.reason)
        run_id = get_current_context()["dag_run"].run_id
        parked = [[record.table, record.to_json()] for record in records]
        return {"request": json.loads(request.model_dump_json()), "parked": parked, "run_id": run_id}

    return fail_fast(plan)


def finish_unpark(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Emit an asset event for each topic that got rows; return rows by table and op, and records by topic."""
    from changefeed.kafka.commit_log.records import ParkedRecord
    from changefeed.operations.unpark import published_ranges

    pipeline = load_pipeline(name)
    records = [ParkedRecord.from_json([table], values) for table, values in planned["parked"]]
    manifests = fail_fast(lambda: published_ranges(task_connections(pipeline), records))
    emit_events(pipeline, manifests, are_windows=False)
    for line in window_lines(manifests):
        _log.info("%s", line.replace("committed window 1", "published"))
    return {"rows": sum_rows(manifests), "records": records_by_topic(manifests)}
