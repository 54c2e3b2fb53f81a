"""Ends a continuous run when its DAG is paused. Airflow lets the running tasks of a paused DAG go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""How often it asks Airflow whether the DAG is paused."""


class PauseWatch:
    """A context manager that creates the file ``stop`` when the DAG gets paused in its block, and removes it when the
    DAG is resumed; a job that sees the file ends after its window. A DAG that is paused from the start, as it may be in
    `airflow dags test`, does not count.

    An error of ``is_paused`` is logged: the next answer counts.
    """

    def __init__(self, is_paused: Callable[[], bool], stop: Path, look_seconds: float = LOOK_SECONDS) -> None:
        self._is_paused, self._stop, self._look_seconds = is_paused, stop, look_seconds
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
        was_active = is_asked = False
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
                _log.info("the DAG was paused: the job ends after its window")
                self._stop.touch()
            else:
                self._stop.unlink(missing_ok=True)
