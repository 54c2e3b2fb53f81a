"""The text of a pipeline's badge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from changefeed_web.standing import standing

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def moment(seconds: float) -> str:
    return (NOW + timedelta(seconds=seconds)).isoformat()


def dag(**changes: Any) -> dict[str, Any]:
    last_run = {"run_id": "one", "state": "success", "start": moment(-100)}
    return {
        "known": True,
        "missing": None,
        "paused": False,
        "held": [],
        "running": [],
        "next_run": moment(200),
        "last_run": last_run,
        **changes,
    }


def lag_of(lag_seconds: float | None) -> dict[str, Any]:
    return {"state": "behind", "lag_seconds": lag_seconds, "error": None}


@pytest.mark.parametrize(
    ("of", "position", "word"),
    [
        (dag(), lag_of(60), "on schedule"),
        (dag(next_run=moment(-30)), lag_of(60), "on schedule"),
        (dag(next_run=moment(-300)), lag_of(60), "run is late"),
        (dag(next_run=None), lag_of(60), "waits for a run"),
        (dag(next_run=None), {**lag_of(0), "own_changes": False}, "up to date"),
        (dag(), lag_of(600), "behind"),
        (dag(), lag_of(None), "behind"),
        (dag(last_run=None), lag_of(60), "behind"),
        (dag(), {"state": "current"}, "up to date"),
        (dag(), {"state": "new"}, "new"),
        (dag(), {"state": "error"}, "error"),
        (dag(), {"state": "error", "unavailable": "SourceUnavailableError"}, "no answer"),
        (dag(), None, "…"),
        (dag(running=["two"]), lag_of(600), "running"),
        (dag(paused=True), lag_of(600), "paused"),
        (dag(paused=True, running=["two"]), lag_of(600), "running"),
        (dag(paused=True, running=["two"], held=["two"]), lag_of(600), "paused, a run is held"),
        (dag(last_run={"state": "failed", "start": moment(-9)}), lag_of(60), "failed"),
        (dag(known=False, missing={"overdue": False}), None, "not loaded yet"),
        (dag(known=False, missing={"overdue": True}), None, "not loaded"),
        (dag(), {"state": "current", "parked": [{"table": "shop.orders"}]}, "1 table is parked"),
        (dag(running=["two"]), {**lag_of(60), "parked": [{}, {}]}, "2 tables are parked"),
        (dag(), {"state": "current", "parked": []}, "up to date"),
    ],
)
def test_badge_shows_lag_schedule_and_held_runs(of: dict[str, Any], position: dict[str, Any] | None, word: str) -> None:
    assert standing(of, position, NOW)["text"] == word
