"""Whether the topics have what the source had: the pipeline's own runs bring it there."""

from __future__ import annotations

import time

from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import SettingsError, SourceUnavailableError
from changefeed.runs.windows import settled_state
from changefeed.verify.comparison import Published
from changefeed.verify.request import WAIT_SECONDS

_LOOK_SECONDS = 2.0


def published_up_to(endpoints: Endpoints) -> BinlogCoordinates | None:
    """Where the last sealed window of the pipeline ends, or a later seek led to: the topics have all changes before it,
    or get none of them any more. None without either."""
    state = settled_state(endpoints)
    last = max(state.seals, default=0)
    at = state.seals[last].window.head if last else None
    if (sought := max(state.seeks, default=0)) > last:
        to = BinlogCoordinates.parse(state.seeks[sought].to)
        return to if at is None or at.base != to.base else max(at, to)
    return at


def check_has_run(endpoints: Endpoints) -> None:
    """Raises SettingsError where the pipeline has published nothing yet: there is nothing to compare."""
    if published_up_to(endpoints) is None:
        name = endpoints.pipeline.name
        raise SettingsError(
            f"pipeline {name!r} has sealed no window yet, so that its topics have nothing to compare: run it first "
            f"(`changefeed run {name}`, or its DAG), or have `changefeed verify {name} --run` do so"
        )


def wait_for_runs(endpoints: Endpoints, seconds: float = WAIT_SECONDS) -> Published:
    """Waits until a run of the pipeline has sealed a window that ends behind the coordinates.

    It raises SourceUnavailableError after ``seconds``: the pipeline's runs are not its own to start.
    """

    def wait(until: BinlogCoordinates) -> None:
        deadline = time.monotonic() + seconds
        while True:
            at = published_up_to(endpoints)
            if at is not None and at.base == until.base and at >= until:
                return
            if time.monotonic() > deadline:
                name, so_far = endpoints.pipeline.name, f"up to {at}" if at else "nothing"
                raise SourceUnavailableError(
                    f"rows were read of the source up to {until}, and pipeline {name!r} has published {so_far}: in "
                    f"{seconds:g} seconds no run of it came so far, and before that they cannot be compared. Is its "
                    "ingest DAG paused, or does it fail? Run the pipeline and verify again; "
                    f"`changefeed verify {name} --run` runs it itself."
                )
            time.sleep(_LOOK_SECONDS)

    return wait
