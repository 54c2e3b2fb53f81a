"""Ends a continuous run when its DAG is paused, or its task marked or cleared. Airflow lets the running tasks of a
paused DAG go on, and ends one that was marked or cleared at the next heartbeat, which may be 5 seconds later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from changefeed.repeated import repeated

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it asks Airflow."""


@contextmanager
def ended_by_airflow(
    is_paused: Callable[[], bool],
    is_running: Callable[[], bool],
    stop: Path,
    *,
    was_active: bool,
    look_seconds: float = LOOK_SECONDS,
) -> Iterator[None]:
    """Create the file ``stop`` when the DAG is paused in the block, or its task does not run any more for Airflow, and
    remove it when the DAG is resumed, if nothing else ended the task; a job that sees the file ends after its window.
    If the DAG was not ``was_active`` before, it must be active once before a pause counts: `airflow dags test` also
    runs a paused DAG.

    An error of ``is_paused`` or ``is_running`` is logged: the next answers count.
    """
    is_asked = has_ended = False

    def look() -> None:
        nonlocal is_asked
        try:
            why = reason()
        except Exception as error:  # whatever Airflow's client raises while its API server is away
            _log.debug("whether the job should end is not known: %s", error)
            return
        if bool(why) == is_asked:
            return
        is_asked = bool(why)
        if why:
            _log.info("%s: the job is asked to end after its window", why)
            stop.touch()
        else:
            stop.unlink(missing_ok=True)

    def reason() -> str:
        """Why the job should end; '' if it should not."""
        nonlocal was_active, has_ended
        has_ended = not is_running() or has_ended  # later the same task may run again, in another attempt
        if has_ended:
            return "the task was marked or cleared"
        is_now_paused = is_paused()
        was_active = was_active or not is_now_paused
        return "the DAG is paused" if is_now_paused and was_active else ""

    with repeated(look, look_seconds, "changefeed-end"):
        yield
