"""Creates the DAGs that people start by hand, without their tasks. One may also have a schedule."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from changefeed.airflow.alerts import failure_callback, first_retry_callback
from changefeed.airflow.ingest_dag import SCHEDULE_START, dag_tags, display_name
from changefeed.settings.pipeline import Pipeline

_POOL_VARIABLE = "CHANGEFEED_BACKFILL_POOL"
_RETRY_DELAY = timedelta(seconds=15)
_LONGEST_RETRY_DELAY = timedelta(minutes=10)


def manual_pool() -> str:
    """The pool of the tasks that publish or compare, of all pipelines: the one that CHANGEFEED_BACKFILL_POOL names, or
    `default_pool`. The pipeline's own pool has the slots of its runs, which such a task would keep from the next run.
    """
    return os.environ.get(_POOL_VARIABLE, "default_pool")


def manual_dag(
    pipeline: Pipeline,
    dag_id: str,
    kind: str,
    description: str,
    doc: str | None,
    *,
    retries: int,
    max_active_runs: int = 1,
    schedule: str | None = None,
) -> DAG:
    """A DAG without tasks; ``kind`` (seek, backfill, …) becomes its tag and part of its display name.

    With a ``schedule``, the first attempt that fails and the last one are alerted, and the time between retries grows
    up to ten minutes.
    """
    settings: dict[str, Any] = {"owner": pipeline.owner, "retries": retries}
    if retries:
        settings["retry_delay"] = _RETRY_DELAY
    if schedule:
        settings |= {"retry_exponential_backoff": 2.0, "max_retry_delay": _LONGEST_RETRY_DELAY}
    if schedule and pipeline.alerts.notify:
        settings["on_failure_callback"] = failure_callback(pipeline, f"{kind} failed")
        settings["on_retry_callback"] = first_retry_callback(pipeline, f"{kind} failed")
    return DAG(
        dag_id=dag_id,
        dag_display_name=display_name(pipeline, kind),
        description=description,
        schedule=schedule,
        start_date=SCHEDULE_START if schedule else None,
        catchup=False,
        max_active_runs=max_active_runs,
        default_args=settings,
        tags=dag_tags(pipeline, kind),
        doc_md=doc,
        is_paused_upon_creation=False,
    )
