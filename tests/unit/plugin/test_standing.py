"""The word on a pipeline's badge."""

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
        "paused": False,
        "held": [],
        "running": [],
        "next_run": moment(200),
        "last_run": last_run,
        **changes,
    }


def behind(lag_seconds: float | None) -> dict[str, Any]:
    return {"state": "behind", "lag_seconds": lag_seconds, "error": None}


@pytest.mark.parametrize(
    ("of", "position", "word"),
    [
        (dag(), behind(60), "on schedule"),
        (dag(next_run=moment(-30)), behind(60), "on schedule"),
        (dag(next_run=moment(-300)), behind(60), "its run is late"),
        (dag(next_run=None), behind(60), "waits for a run"),
        (dag(), behind(600), "behind"),
        (dag(), behind(None), "behind"),
        (dag(last_run=None), behind(60), "behind"),
        (dag(), {"state": "current"}, "up to date"),
        (dag(), {"state": "new"}, "new"),
        (dag(), {"state": "error"}, "error"),
        (dag(), None, "…"),
        (dag(running=["two"]), behind(600), "running"),
        (dag(paused=True), behind(600), "paused"),
        (dag(paused=True, running=["two"]), behind(600), "running"),
        (dag(paused=True, running=["two"], held=["two"]), behind(600), "paused, a run is held"),
        (dag(last_run={"state": "failed", "start": moment(-9)}), behind(60), "failed"),
        (dag(known=False), None, "not loaded yet"),
    ],
)
def test_a_badge_tells_lag_by_the_schedule_and_what_a_pause_holds(
    of: dict[str, Any], position: dict[str, Any] | None, word: str
) -> None:
    assert standing(of, position, NOW)["text"] == word
