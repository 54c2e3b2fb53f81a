"""How a pipeline is doing, in a word for its badge: from what Airflow knows and where the checkpoint stands."""

from datetime import datetime, timedelta
from typing import Any

LATE = timedelta(minutes=1)
"""How long after its time a run may begin and the pipeline still counts as on schedule."""


def standing(dag: dict[str, Any], position: dict[str, Any] | None, now: datetime) -> dict[str, str]:
    """``text`` for people and ``kind`` (good, warn, bad or '') for its colour.

    ``dag`` is `dag_state`'s, ``position`` that of `position.position`, or None where it was not asked for.
    """
    if not dag["known"]:
        return _word("not loaded yet", "warn")
    if position and position["state"] == "error":
        return _word("error", "bad")
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
    if not _last_run_took_all(dag["last_run"], position, now):
        return _word("behind", "warn")
    if dag["next_run"] is None:
        return _word("waits for a run")
    late = now - datetime.fromisoformat(dag["next_run"]) > LATE
    return _word("its run is late", "warn") if late else _word("on schedule", "good")


def _last_run_took_all(last_run: dict[str, Any] | None, position: dict[str, Any], now: datetime) -> bool:
    """Whether the oldest change that is not published was made after the last run began: between two runs there always
    are some. Binlogs have whole seconds."""
    if not last_run or not last_run["start"] or position.get("lag_seconds") is None:
        return False
    oldest = now - timedelta(seconds=position["lag_seconds"])
    return oldest > datetime.fromisoformat(last_run["start"]) - timedelta(seconds=1)


def _word(text: str, kind: str = "") -> dict[str, str]:
    return {"text": text, "kind": kind}
