"""One sentence about a pipeline: up to when its changes are in Kafka, or what waits and what to do."""

from collections.abc import Mapping
from typing import Any


def headline(
    dag: Mapping[str, Any], position: Mapping[str, Any], now_ms: int, every_seconds: float | None = None
) -> dict[str, Any]:
    """The sentence as ``text``, in which ``{at}`` is the time ``at_ms`` (Unix milliseconds; None if it has no time).

    ``kind`` is good, warn, bad or ''. ``do`` is the action that helps, run or resume; None if there is none. ``dag`` is
    the result of `dag_state`, ``position`` that of `position.position`. ``every_seconds`` is that of continuous runs,
    None for a pipeline without them.
    """
    if not dag["known"]:
        return _sentence("Airflow has not loaded the pipeline's DAGs, so no run starts.", "warn")
    if position["state"] == "error":
        return _of_error(position)
    if position["state"] == "new":
        return _of_new(dag)
    waits, at_ms = _waiting(position, now_ms)
    parked = _parked(position)
    done = f"{parked}{_REST_DONE if parked else _DONE}"
    if every_seconds is not None and not parked and set(dag["running"]) > set(dag["held"]):
        return _of_continuous(dag, position, waits, at_ms, every_seconds)
    if dag["paused"]:
        what = waits and f"{parked}{waits}. Resume the pipeline to publish them."
        return _sentence(f"Paused. {what or done}", "warn", at_ms, "resume")
    if _has_failed(dag):
        what = f"{parked}{waits}." if waits else done
        return _sentence(f"The last run failed. {what} Remove the cause, then run again.", "bad", at_ms, "run")
    if parked:
        return _sentence(f"{parked}{waits}." if waits else done, "bad", at_ms)
    if not waits:
        return _sentence(done, "good", at_ms)
    if dag["running"]:
        return _sentence(f"{waits}. A run is under way.", "", at_ms)
    if dag["next_run"] is None:
        return _sentence(f"{waits}. No run is planned.", "warn", at_ms, "run")
    return _sentence(f"{waits}. The next run publishes them.", "", at_ms)


_DONE = "All changes up to {at} are in Kafka."
_REST_DONE = "All other changes up to {at} are in Kafka."


_NORMAL_SECONDS = 10.0
"""How long a change may wait for a continuous run, besides the time between two windows, until it is behind."""


def _of_continuous(
    dag: Mapping[str, Any], position: Mapping[str, Any], waits: str, at_ms: int | None, every_seconds: float
) -> dict[str, Any]:
    """The sentence while a continuous run is under way. On a busy source, some changes always wait for its next
    window."""
    lag_seconds = position.get("lag_seconds")
    keeps_up = not waits or (lag_seconds is not None and lag_seconds <= every_seconds + _NORMAL_SECONDS)
    text = f"Changes are published as they come. {_DONE}" if keeps_up else f"{waits}. A run is under way."
    if not dag["paused"]:
        return _sentence(text, "good" if keeps_up else "", at_ms)
    return _sentence(f"{text} Paused: the run under way ends, and none follows.", "warn", at_ms, "resume")


def _has_failed(dag: Mapping[str, Any]) -> bool:
    return bool(dag["last_run"]) and dag["last_run"]["state"] == "failed" and not dag["running"]


def _parked(position: Mapping[str, Any]) -> str:
    parked = position.get("parked") or ()
    if not parked:
        return ""
    return f"Changes of {'1 parked table' if len(parked) == 1 else f'{len(parked)} parked tables'} wait. "


def _of_error(position: Mapping[str, Any]) -> dict[str, Any]:
    if position.get("unavailable"):
        return _sentence("The state is not known, because a server does not answer.", "bad")
    return _sentence("The pipeline cannot run. The error says what to do.", "bad")


def _of_new(dag: Mapping[str, Any]) -> dict[str, Any]:
    if dag["paused"]:
        return _sentence("Nothing is published yet. Resume the pipeline to start.", "warn", None, "resume")
    if dag["running"]:
        return _sentence("Nothing is published yet. The first run is under way.", "")
    if _has_failed(dag):
        return _sentence(
            "Nothing is published: the first run failed. Remove the cause, then run again.", "bad", None, "run"
        )
    return _sentence("Nothing is published yet. The first run sets the checkpoint.", "", None, "run")


def _waiting(position: Mapping[str, Any], now_ms: int) -> tuple[str, int | None]:
    """What waits, without a full stop, and the time in it; '' and the time of the reading if nothing waits."""
    read_at_ms = position.get("read_at_ms", now_ms)
    if position["state"] == "current" or position.get("own_changes") is False:
        return "", read_at_ms
    behind = "" if position.get("lag_bytes") is None else f": {_bytes(position['lag_bytes'])} behind"
    may = " may" if position.get("own_changes") is None else ""  # the search for the own tables' changes was limited
    if position.get("lag_seconds") is None:
        return f"Changes{may} wait{behind}", None
    return f"Changes since {{at}}{may} wait{behind}", int(read_at_ms - position["lag_seconds"] * 1000)


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _sentence(text: str, kind: str, at_ms: int | None = None, do: str | None = None) -> dict[str, Any]:
    return {"text": text, "kind": kind, "at_ms": at_ms if "{at}" in text else None, "do": do}
