"""Chooses the text and colour of a pipeline's badge by the state of its DAG and its lag."""

from datetime import datetime, timedelta
from typing import Any

LATE = timedelta(minutes=1)
"""How late a run may start while the pipeline still counts as on schedule."""


def standing(dag: dict[str, Any], position: dict[str, Any] | None, now: datetime) -> dict[str, str]:
    """``text`` of the badge, and ``kind`` (good, warn, bad or '') for its colour.

    ``dag`` is the result of `dag_state` with `missing_dag`. ``position`` is that of `position.position`, or None if it
    was not read.
    """
    if not dag["known"]:
        is_overdue = dag["missing"] and dag["missing"]["overdue"]
        return _word("not loaded", "bad") if is_overdue else _word("not loaded yet", "warn")
    if position and position["state"] == "error":
        return _word("no answer" if position.get("unavailable") else "error", "bad")
    if position and position.get("parked"):
        count = len(position["parked"])
        return _word("1 table is parked" if count == 1 else f"{count} tables are parked", "bad")
    if dag["held"]:
        return _word("paused, a run is held", "warn")
    if dag["running"]:
        return _word("running")
    if dag["last_run"] and dag["last_run"]["state"] == "failed":
        return _word("failed", "bad")
    if dag["paused"]:
        return _word("paused", "warn")
    if position is None:
        return _word("…")
    if position["state"] != "behind":
        return _word("up to date", "good") if position["state"] == "current" else _word(position["state"])
    if position.get("own_changes") is False and dag["next_run"] is None:
        return _word("up to date", "good")
    if not _is_newer_than_last_run(dag["last_run"], position, now):
        return _word("behind", "warn")
    if dag["next_run"] is None:
        return _word("waits for a run")
    late = now - datetime.fromisoformat(dag["next_run"]) > LATE
    return _word("run is late", "warn") if late else _word("on schedule", "good")


def _is_newer_than_last_run(last_run: dict[str, Any] | None, position: dict[str, Any], now: datetime) -> bool:
    """Whether the oldest unpublished change is newer than the start of the last run. If it is, the lag is normal.

    Times in a binlog have a resolution of one second.
    """
    if not last_run or not last_run["start"] or position.get("lag_seconds") is None:
        return False
    oldest = now - timedelta(seconds=position["lag_seconds"])
    return oldest > datetime.fromisoformat(last_run["start"]) - timedelta(seconds=1)


def _word(text: str, kind: str = "") -> dict[str, str]:
    return {"text": text, "kind": kind}
