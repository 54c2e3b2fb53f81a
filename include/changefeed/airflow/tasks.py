"""What the Python tasks of a pipeline's DAG do: one call each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from changefeed.airflow.alerts import limits_passed, notify
from changefeed.airflow.assets import emit_events
from changefeed.airflow.connections import airflow_lookup, task_connections
from changefeed.airflow.handed_over import own_run
from changefeed.airflow.params import given_params, ingest_params
from changefeed.airflow.reporting import measured_position, measured_windows, window_lines
from changefeed.errors import TerminalError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.state.variable_store import VariableCheckpointStore

if TYPE_CHECKING:  # at run time they would bring the clients of Kafka and MySQL into each process that reads DAGs
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.pipeline.planned_run import PlannedRun

_log = logging.getLogger(__name__)
logging.getLogger("kafka").setLevel(logging.WARNING)  # kafka-python tells each connection at INFO
_Result = TypeVar("_Result")


def plan_window(name: str) -> dict[str, Any] | None:
    """Freeze the pipeline's next windows; None when nothing is new, which skips the rest of the run.

    It is one window, or several of a long backlog. The run's parameters bound them.
    """
    from changefeed.ingest.cut import cut
    from changefeed.operations.lag import retention_or_none
    from changefeed.pipeline.plan import plan

    pipeline = load_pipeline(name)
    connections = task_connections(pipeline)
    bounds = failing_at_once(lambda: RunBounds.of(given_params(ingest_params())))
    planned = failing_at_once(lambda: plan(connections, checkpoint_store_of(pipeline)))
    whole = planned.window
    aged = retention_or_none(connections, whole.start)
    measured_position(name, planned.lag_bytes, aged.lag_seconds, aged.headroom_seconds)
    passed = limits_passed(
        pipeline, lag_bytes=planned.lag_bytes, lag_seconds=aged.lag_seconds, headroom_seconds=aged.headroom_seconds
    )
    for kind, text in passed:
        notify(pipeline, kind, text)
    if planned.is_empty:
        _log.info("nothing new: the checkpoint and the head are both at %s", whole.head)
        return None
    run = failing_at_once(lambda: cut(connections, planned, bounds))
    for window in run.windows:
        _log.info("window %d: %s to %s", window.number, window.start, window.head)
    _log.info("%d windows, %d bytes behind the head", len(run.windows), run.lag_bytes)
    return run.to_json()


def commit_window(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Move the checkpoint to the head of the last sealed window; returns rows by table and op."""
    skip_if_sought(name, planned)
    pipeline = load_pipeline(name)
    run = own_run(name, planned)
    connections, store = task_connections(pipeline), checkpoint_store_of(pipeline)
    manifests = failing_at_once(lambda: commit_and_tell(pipeline, connections, run, store))
    for line in window_lines(manifests):
        _log.info("%s", line)
    rows: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for table, ops in manifest.rows.items():
            sums = rows.setdefault(table, {})
            for op, count in ops.items():
                sums[op] = sums.get(op, 0) + count
    left = len(run.windows) - len(manifests)
    if left:
        _log.info("%d windows were not begun in this run: the next one takes them", left)
    return {"checkpoint": str(manifests[-1].window.head), "rows": rows}


def skip_if_sought(name: str, planned: dict[str, Any]) -> None:
    """Skip the task, and name the seek, where one moved the pipeline away from where the run begins."""
    from changefeed.pipeline.windows import seek_over

    run = failing_at_once(lambda: own_run(name, planned))
    if seek := seek_over(task_connections(load_pipeline(name)), run):
        frozen = f"{run.windows[0].start} to {run.windows[-1].head}"
        what = (
            f"what this run froze, {frozen}, was given up when {seek.who} sought the pipeline to {seek.to}: {seek.why}"
        )
        _log.warning(what)  # Airflow does not say why a task is skipped
        raise AirflowSkipException(what)


def commit_and_tell(
    pipeline: Pipeline, connections: PipelineConnections, run: PlannedRun, store: CheckpointStore
) -> list[Manifest]:
    """Commit the sealed windows of ``run``, and tell Airflow of them. Raises as `commit_windows` does."""
    from changefeed.ingest.commit import commit_windows

    manifests = commit_windows(connections, run, store)
    emit_events(pipeline, manifests)
    measured_windows(pipeline.name, manifests)
    letters = sum(receipt.dead_letters for manifest in manifests for receipt in manifest.topics)
    if letters:
        notify(pipeline, "dead letters", f"pipeline {pipeline.name!r}: {letters} records went to the dead letters")
    return manifests


def checkpoint_store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's store, with Variables as a task reaches them."""
    from changefeed.state.stores import checkpoint_store

    return checkpoint_store(pipeline, airflow_lookup, VariableCheckpointStore())


def failing_at_once(call: Callable[[], _Result]) -> _Result:
    """A terminal error fails the task without retries; its message is the log's last line."""
    try:
        return call()
    except TerminalError as error:
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
