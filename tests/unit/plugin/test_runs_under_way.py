"""How far a run under way is, and how long it may take still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.spark.progress_line import Parts, Progress, log_text, web_page_text
from changefeed_web import history, live_run
from changefeed_web.activity import SealedWindow
from changefeed_web.history import _by_run, _counted_since, _outcome, _seconds_left
from changefeed_web.live_run import JobLog, Stage, current_window, live_progress, read_job_log
from changefeed_web.readings import Staleness


def sealed(number: int, frozen_at_ms: int, sealed_at_ms: int, rows: int = 1) -> SealedWindow:
    place = BinlogCoordinates("binlog.000001", 4)
    return SealedWindow(number, place, place, frozen_at_ms, sealed_at_ms, rows)


@pytest.mark.parametrize(
    ("numbers", "planned", "seconds"),
    [([], [1, 2], None), ([1], None, None), ([1], [1, 2, 3], 20.0), ([1, 2], [1, 2, 3], 10.0), ([1, 2], [1, 2], 0.0)],
)
def test_rest_takes_as_long_for_each_window_as_the_sealed_ones(
    numbers: list[int], planned: list[int] | None, seconds: float | None
) -> None:
    assert _seconds_left([sealed(number, 5000, 5000 + number * 10_000) for number in numbers], planned) == seconds


def logged(what: str, done: int, total: int, messages: int | None = None, parts: Parts | None = None) -> str:
    progress = Progress(done, total, "tasks", messages, "messages", parts)
    return f"INFO changefeed.spark.progress: {log_text(what, progress)}"


def test_stage_of_a_job_is_read_from_its_last_lines() -> None:
    lines = [
        logged("decode", 0, 2),
        logged("publish", 1, 2, 999),
        "sealed window 1: 5 rows in 5 messages, seconds {}",
        logged("scout", 3, 4),
        "INFO other: a value with sealed window 1: 5 rows",
        logged("decode", 0, 12, 0),
        "WARN a line of Spark: 3 of 4 tasks done, and more",
        logged("decode", 3, 12, 60_000),
    ]
    stage = read_job_log(lines).stage
    assert stage is not None
    assert stage.to_json() == {
        "name": "decode",
        "done": 3,
        "total": 12,
        "parts": None,
        "messages": 60_000,
        "messages_per_second": 3000.0,
        "seconds_left": 60.0,
    }


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([], None),
        ([logged("publish", 1, 2, 999), "sealed window 1: 5 rows"], None),
        ([logged("decode", 0, 1), "INFO other: decode: 1 of 2 tasks done"], ("decode", 0, 1, None, None, None, None)),
        ([logged("decode and publish", 0, 1)], ("decode and publish", 0, 1, None, None, None, None)),
    ],
    ids=["no line", "sealed", "of others", "without messages"],
)
def test_stage_without_figures_has_none(lines: list[str], found: tuple[object, ...] | None) -> None:
    stage = read_job_log(lines).stage
    assert (stage and tuple(stage.to_json().values())) == found


@pytest.mark.parametrize(
    ("stage", "parts", "left", "topic_partitions"),
    [
        ("decode", Parts("slices", 40, 10), 30.0, None),
        ("decode", Parts("slices", 40, None), 10.0, None),
        ("publish", Parts("topic-partitions", 40, 10), 30.0, 40),
    ],
)
def test_slices_and_topic_partitions_of_a_stage_are_counted(
    stage: str, parts: Parts, left: float, topic_partitions: int | None
) -> None:
    """The time left is of the finest parts whose number is known."""
    found = read_job_log([logged(stage, 1, 2, 999, parts)]).stage
    assert found is not None
    assert found.topic_partitions == topic_partitions
    shown = found.to_json()
    assert (shown["parts"], shown["seconds_left"]) == (asdict(parts), left)


@pytest.mark.parametrize(
    ("line", "page"),
    [
        (f"INFO changefeed.spark.session: {web_page_text('http://127.0.0.1:4040')}", "http://127.0.0.1:4040"),
        (
            f"INFO changefeed.spark.session: {web_page_text('https://a-b.c:1/proxy/app_1/')}",
            "https://a-b.c:1/proxy/app_1/",
        ),
        (f"INFO other: {web_page_text('http://127.0.0.1:4040')}", None),
        (f"INFO changefeed.spark.session: {web_page_text('javascript:alert(1)')}", None),
        (f"INFO changefeed.spark.session: {web_page_text('http://user@host:1')}", None),
    ],
)
def test_address_of_sparks_page_is_read_from_the_log(line: str, page: str | None) -> None:
    assert read_job_log([line, logged("decode", 0, 2)]).spark_page == page


@pytest.mark.parametrize(
    ("planned", "begun", "publishes", "window"),
    [
        (None, [3], True, None),
        ([4, 5], [], True, None),
        ([4, 5], [3], True, None),
        ([4, 5], [3, 5], True, 5),
        ([4, 5], [3, 5], False, 5),  # it waits for a retry
        ([], [3, 5], True, 3),
        ([], [3, 5], False, None),  # it waits for the older run, whose window it is
        ([], [], True, None),
    ],
)
def test_current_window_is_begun_and_of_the_run(
    planned: list[int] | None, begun: list[int], publishes: bool, window: int | None
) -> None:
    assert current_window(planned, begun, publishes=publishes) == window


@pytest.mark.parametrize(
    ("state", "planned", "logs", "read"),
    [
        ("running", [1], True, ["r"]),
        ("queued", [1], True, []),  # else it would replace what is cached of the running one
        ("running", [], True, []),
        ("running", None, True, []),
        ("running", [1], False, []),
    ],
)
def test_log_is_read_of_a_running_run_with_planned_windows_only(
    monkeypatch: pytest.MonkeyPatch, state: str, planned: list[int] | None, logs: bool, read: list[str]
) -> None:
    asked: list[str] = []

    def job_log(_: object, run_id: str) -> JobLog:
        asked.append(run_id)
        return JobLog(Stage("decode", Progress(1, 2), 10), None)

    monkeypatch.setattr(live_run, "_job_log", job_log)
    monkeypatch.setattr("changefeed_web.position.commit_log", lambda *_: SimpleNamespace(begun={}, progress={}))
    pipeline: Any = None
    found = live_progress(pipeline, {"run_id": "r", "state": state}, planned, Staleness(), logs=logs, publishes=True)
    assert (asked, found["stage"] is not None) == (read, bool(read))


def test_windows_of_continuous_runs_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the windows since the first shown run began are looked up."""
    asked: list[int] = []

    def runs_at(_: str, moments_ms: Sequence[int]) -> list[dict[str, Any] | None]:
        asked.extend(moments_ms)
        return [{"run_id": "r"} for _ in moments_ms]

    monkeypatch.setattr(history, "runs_at", runs_at)
    windows = [sealed(number, 1000 * number, 1000 * number + 500) for number in range(2000, 0, -1)]
    runs = [{"run_id": "next", "start": None}, {"run_id": "r", "start": "1970-01-01T00:10:00+00:00"}]
    assert len(_by_run("dag", runs, windows)["r"]) == 1401
    assert min(asked) == 600_000
    assert _by_run("dag", [], windows) == {}


@pytest.mark.parametrize(
    ("said", "rows", "outcome"),
    [
        ("nothing new", [], "nothing new"),
        ("nothing new", [0], "nothing new"),
        ("nothing new", [0, 3], "published"),
        ("failed in task ingest", [3], "failed in task ingest"),
    ],
)
def test_run_whose_windows_have_rows_has_published_them(said: str, rows: list[int], outcome: str) -> None:
    """A continuous run returns those without asset events: another task may have sent them, or they were unreadable."""
    assert _outcome(said, [sealed(number, 0, 0, count) for number, count in enumerate(rows)]) == outcome


@pytest.mark.parametrize(
    ("start", "planned", "is_merged", "since_ms"),
    [
        ("1970-01-01T00:10:00+00:00", [], True, None),
        ("1970-01-01T00:09:59+00:00", [], True, 600_000),
        ("1970-01-01T00:09:59+00:00", [], False, None),
        ("1970-01-01T00:09:59+00:00", [7, 8], True, None),
        ("1970-01-01T00:09:59+00:00", [6, 7], True, 600_000),
        ("1970-01-01T00:09:59+00:00", None, True, None),
        (None, [], True, None),
    ],
    ids=["newer", "older", "nothing merged", "planned", "planned and merged", "froze none", "not started"],
)
def test_rows_of_a_run_count_since_the_oldest_window_that_is_not_merged(
    start: str | None, planned: list[int] | None, is_merged: bool, since_ms: int | None
) -> None:
    windows = [sealed(number, 600_000 + 1000 * (number - 7), 605_000) for number in (9, 8, 7)]
    assert _counted_since({"start": start}, planned, windows[-1] if is_merged else None) == since_ms
