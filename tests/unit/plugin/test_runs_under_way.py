"""How far a run under way is, and how long it may take still."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.spark.progress_line import Progress, log_text
from changefeed_web.history import _seconds_left
from changefeed_web.live_run import current_window, last_stage


def sealed(number: int, frozen_at_ms: int, sealed_at_ms: int) -> dict[str, Any]:
    return {"window": {"number": number, "frozen_at_ms": frozen_at_ms}, "sealed_at_ms": sealed_at_ms}


@pytest.mark.parametrize(
    ("numbers", "planned", "seconds"),
    [([], [1, 2], None), ([1], None, None), ([1], [1, 2, 3], 20.0), ([1, 2], [1, 2, 3], 10.0), ([1, 2], [1, 2], 0.0)],
)
def test_rest_takes_as_long_for_each_window_as_the_sealed_ones(
    numbers: list[int], planned: list[int] | None, seconds: float | None
) -> None:
    assert _seconds_left([sealed(number, 5000, 5000 + number * 10_000) for number in numbers], planned) == seconds


def logged(what: str, done: int, total: int, messages: int | None = None) -> str:
    return f"INFO changefeed.spark.progress: {log_text(what, Progress(done, total, 'tasks', messages, 'messages'))}"


def test_stage_of_a_job_is_read_from_its_last_lines() -> None:
    lines = [
        logged("decode", 0, 2),
        logged("publish", 1, 2, 999),
        "sealed window 1: 5 rows in 5 messages, seconds {}",
        logged("scout", 3, 4),
        logged("decode", 0, 12, 0),
        "WARN a line of Spark: 3 of 4 tasks done, and more",
        logged("decode", 3, 12, 60_000),
    ]
    stage = last_stage(lines)
    assert stage is not None
    assert stage.to_json() == {
        "name": "decode",
        "done": 3,
        "total": 12,
        "messages": 60_000,
        "messages_per_second": 3000.0,
        "seconds_left": 60.0,
    }


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], None),
        ([logged("publish", 1, 2, 999), "sealed window 1: 5 rows"], None),
        ([logged("decode and publish", 0, 1)], ("decode and publish", 0, 1, None, None, None)),
    ],
    ids=["no line", "sealed", "without messages"],
)
def test_stage_without_figures_has_none(lines: list[str], found: tuple[object, ...] | None) -> None:
    stage = last_stage(lines)
    assert (stage and tuple(stage.to_json().values())) == found


@pytest.mark.parametrize(
    ("planned", "begun", "window"),
    [
        (None, [3], None),
        ([4, 5], [], None),
        ([4, 5], [3], None),
        ([4, 5], [3, 5], 5),
        ([], [3, 5], 3),
        ([], [], None),
    ],
)
def test_current_window_is_begun_and_of_the_run(
    planned: list[int] | None, begun: list[int], window: int | None
) -> None:
    assert current_window(planned, begun) == window
