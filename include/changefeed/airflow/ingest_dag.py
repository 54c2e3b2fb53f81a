"""A pipeline's ingest DAG: plan >> ingest >> commit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, AssetAlias, BaseOperator, DeltaTriggerTimetable, get_parsing_context, task
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from changefeed.airflow.alerts import deadline_missed, failure_callback
from changefeed.airflow.assets import pipeline_alias
from changefeed.airflow.lineage import DatasetsTask
from changefeed.airflow.markdown import code
from changefeed.airflow.params import ingest_params
from changefeed.airflow.tasks import commit_window, plan_window
from changefeed.settings.pipeline import Pipeline

ACTIVE_STATES = ("queued", "running", "restarting", "deferred")
"""States of tasks that continue while their DAG is paused. Airflow starts no other tasks of a paused DAG."""

PLAN_TASK, INGEST_TASK, COMMIT_TASK = "plan", "ingest", "commit"
"""Tasks of the ingest DAG: they freeze the windows of a run, publish them, and move the checkpoint."""

SCHEDULE_START = pendulum.datetime(2026, 1, 1, tz="UTC")
"""Start date of all schedules. Airflow requires one; it has no effect, because the DAGs do not catch up."""


def ingest_dag_id(pipeline: str) -> str:
    """The id of a pipeline's ingest DAG."""
    return f"changefeed_ingest__{pipeline}"


def dag_tags(pipeline: Pipeline, kind: str) -> set[str]:
    """Tags by which users filter the list of DAGs: the pipeline's name, ``kind`` (ingest, seek, …), and the tags in its
    YAML."""
    return {"changefeed", f"pipeline:{pipeline.name}", kind, *pipeline.tags}


def display_name(pipeline: Pipeline, kind: str) -> str:
    """The DAG's name on Airflow's pages. A pipeline's DAGs are next to each other in the list."""
    return f"changefeed {pipeline.name}: {kind}"


def task_settings(pipeline: Pipeline) -> dict[str, Any]:
    """Default arguments of tasks in scheduled DAGs: the pipeline's owner, retries and alerts."""
    settings: dict[str, Any] = {
        "owner": pipeline.owner,
        "retries": pipeline.retries,
        "retry_delay": timedelta(seconds=pipeline.retry_delay_seconds),
    }
    if pipeline.alerts.notify:
        settings["on_failure_callback"] = failure_callback(pipeline)
    return settings


def ingest_dag(pipeline: Pipeline) -> DAG:
    """The ingest DAG of one pipeline, built from its settings alone, without network or database."""
    dag = DAG(
        dag_id=ingest_dag_id(pipeline.name),
        dag_display_name=display_name(pipeline, "ingest"),
        description=f"Publish row changes of {pipeline.source.connection} to {pipeline.kafka.connection}",
        schedule=_schedule(pipeline),
        start_date=SCHEDULE_START,
        catchup=False,
        max_active_runs=max_active_runs(pipeline),
        default_args=task_settings(pipeline),
        deadline=_deadline(pipeline),
        tags=dag_tags(pipeline, "ingest"),
        doc_md=_documentation(pipeline),
        is_paused_upon_creation=False,
    )
    with dag:
        plan = task.short_circuit(task_id=PLAN_TASK)(plan_window)(pipeline.name)
        ingest = _ingest_task(pipeline)
        commit = DatasetsTask(
            task_id=COMMIT_TASK,
            pipeline=pipeline.name,
            python_callable=commit_window,
            op_args=_commit_arguments(pipeline, plan, ingest),
            inlets=sent_events(pipeline),
            outlets=[pipeline_alias(pipeline.name)],
        )
        plan >> ingest >> commit
    dag.params.update(ingest_params())  # last: tasks that are created later copy the params
    return dag


def max_active_runs(pipeline: Pipeline) -> int:
    """How many runs of the ingest DAG are active at most: a continuous run takes over from the one before it."""
    return 1 if pipeline.windows is None else 2


def _schedule(pipeline: Pipeline) -> str | DeltaTriggerTimetable | None:
    """The DAG's schedule. Airflow's own `@continuous` has one active run at a time, which cannot hand over to the next
    one; so with `windows` the next run begins when the time of the last one is over."""
    if pipeline.windows is None or pipeline.schedule != "@continuous":
        return pipeline.schedule
    return DeltaTriggerTimetable(timedelta(seconds=pipeline.windows.run_seconds))


def _commit_arguments(pipeline: Pipeline, plan: Any, ingest: BaseOperator) -> list[Any]:
    """The arguments of `commit_window`; those of other tasks are their XComs, at run time."""
    return [pipeline.name, plan] if pipeline.windows is None else [pipeline.name, plan, ingest.output]


def _ingest_task(pipeline: Pipeline) -> BaseOperator:
    """The task that publishes. The other two tasks parse this file again, and need only its id: the import of Airflow's
    Spark provider, and of the OpenLineage client that it imports, would cost each of them 0.15 CPU seconds."""
    running = get_parsing_context()
    if running.dag_id == ingest_dag_id(pipeline.name) and running.task_id in (PLAN_TASK, COMMIT_TASK):
        return EmptyOperator(task_id=INGEST_TASK)
    from changefeed.airflow.ingest_operator import IngestOperator

    return IngestOperator(
        task_id=INGEST_TASK,
        pipeline=pipeline.name,
        conn_id=pipeline.spark.connection,
        conf=pipeline.spark.conf,
        pool=pipeline.pool,
        inlets=sent_events(pipeline),
        outlets=sent_events(pipeline),
    )


def sent_events(pipeline: Pipeline) -> list[AssetAlias]:
    """The inlets of a task that calls `emit_unsent`: by the events that were sent, it finds those that were not."""
    return [] if pipeline.windows is None else [pipeline_alias(pipeline.name)]


def _deadline(pipeline: Pipeline) -> DeadlineAlert | None:
    if pipeline.deadline_minutes is None:
        return None
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(minutes=pipeline.deadline_minutes),
        callback=AsyncCallback(
            deadline_missed,
            kwargs={"pipeline": pipeline.name, "notify": [each.model_dump() for each in pipeline.alerts.notify]},
        ),
    )


def _documentation(pipeline: Pipeline) -> str:
    included = ", ".join(map(code, pipeline.tables.include))
    excluded = ", ".join(map(code, pipeline.tables.exclude)) or "none"
    return f"""
Publishes the row changes of {code(pipeline.source.connection)} to {code(pipeline.kafka.connection)}.

- Tables: {included}; excluded: {excluded}
- Topics: {code(pipeline.topics.template)}, {pipeline.topics.partitions} partitions
- Checkpoint: in a {pipeline.checkpoint.store}

Consumers with read_committed get each change exactly once. Changes of one key are in order within a topic-partition.
There is no order across topics; each record has its binlog coordinates.
"""
