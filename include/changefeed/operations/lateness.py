"""Finds a pipeline that does not publish in time, whether or not its DAG runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from changefeed.operations.lag import Position
from changefeed.settings.alert_limits import AlertLimits
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.schedule import last_scheduled


def is_checked(pipeline: Pipeline) -> bool:
    """Whether the pipeline is expected to publish by itself: it has a schedule, or a limit of its own."""
    own = pipeline.alerts
    return pipeline.schedule is not None or any(getattr(own, name) is not None for name in AlertLimits.model_fields)


def describe_lateness(
    pipeline: Pipeline, position: Position, limits: AlertLimits, *, now: datetime, written_at: datetime | None
) -> str | None:
    """A sentence that names the pipeline, if it is late; else None.

    It is late if a run of its schedule was due ``limits.late_minutes`` ago or earlier, if a change of its tables that
    was there at that time is not published, and if nothing was committed since. A pipeline that commits is not late,
    however long its lag is: `lag_seconds` limits that. A pipeline without a checkpoint is late if its file was
    ``written_at`` before the due time, or at an unknown time (None). A pipeline whose position cannot be read counts as
    late.
    """
    status = position.status
    if status.error:
        return f"pipeline {pipeline.name!r} cannot be checked: {status.error}"
    due = due_time(pipeline, limits, now)
    if due is None:
        return None
    if status.state == "new":
        if written_at is not None and written_at >= due:
            return None
        since = "" if written_at is None else f" since its file was written at {_text(written_at)}"
        return (
            f"pipeline {pipeline.name!r} has no checkpoint: no run has succeeded{since}, and a run was due at "
            f"{_text(due)}"
        )
    committed = datetime.fromtimestamp((status.committed_at_ms or 0) / 1000, UTC)
    lag = position.retention.lag_seconds
    if status.state != "behind" or committed >= due or (lag is not None and now - timedelta(seconds=lag) >= due):
        return None
    most = "at most " if position.retention.own_changes is None else ""
    age = "of unknown age" if lag is None else f"{most}{lag:,.0f} seconds old"
    return (
        f"pipeline {pipeline.name!r} is late: its last commit was at {_text(committed)}, its oldest change that is not "
        f"published is {age}, and a run was due at {_text(due)}"
    )


def due_time(pipeline: Pipeline, limits: AlertLimits, now: datetime) -> datetime | None:
    """The last time of the schedule that is at least ``limits.late_minutes`` ago.

    Without a schedule it is ``late_minutes`` ago if the pipeline itself sets that limit, else None.
    """
    if limits.late_minutes is None:
        return None
    latest = now - timedelta(minutes=limits.late_minutes)
    unscheduled = None if pipeline.alerts.late_minutes is None else latest
    return last_scheduled(pipeline.schedule, latest) or unscheduled


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
