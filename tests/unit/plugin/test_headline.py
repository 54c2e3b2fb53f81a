"""The sentence about a pipeline's state."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed_web.headline import headline

NOW = 1_795_255_256_000
BEHIND = {"state": "behind", "lag_bytes": 3_145_728, "lag_seconds": 60.0, "own_changes": True}
WAIT = "Changes since {at} wait: 3.1 MB behind."
DONE = "All changes up to {at} are in Kafka."
SUCCESS, FAILED = {"state": "success"}, {"state": "failed"}


def dag(**changes: Any) -> dict[str, Any]:
    return {
        "known": True,
        "paused": False,
        "held": [],
        "running": [],
        "next_run": "soon",
        "last_run": SUCCESS,
        **changes,
    }


@pytest.mark.parametrize(
    ("of", "position", "text", "kind", "do"),
    [
        (dag(), {"state": "current"}, DONE, "good", None),
        (dag(), {**BEHIND, "own_changes": False}, DONE, "good", None),
        (dag(), BEHIND, f"{WAIT} The next run publishes them.", "", None),
        (dag(running=["one"]), BEHIND, f"{WAIT} A run is under way.", "", None),
        (dag(next_run=None), BEHIND, f"{WAIT} No run is planned.", "warn", "run"),
        (dag(paused=True), BEHIND, f"Paused. {WAIT} Resume the pipeline to publish them.", "warn", "resume"),
        (dag(paused=True), {"state": "current"}, f"Paused. {DONE}", "warn", "resume"),
        (
            dag(last_run=FAILED),
            BEHIND,
            f"The last run failed. {WAIT} Remove the cause, then run again.",
            "bad",
            "run",
        ),
        (
            dag(),
            {"state": "current", "parked": [{}]},
            "Changes of 1 parked table wait. All other changes up to {at} are in Kafka.",
            "bad",
            None,
        ),
        (
            dag(paused=True),
            {"state": "current", "parked": [{}]},
            "Paused. Changes of 1 parked table wait. All other changes",
            "warn",
            "resume",
        ),
        (
            dag(last_run=FAILED),
            {"state": "current", "parked": [{}, {}]},
            "The last run failed. Changes of 2 parked tables wait. All other changes",
            "bad",
            "run",
        ),
        (dag(), {**BEHIND, "own_changes": None}, "Changes since {at} may wait: 3.1 MB behind.", "", None),
        (dag(paused=True, running=["held"]), {"state": "new"}, "Nothing is published yet. Resume", "warn", "resume"),
        (dag(last_run=FAILED), {"state": "new"}, "Nothing is published: the first run failed.", "bad", "run"),
        (dag(), {"state": "error", "unavailable": "RetryableError"}, "The state is not known", "bad", None),
        (dag(), {"state": "error", "unavailable": None}, "The pipeline cannot run", "bad", None),
        (dag(), {"state": "new"}, "Nothing is published yet. The first run sets the checkpoint.", "", "run"),
        (dag(paused=True), {"state": "new"}, "Nothing is published yet. Resume", "warn", "resume"),
        (dag(known=False), BEHIND, "Airflow has not loaded the pipeline's DAGs", "warn", None),
    ],
)
def test_sentence_says_what_waits_and_what_to_do(
    of: dict[str, Any], position: dict[str, Any], text: str, kind: str, do: str | None
) -> None:
    found = headline(of, position, NOW)
    assert found["text"].startswith(text)
    assert (found["kind"], found["do"]) == (kind, do)
    assert (found["at_ms"] is None) == ("{at}" not in found["text"])


def test_time_is_that_of_the_oldest_waiting_change_or_of_the_reading() -> None:
    assert headline(dag(), {**BEHIND, "read_at_ms": NOW - 4000}, NOW)["at_ms"] == NOW - 64_000
    assert headline(dag(), {"state": "current", "read_at_ms": NOW - 4000}, NOW)["at_ms"] == NOW - 4000
    unknown = headline(dag(), {**BEHIND, "lag_seconds": None, "lag_bytes": None}, NOW)
    assert unknown["text"].startswith("Changes wait. ")


GOOD = f"Changes are published as they come. {DONE}"


@pytest.mark.parametrize(
    ("changes", "position", "text", "kind", "do"),
    [
        ({}, {**BEHIND, "lag_seconds": 2.0}, GOOD, "good", None),
        ({}, {"state": "current"}, GOOD, "good", None),
        ({}, {**BEHIND, "lag_seconds": 12.0}, f"{WAIT} A run is under way.", "", None),
        ({}, {**BEHIND, "lag_seconds": None}, "Changes wait: 3.1 MB behind. A run is under way.", "", None),
        ({"paused": True}, {**BEHIND, "lag_seconds": 2.0}, f"{GOOD} Paused: the run under way ends", "warn", "resume"),
        ({"paused": True, "held": ["one"]}, {**BEHIND, "lag_seconds": 2.0}, f"Paused. {WAIT}", "warn", "resume"),
        (
            {"paused": True, "running": ["one", "two"], "held": ["two"]},
            {**BEHIND, "lag_seconds": 2.0},
            f"{GOOD} Paused: the run under way ends",
            "warn",
            "resume",
        ),
        ({"running": []}, {**BEHIND, "lag_seconds": 2.0}, f"{WAIT} The next run publishes them.", "", None),
        ({}, {"state": "current", "parked": [{}]}, "Changes of 1 parked table wait.", "bad", None),
    ],
)
def test_continuous_run_that_keeps_up_is_not_behind(
    changes: dict[str, Any], position: dict[str, Any], text: str, kind: str, do: str | None
) -> None:
    found = headline(dag(**{"running": ["one"], **changes}), {**position, "read_at_ms": NOW}, NOW, 1.0)
    assert found["text"].startswith(text)
    assert (found["kind"], found["do"]) == (kind, do)
    if kind == "good":
        assert found["at_ms"] == NOW - 1000 * position.get("lag_seconds", 0)
