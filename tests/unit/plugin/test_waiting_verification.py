"""Which verification waits until somebody resumes or runs the pipeline."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed_web.history import waiting_verification

RUN = {"run_id": "v1", "state": "running", "conf": {"wait_seconds": 60}}


def dag(**changes: Any) -> dict[str, Any]:
    return {"paused": False, "running": [], "held": [], "next_run": None, **changes}


@pytest.mark.parametrize(
    ("run", "ingest", "state", "action"),
    [
        (RUN, dag(paused=True), "behind", "resume"),
        (RUN, dag(paused=True, running=["one"], held=["one"], next_run="soon"), "behind", "resume"),
        (RUN, dag(), "behind", "run"),
        (RUN, dag(running=["one"]), "behind", None),
        (RUN, dag(next_run="soon"), "behind", None),
        (RUN, dag(paused=True), "current", None),
        (RUN, dag(paused=True), "error", None),
        ({**RUN, "state": "success"}, dag(paused=True), "behind", None),
    ],
)
def test_verification_names_the_action_that_it_waits_for(
    run: dict[str, Any], ingest: dict[str, Any], state: str, action: str | None
) -> None:
    expected = action and {"run_id": "v1", "wait_seconds": 60, "for": action}
    assert waiting_verification([run], ingest, {"state": state}) == expected


def test_without_a_run_nothing_waits() -> None:
    assert waiting_verification([], dag(paused=True), {"state": "behind"}) is None


def test_default_time_is_that_of_the_request() -> None:
    waiting = waiting_verification([{**RUN, "conf": {}}], dag(paused=True), {"state": "behind"})
    assert waiting is not None
    assert waiting["wait_seconds"] == 900
