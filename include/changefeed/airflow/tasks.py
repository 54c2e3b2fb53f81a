"""What the Python tasks of a pipeline's DAG do: one call each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow.connections import airflow_lookup
from changefeed.airflow.variable_store import VariableCheckpointStore
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.errors import TerminalError
from changefeed.pipeline import Pipeline
from changefeed.pipeline_file import load_pipeline
from changefeed.window import Window

_log = logging.getLogger(__name__)
logging.getLogger("kafka").setLevel(logging.WARNING)  # kafka-python tells each connection at INFO
_Result = TypeVar("_Result")


def plan_window(name: str) -> dict[str, Any] | None:
    """Freeze the pipeline's next window; None when nothing is new, which skips the rest of the run."""
    from changefeed.stages.plan import plan

    pipeline = load_pipeline(name)
    planned = _failing_at_once(lambda: plan(pipeline, airflow_lookup, _store(pipeline)))
    window = planned.window
    if window.is_empty:
        _log.info("nothing new: the checkpoint and the head are both at %s", window.head)
        return None
    _log.info("window %d: %s to %s, %d bytes", window.number, window.start, window.head, planned.lag_bytes)
    return {
        "window": window.to_json(),
        "expected": planned.expected.to_text(),
        "lag_bytes": planned.lag_bytes,
    }


def commit_window(name: str, planned: dict[str, Any]) -> dict[str, Any]:
    """Move the checkpoint to the head of the sealed window; returns rows by table and op."""
    from changefeed.stages.commit import commit
    from changefeed.stages.plan import Plan

    pipeline = load_pipeline(name)
    frozen = Plan(
        Window.from_json(planned["window"]), Checkpoint.from_text(planned["expected"]), int(planned["lag_bytes"])
    )
    manifest = _failing_at_once(lambda: commit(pipeline, frozen, airflow_lookup, _store(pipeline)))
    for table, ops in manifest.rows.items():
        _log.info("%s: %s", table, ", ".join(f"{op} {count}" for op, count in ops.items()))
    _log.info(
        "committed window %d at %s: %d rows, %d messages, %d bytes of binlog",
        manifest.window.number,
        manifest.window.head,
        manifest.row_count,
        manifest.message_count,
        manifest.size_bytes,
    )
    return {"checkpoint": str(manifest.window.head), "rows": manifest.rows}


def _store(pipeline: Pipeline) -> CheckpointStore:
    from changefeed.stages.stores import checkpoint_store

    return checkpoint_store(pipeline, airflow_lookup, VariableCheckpointStore())


def _failing_at_once(call: Callable[[], _Result]) -> _Result:
    """A terminal error fails the task without retries; its message is the log's last line."""
    try:
        return call()
    except TerminalError as error:
        raise AirflowFailException(f"{type(error).__name__}: {error}") from error
