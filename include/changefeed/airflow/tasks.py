"""The functions that the Python tasks of a pipeline's DAGs call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from changefeed.airflow.alerts import RunAlerts, exceeded_limits, notify, parked_text
from changefeed.airflow.assets import emit_events
from changefeed.airflow.connections import task_connections
from changefeed.airflow.params import ingest_params, read_params
from changefeed.airflow.pipeline_versions import PipelineVersions
from changefeed.airflow.reporting import records_by_topic, report_position, report_windows, sum_rows, window_lines
from changefeed.airflow.unsent_events import emit_unsent
from changefeed.airflow.xcom_checks import read_planned_run
from changefeed.errors import ChangefeedError, TerminalError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.state.variable_store import VariableCheckpointStore

if TYPE_CHECKING:  # at run time they would load the clients of Kafka and MySQL in each process that parses DAGs
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.pipeline.planned_run import PlannedRun

_log = logging.getLogger(__name__)
logging.getLogger("kafka").setLevel(logging.WARNING)  # kafka-python logs each connection at INFO
_Result = TypeVar("_Result")
_HEARTBEAT = "the heartbeat"


def plan_window(name: str) -> dict[str, Any] | None:
    """Freeze the next windows of pipeline ``name``, and alert if a limit is exceeded.

    Returns None, which skips the other tasks, if nothing is new. A large backlog becomes several windows, within the
    bounds of the run's params. With the pipeline's setting `windows` it freezes none and skips nothing, because the job
    freezes its windows itself; but a run that ends at a position takes over from a continuous one.
    """
    from changefeed.ingest.cut import cut
    from changefeed.ingest.handover import plan_after_takeover
    from changefeed.operations.lag import retention_or_none
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
    from changefeed.pipeline.plan import plan
    from changefeed.pipeline.planned_run import PlannedRun

    pipeline = load_pipeline(name)
    connections = task_connections(pipeline)
    bounds = fail_fast(lambda: RunBounds.of(read_params(ingest_params())))
    first = fail_fast(lambda: plan(connections, checkpoint_store_of(pipeline)))
    planned = fail_fast(lambda: plan_after_takeover(connections, first, bounds, checkpoint_store_of(pipeline)))
    if planned is None:
        _log.info("nothing new before %s: a continuous run has passed it, and goes on", bounds.until)
        return None
    backlog = planned.window
    retention = retention_or_none(connections, planned.sealed_up_to)
    report_position(name, planned.lag_bytes, retention.lag_seconds, retention.headroom_seconds)
    exceeded = exceeded_limits(
        name,
        pipeline.alerts,
        lag_bytes=planned.lag_bytes,
        lag_seconds=retention.lag_seconds,
        headroom_seconds=retention.headroom_seconds,
    )
    for kind, text in exceeded:
        notify(pipeline, kind, text)
    if planned.is_empty:
        fail_fast(lambda: write_heartbeat(connections, Heartbeat.of_idle(planned)))
    if pipeline.windows is not None and not bounds.stops_at_a_position:
        _log.info("the job freezes windows itself, one after another, for %s", pipeline.windows.run_for)
        return PlannedRun((), planned.expected, planned.lag_bytes).to_json()
    if planned.is_empty:
        _log.info("nothing new: checkpoint and head are both at %s", backlog.head)
        return None
    run = fail_fast(lambda: cut(connections, planned, bounds))
    for window in run.windows:
        _log.info("window %d: %s to %s", window.number, window.start, window.head)
    _log.info("%d windows, %d bytes behind the head", len(run.windows), run.lag_bytes)
    return run.to_json()


def commit_window(name: str, planned: dict[str, Any], committed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Move the checkpoint to the head of the last sealed window.

    Returns the checkpoint, rows by table and op, and records by topic. ``committed`` are those that the task `ingest`
    of a continuous run has committed already.
    """
    pipeline = load_pipeline(name)
    run = fail_fast(lambda: read_planned_run(name, planned))
    if not run.is_continuous:
        skip_after_seek(name, planned)
    if pipeline.windows is not None or run.is_continuous:  # a continuous run may have taken over
        rest = fail_fast(lambda: commit_rest(pipeline))
        return committed or {"rows": sum_rows(rest), "records": records_by_topic(rest)}
    connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
    manifests = fail_fast(lambda: commit_and_report(pipeline, connections, run, store))
    for line in window_lines(manifests):
        _log.info("%s", line)
    left = len(run.windows) - len(manifests)
    if left:
        _log.info("%d windows were not started: the next run publishes them", left)
    return {
        "checkpoint": str(manifests[-1].window.head),
        "rows": sum_rows(manifests),
        "records": records_by_topic(manifests),
    }


def is_sealed(name: str, planned: dict[str, Any]) -> bool:
    """Whether all windows of this run are sealed in the commit log, as far as it can be read without waiting."""
    from changefeed.pipeline.windows import last_stable_state

    run = fail_fast(lambda: read_planned_run(name, planned))
    if run.is_continuous:  # how far its job should have come is not known
        return False
    seals = last_stable_state(task_connections(load_pipeline(name))).seals
    return all((seal := seals.get(window.number)) is not None and seal.window == window for window in run.windows)


def skip_after_seek(name: str, planned: dict[str, Any]) -> None:
    """If a seek has discarded the windows of this run, log the seek and skip the task."""
    from changefeed.pipeline.windows import seek_over

    run = fail_fast(lambda: read_planned_run(name, planned))
    if seek := seek_over(task_connections(load_pipeline(name)), run):
        frozen = f"{run.windows[0].start} to {run.windows[-1].head}"
        what = (
            f"the windows of this run, {frozen}, were discarded when {seek.who} moved the pipeline to "
            f"{seek.to}: {seek.why}"
        )
        _log.warning(what)  # Airflow does not log why a task is skipped
        raise AirflowSkipException(what)


def commit_and_report(
    pipeline: Pipeline, connections: PipelineConnections, run: PlannedRun, store: CheckpointStore
) -> list[Manifest]:
    """Commit the sealed windows of ``run``, and report them: what `report_committed` reports, and asset events.

    Returns their manifests. Raises as `commit_windows` does.
    """
    from changefeed.ingest.commit import commit_windows

    manifests = commit_windows(connections, run, store)
    report_committed(pipeline, connections, manifests)
    if pipeline.windows is None:
        emit_events(pipeline, manifests)
    else:
        emit_unsent(PipelineVersions(pipeline), connections, store, manifests)
    return manifests


def commit_rest(pipeline: Pipeline) -> list[Manifest]:
    """Commit the sealed windows of a continuous run that are not committed yet, and report them."""
    from changefeed.ingest.commit import commit_sealed

    connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
    manifests = commit_sealed(connections, store)
    report_committed(pipeline, connections, manifests)
    emit_unsent(PipelineVersions(pipeline), connections, store, manifests)
    return manifests


def report_committed(
    pipeline: Pipeline,
    connections: PipelineConnections,
    manifests: Sequence[Manifest],
    alerts: RunAlerts | None = None,
) -> None:
    """Report committed windows, if any: metrics, a heartbeat, and alerts for dead letters, parked tables and a
    heartbeat that cannot be written.

    ``alerts`` are those of the run, if it commits several times.
    """
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat

    if not manifests:
        return
    report_windows(pipeline.name, manifests)
    alerts = alerts or RunAlerts()
    alerts.add_dead_letters(pipeline, sum(manifest.dead_letters for manifest in manifests))
    known = alerts.sent
    if parked := sorted({table for manifest in manifests for table in manifest.parked} - known):
        notify(pipeline, "table parked", parked_text(pipeline.name, parked))
        known.update(parked)
    try:
        write_heartbeat(connections, Heartbeat.of_committed(manifests[-1]))
    except ChangefeedError as error:  # the windows are committed: a failed task would keep back their asset events
        _log.error("%s", error)
        if _HEARTBEAT not in known:
            notify(pipeline, "no heartbeat", f"pipeline {pipeline.name!r}: {error}")
            known.add(_HEARTBEAT)


def checkpoint_store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's checkpoint store, for a task."""
    from changefeed.pipeline.checkpoint_store import checkpoint_store

    return checkpoint_store(task_connections(pipeline), VariableCheckpointStore)


def fail_fast(call: Callable[[], _Result]) -> _Result:
    """Return ``call()``. A TerminalError fails the task without retries; its message is the last line of the log."""
    try:
        return call()
    except TerminalError as error:
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
