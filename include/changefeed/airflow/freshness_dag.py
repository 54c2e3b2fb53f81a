"""The DAG that checks whether all pipelines publish in time, apart from the DAGs that it checks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError

from changefeed.airflow.alerts import exceeded_limits, notify, notify_by, parked_text
from changefeed.airflow.connections import airflow_lookup
from changefeed.airflow.ingest_dag import SCHEDULE_START, ingest_dag_id
from changefeed.airflow.reporting import report_position, table_lines
from changefeed.airflow.tasks import fail_fast
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.model.connection import AnswerLimits
from changefeed.settings.file import load_pipelines, pipelines_folder, read_name, read_notifiers
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import FreshnessSettings, load_site
from changefeed.state.variable_store import VariableCheckpointStore

if TYPE_CHECKING:  # at run time it would load the clients of Kafka and MySQL in each process that parses DAGs
    from changefeed.airflow.asked_clusters import AskedClusters
    from changefeed.operations.lag import Position

FRESHNESS_DAG_ID = "changefeed_freshness"
CHECKED_KEY = "checked"
"""Key of the XCom of each run that has checked all pipelines, whether or not they are late."""

_ANSWER_LIMITS = AnswerLimits(connect_seconds=5, answer_seconds=30)
_READS_AT_ONCE = 8
_READ_SECONDS = 240
_BEFORE_ALL_OTHERS = 1_000_000
"""Priority of the task: if slots are rare, it must not wait with the tasks whose delay it reports."""

_log = logging.getLogger(__name__)


def freshness_dag(dag_id: str = FRESHNESS_DAG_ID, *, has_file_times: bool = True) -> DAG:
    """The DAG of all pipelines of the folder. If the site's file is invalid, the DAG has the default interval, and its
    task fails.

    Without ``has_file_times`` the times of the files are those of a checkout, and say nothing about pipelines.
    """
    dag = DAG(
        dag_id=dag_id,
        dag_display_name="changefeed: freshness of all pipelines",
        description="Fails and alerts if a pipeline does not publish in time",
        schedule=timedelta(minutes=_every_minutes()),
        start_date=SCHEDULE_START,
        catchup=False,
        max_active_runs=1,
        default_args={"owner": "changefeed", "retries": 0},
        tags={"changefeed", "freshness"},
        doc_md=__doc__,
        is_paused_upon_creation=False,
    )
    with dag:
        task(
            task_id="check",
            priority_weight=_BEFORE_ALL_OTHERS,
            weight_rule="absolute",
            execution_timeout=timedelta(minutes=10),
        )(check_freshness)(has_file_times)
    return dag


def _every_minutes() -> int:
    try:
        return load_site().freshness.every_minutes
    except SettingsError:
        return FreshnessSettings().every_minutes


def check_freshness(has_file_times: bool) -> None:
    """Compare each pipeline with its limits, and send an alert for each limit that is exceeded.

    Fails with all alerts in its message. An invalid file is an alert too, by its own notifiers. Pipelines without
    a schedule are checked only if they have a limit.
    """
    from changefeed.operations.lateness import is_checked

    site = fail_fast(load_site)
    pipelines, refused = load_pipelines()
    checked = [pipeline for _, pipeline in sorted(pipelines.items()) if is_checked(pipeline)]
    positions = _read_positions(checked)
    _log_positions(positions)
    texts = []
    for path in sorted(refused):
        text = _describe_refused(path)
        _log.error("%s", text)
        notify_by(read_notifiers(path), read_name(path), "invalid file", text)
        texts.append(text)
    for pipeline, position in zip(checked, positions, strict=True):
        try:
            written_at = _written_at(pipeline) if has_file_times else None
            alerts = _alerts_of(pipeline, position, site.freshness, written_at)
        except Exception as error:  # the others are checked all the same
            _log.exception("pipeline %s cannot be checked", pipeline.name)
            alerts = [("late", f"pipeline {pipeline.name!r} cannot be checked: {type(error).__name__}")]
        for kind, text in alerts:
            _log.error("%s", text)
            notify(pipeline, kind, text)
            texts.append(text)
    instance: Any = get_current_context()["ti"]
    instance.xcom_push(CHECKED_KEY, len(checked))
    if texts:
        raise AirflowFailException("not all pipelines publish in time: " + "; ".join(texts))


def _read_positions(pipelines: Sequence[Pipeline]) -> list[Position]:
    """The positions of ``pipelines``, read in parallel; an error for each that is not read after `_READ_SECONDS`.

    Of the pipelines of a Kafka cluster that does not answer, one asks it, and all have its error.
    """
    from changefeed.airflow.asked_clusters import AskedClusters
    from changefeed.operations.lag import UNKNOWN, Position
    from changefeed.operations.status import Status

    threads, clusters = ThreadPoolExecutor(_READS_AT_ONCE), AskedClusters()
    reads = [threads.submit(_read_position, pipeline, clusters) for pipeline in pipelines]
    wait(reads, _READ_SECONDS)
    threads.shutdown(wait=False, cancel_futures=True)  # the task's process ends without a server that does not answer
    silent = f"its servers and those before it did not answer within {_READ_SECONDS} s"
    return [
        read.result()
        if read.done() and not read.cancelled()
        else Position(Status(name, "error", error=silent), UNKNOWN)
        for read, name in zip(reads, (pipeline.name for pipeline in pipelines), strict=True)
    ]


def _read_position(pipeline: Pipeline, clusters: AskedClusters) -> Position:
    """The pipeline's position. Any error is in its status, because it must not stop the check of other pipelines."""
    from changefeed.airflow.asked_clusters import AskedConnections
    from changefeed.operations.lag import UNKNOWN, Position, position
    from changefeed.operations.status import Status, with_freshness
    from changefeed.pipeline.checkpoint_store import checkpoint_store

    try:
        connections = AskedConnections(pipeline, airflow_lookup, _ANSWER_LIMITS, clusters)
        found = position(connections, checkpoint_store(connections, VariableCheckpointStore))
        if load_site().freshness.limits_of(pipeline.alerts).freshness_seconds is None:
            return found  # without Kafka
        return replace(found, status=with_freshness(found.status, connections))
    except ChangefeedError as error:
        return Position(Status.in_error(pipeline.name, error), UNKNOWN)
    except Exception as error:
        _log.exception("pipeline %s cannot be checked", pipeline.name)
        return Position(Status(pipeline.name, "error", error=type(error).__name__), UNKNOWN)


def _alerts_of(
    pipeline: Pipeline, position: Position, site: FreshnessSettings, written_at: datetime | None
) -> list[tuple[str, str]]:
    """An alert, as (kind, text), if the pipeline is late, for each limit that is exceeded, and for parked tables."""
    from changefeed.operations.lateness import describe_lateness

    status, retention, limits = position.status, position.retention, site.limits_of(pipeline.alerts)
    now, alerts = datetime.now(UTC), []
    if late := describe_lateness(pipeline, position, limits, now=now, written_at=written_at):
        alerts.append(("late", late if status.error else f"{late}. {_describe_dag(ingest_dag_id(pipeline.name))}"))
    if status.lag_bytes is not None:
        seconds, headroom = retention.lag_seconds, retention.headroom_seconds
        report_position(pipeline.name, status.lag_bytes, seconds, headroom)
        alerts += exceeded_limits(
            pipeline.name,
            limits,
            lag_bytes=status.lag_bytes,
            lag_seconds=seconds,
            headroom_seconds=headroom,
            freshness=status.freshness,
        )
    if status.freshness_error:
        text = f"the freshness of pipeline {pipeline.name!r} cannot be checked: {status.freshness_error}"
        alerts.append(("freshness", text))
    if status.parked:
        alerts.append(("table parked", parked_text(pipeline.name, [each["table"] for each in status.parked])))
    return alerts


def _written_at(pipeline: Pipeline) -> datetime:
    """When the pipeline's file was last written; now if it has just been deleted."""
    try:
        return datetime.fromtimestamp((pipelines_folder() / pipeline.display_file).stat().st_mtime, UTC)
    except FileNotFoundError:
        return datetime.now(UTC)


def _describe_dag(dag_id: str) -> str:
    """Why the DAG does not publish, as far as Airflow's state shows it, and what to do."""
    instance: Any = get_current_context()["ti"]
    try:
        if instance.get_dag(dag_id).is_paused:
            return f"Its DAG {dag_id!r} is paused: resume it"
        if instance.get_dr_count(dag_id, states=["running"]):
            return f"A run of its DAG {dag_id!r} is not finished: see its tasks, and the free slots of their pool"
        if instance.get_dr_count(dag_id, states=["queued"]):
            return f"A run of its DAG {dag_id!r} is queued and does not start: see the scheduler and its limits"
    except AirflowRuntimeError:
        return f"Airflow does not return its DAG {dag_id!r}: see the import errors, and whether the DAG processor runs"
    return f"Its DAG {dag_id!r} is not paused and has no unfinished run: see its last run, and the scheduler"


def _describe_refused(path: Path) -> str:
    return f"the file {path.name!r} is invalid, so its pipeline has no DAG: `changefeed check` shows the error"


def _log_positions(positions: Sequence[Position]) -> None:
    rows = []
    for position in positions:
        status = position.status
        lag = "" if position.retention.lag_seconds is None else round(position.retention.lag_seconds)
        rows.append([status.pipeline, status.state, lag, "" if status.lag_bytes is None else status.lag_bytes])
    for line in table_lines(["pipeline", "state", "lag_seconds", "lag_bytes"], rows):
        _log.info("%s", line)
