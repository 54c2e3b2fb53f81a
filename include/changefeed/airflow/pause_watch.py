"""Ends a continuous run when its DAG is paused. Airflow lets the running tasks of a paused DAG go on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from changefeed.repeated import repeated

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it asks Airflow whether the DAG is paused."""


@contextmanager
def stopped_by_pause(
    is_paused: Callable[[], bool], stop: Path, *, was_active: bool, look_seconds: float = LOOK_SECONDS
) -> Iterator[None]:
    """Create the file ``stop`` when the DAG is paused in the block, and remove it when the DAG is resumed; a job that
    sees the file ends after its window. If the DAG was not ``was_active`` before, it must be active once before a pause
    counts: `airflow dags test` also runs a paused DAG.

    An error of ``is_paused`` is logged: the next answer counts.
    """
    is_asked = False

    def look() -> None:
        nonlocal was_active, is_asked
        try:
            found = is_paused()
        except Exception as error:  # whatever Airflow's client raises while its API server is away
            _log.debug("whether the DAG is paused is not known: %s", error)
            return
        was_active = was_active or not found
        if (found and was_active) == is_asked:
            return
        is_asked = not is_asked
        if is_asked:
            _log.info("the DAG is paused: the job is asked to end after its window")
            stop.touch()
        else:
            stop.unlink(missing_ok=True)

    with repeated(look, look_seconds, "changefeed-pause"):
        yield
