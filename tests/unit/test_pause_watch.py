"""A job is asked to end when its DAG gets paused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.airflow.pause_watch import stopped_by_pause


class Dag:
    """A DAG whose state is each of ``answers``, the last one for ever; an exception is raised."""

    def __init__(self, *answers: bool | Exception) -> None:
        self._answers: Iterator[bool | Exception] = iter(answers)
        self._last = False
        self.all_asked = threading.Event()

    def is_paused(self) -> bool:
        answer = next(self._answers, None)
        if answer is None:
            self.all_asked.set()
            return self._last
        if isinstance(answer, Exception):
            raise answer
        self._last = answer
        return answer


def is_stopped(dag: Dag, stop: Path, *, was_active: bool = False) -> bool:
    with stopped_by_pause(dag.is_paused, stop, was_active=was_active, look_seconds=0.001):
        assert dag.all_asked.wait(60)
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
    assert is_stopped(Dag(*answers), tmp_path / "stop") is expected


def test_a_job_of_a_worker_is_asked_to_end_if_its_dag_was_paused_while_it_was_queued(tmp_path: Path) -> None:
    assert is_stopped(Dag(True), tmp_path / "stop", was_active=True)
