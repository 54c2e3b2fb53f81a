"""Ends a continuous run when its DAG is paused, or its task marked or cleared. Airflow lets the running tasks of a
paused DAG go on, and ends one that was marked or cleared at the next heartbeat, which may be 5 seconds later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it asks Airflow."""


class EndWatch:
    """A context manager that creates the file ``stop`` when the DAG is paused in its block, or its task does not run
    any more for Airflow, and removes it when the DAG is resumed; a job that sees the file ends after its window. If the
    DAG was not ``was_active`` before, it must be active once before a pause counts: `airflow dags test` also runs a
    paused DAG.

    An error of ``is_paused`` or ``is_running`` is logged: the next answers count.
    """

    def __init__(
        self,
        is_paused: Callable[[], bool],
        is_running: Callable[[], bool],
        stop: Path,
        *,
        was_active: bool,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._is_paused, self._is_running, self._stop, self._look_seconds = is_paused, is_running, stop, look_seconds
        self._was_active = was_active
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="changefeed-end", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        is_asked = False
        while not self._is_over.wait(self._look_seconds):
            try:
                why = self._reason()
            except Exception as error:  # whatever Airflow's client raises while its API server is away
                _log.debug("whether the job should end is not known: %s", error)
                continue
            if bool(why) == is_asked:
                continue
            is_asked = bool(why)
            if why:
                _log.info("%s: the job is asked to end after its window", why)
                self._stop.touch()
            else:
                self._stop.unlink(missing_ok=True)

    def _reason(self) -> str:
        """Why the job should end; '' if it should not."""
        if not self._is_running():
            return "the task was marked or cleared"
        is_paused = self._is_paused()
        self._was_active = self._was_active or not is_paused
        return "the DAG is paused" if is_paused and self._was_active else ""
