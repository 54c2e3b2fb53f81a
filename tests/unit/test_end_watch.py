"""A job is asked to end when its DAG gets paused, or when its task is marked or cleared."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.airflow.end_watch import ended_by_airflow


class Answers:
    """Answers of Airflow, the last one for ever; an exception is raised."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers: Iterator[bool | Exception] = iter(answers)
        self._last = False
        self.all_asked = threading.Event()

    def __call__(self) -> bool:
        answer = next(self._answers, None)
        if answer is None:
            self.all_asked.set()
            return self._last
        if isinstance(answer, Exception):
            raise answer
        self._last = answer
        return answer


def is_stopped(is_paused: Answers, stop: Path, *, was_active: bool = False) -> bool:
    with ended_by_airflow(is_paused, lambda: True, stop, was_active=was_active, look_seconds=0.001):
        assert is_paused.all_asked.wait(60)
    return stop.exists()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([False, False], False),
        ([False, True], True),
        ([False, RuntimeError("Airflow is away"), True], True),
        ([True, True], False),
        ([True, False, True], True),
        ([False, True, False], False),
    ],
    ids=["active", "paused", "after an error", "paused before", "paused before and again", "resumed"],
)
def test_a_job_is_asked_to_end_if_its_dag_was_active_before_the_pause(
    answers: list[bool | Exception], expected: bool, tmp_path: Path
) -> None:
    assert is_stopped(Answers(*answers), tmp_path / "stop") is expected


def test_a_job_of_a_worker_is_asked_to_end_if_its_dag_was_paused_while_it_was_queued(tmp_path: Path) -> None:
    assert is_stopped(Answers(True), tmp_path / "stop", was_active=True)


@pytest.mark.parametrize("answers", [[False], [False, True]], ids=["marked", "cleared, and run again"])
@pytest.mark.parametrize("is_paused", [False, True])
def test_a_job_is_asked_to_end_if_airflow_no_longer_runs_its_task(
    is_paused: bool, answers: list[bool], tmp_path: Path
) -> None:
    stop, is_running = tmp_path / "stop", Answers(True, RuntimeError("Airflow is away"), *answers)
    with ended_by_airflow(lambda: is_paused, is_running, stop, was_active=False, look_seconds=0.001):
        assert is_running.all_asked.wait(60)
    assert stop.exists()
