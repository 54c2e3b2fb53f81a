"""Ends a continuous run when its DAG is paused. Airflow lets the running tasks of a paused DAG go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it asks Airflow whether the DAG is paused."""


class PauseWatch:
    """A context manager that creates the file ``stop`` when the DAG is paused in its block, and removes it when the DAG
    is resumed; a job that sees the file ends after its window. If the DAG was not ``was_active`` before, it must be
    active once before a pause counts: `airflow dags test` also runs a paused DAG.

    An error of ``is_paused`` is logged: the next answer counts.
    """

    def __init__(
        self, is_paused: Callable[[], bool], stop: Path, *, was_active: bool, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._is_paused, self._stop, self._look_seconds = is_paused, stop, look_seconds
        self._was_active = was_active
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="changefeed-pause", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        was_active, is_asked = self._was_active, False
        while not self._is_over.wait(self._look_seconds):
            try:
                is_paused = self._is_paused()
            except Exception as error:  # whatever Airflow's client raises while its API server is away
                _log.debug("whether the DAG is paused is not known: %s", error)
                continue
            was_active = was_active or not is_paused
            if (is_paused and was_active) == is_asked:
                continue
            is_asked = not is_asked
            if is_asked:
                _log.info("the DAG is paused: the job is asked to end after its window")
                self._stop.touch()
            else:
                self._stop.unlink(missing_ok=True)
