"""Catch-up: a long backlog as several windows of one run, in one Spark session.

`plan` freezes the whole range and cuts it at ends of binlog files, which are commit boundaries by nature and cost no
reading; only a bound that falls inside a file is looked for in it. The job publishes the windows one after another
and seals each; it needs no checkpoint for that, as each window begins where the one before it ended, and it could not
move one: a Spark driver has no access to Airflow's Variables. `commit` then moves the checkpoint through the sealed
windows in order, each compare-and-set. When the job dies in the third window, the first two are sealed and committed,
and a retry goes on with the third.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from changefeed.binlog.search.finder import Finder, Place, bytes_between
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError, SettingsError
from changefeed.manifest import Manifest
from changefeed.mysql.binlogs import ServerBinlogs
from changefeed.runs.commit import commit
from changefeed.runs.plan import Plan
from changefeed.window import Window


@dataclass(frozen=True)
class Bounds:
    """What one run takes at most. ``max_seconds``: no further window is begun after so long; others end on their own.

    ``until`` is a commit boundary that the run does not go past.
    """

    max_bytes: int | None = None
    max_seconds: int | None = None
    until: BinlogCoordinates | None = None


def cut_windows(endpoints: Endpoints, plan: Plan, bounds: Bounds) -> list[Window]:
    """The windows of a run: ``plan``'s, bounded, and cut where it is larger than the pipeline's `window_bytes`.

    Raises SettingsError for an ``until`` that is behind the checkpoint, past the head or no commit boundary.
    """
    whole, pipeline = plan.window, endpoints.pipeline
    if whole.failover is not None:
        return [whole]  # up to the head, or what is published already would stand in later windows too
    if bounds.until is None and plan.lag_bytes <= min(pipeline.window_bytes, bounds.max_bytes or plan.lag_bytes):
        return [whole]
    start, head = Place(whole.start, whole.start_gtids), Place(whole.head, whole.head_gtids)
    with endpoints.session() as session:
        finder = Finder(ServerBinlogs(session))
        if bounds.until is not None:
            head = _until(finder, bounds.until, start, head)
        if bounds.max_bytes is not None:
            head = finder.within(start, head, bounds.max_bytes)
        ends = _packed(finder, start, head, pipeline.window_bytes)
    windows: list[Window] = []
    for number, end in enumerate(ends[: pipeline.windows_per_run], start=whole.number):
        before = windows[-1] if windows else None
        windows.append(
            replace(
                whole,
                number=number,
                plan_seconds=0.0 if before else whole.plan_seconds,
                start=before.head if before else whole.start,
                start_gtids=before.head_gtids if before else whole.start_gtids,
                head=end.coordinates,
                head_gtids=end.gtids,
            )
        )
    return windows


def commit_windows(
    endpoints: Endpoints,
    windows: Sequence[Window],
    expected: Checkpoint,
    store: CheckpointStore,
) -> list[Manifest]:
    """Move the checkpoint through the sealed ones of ``windows``, in order; return their manifests.

    Those that are committed already are passed over. Raises AccountingError when not even the first is sealed,
    StaleCheckpointError when the checkpoint is somewhere else.
    """
    manifests: list[Manifest] = []
    stands = store.load(endpoints.pipeline.name)
    done = 0
    for number, window in enumerate(windows, start=1):
        if stands and stands != expected and (stands.window, stands.coordinates) == (window.number, window.head):
            done, expected = number, stands
    for window in windows[max(0, done - 1) :]:
        try:
            manifests.append(commit(endpoints, Plan(window, expected, 0), store))
        except AccountingError:
            if not manifests:
                raise
            break
        stands = store.load(endpoints.pipeline.name)
        if stands is not None:
            expected = stands
    return manifests


def _until(finder: Finder, until: BinlogCoordinates, start: Place, head: Place) -> Place:
    if until.base != start.coordinates.base or not start.coordinates < until <= head.coordinates:
        raise SettingsError(
            f"until {until} is not in what is left to publish: the checkpoint is at {start}, the head at {head}"
        )
    return head if until == head.coordinates else finder.at(until)


def _packed(finder: Finder, start: Place, head: Place, window_bytes: int) -> list[Place]:
    """Ends of windows: as many whole files each as fit into ``window_bytes``, at least one."""
    files = list(finder.binlogs.files())
    ends: list[Place] = []
    begin = start
    for place in finder.file_ends(start, head):
        if ends and bytes_between(files, begin.coordinates, place.coordinates) <= window_bytes:
            ends[-1] = place
        else:
            begin = ends[-1] if ends else start
            ends.append(place)
    return ends
