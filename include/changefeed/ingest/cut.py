"""Cut a planned window into the windows of one run, of at most `window_bytes` each.

A backlog is cut at the ends of binlog files. These are always commit boundaries, and no file has to be read to find
them. Only a bound inside a file needs a search in that file. The windows are published and sealed one after another in
one Spark session, and committed in order: if the third fails, two are done, and the next run continues with the third.
"""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.binlog.search.prepared_rows import PreparedRows
from changefeed.errors import SettingsError
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.window import Window, bytes_between
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import Plan
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.unknown_tables import check_plan
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql.binlogs import ServerBinlogs


def cut(
    connections: PipelineConnections,
    plan: Plan,
    bounds: RunBounds,
    *,
    max_rows: int | None = None,
    prepared: PreparedRows | None = None,
) -> PlannedRun:
    """The windows of a run: the unfinished windows as they are, then ``plan``'s new window within ``bounds``, cut if it
    is larger than the pipeline's `window_bytes`.

    With ``max_rows``, which excludes ``bounds``, there is one new window, with at most this number of row changes, or
    one transaction. The caller plans again after it, with the same ``prepared``. After a failover the first window is
    not limited.

    Unfinished windows count against ``bounds``, but are finished even if they exceed them. Raises SchemaError for rows
    of unknown tables (`pipeline.unknown_tables`), SettingsError for an ``until`` that is before the checkpoint, after
    the head or not a commit boundary.
    """
    check_plan(connections.pipeline, plan.history, plan.start)
    new: list[Window] = []
    if not plan.window.is_empty:
        if max_rows is None or plan.window.failover is not None:
            new = _cut_new_windows(connections, plan, bounds)
        else:
            new = _cut_by_rows(connections, plan, max_rows, prepared or PreparedRows())
    return PlannedRun((*plan.unfinished, *new), plan.expected, plan.lag_bytes)


def _cut_new_windows(connections: PipelineConnections, plan: Plan, bounds: RunBounds) -> list[Window]:
    planned, pipeline = plan.window, connections.pipeline
    if planned.failover is not None:
        return [planned]  # later windows would contain changes that were published from the old server
    max_bytes, until = bounds.max_bytes, BinlogCoordinates.parse(bounds.until) if bounds.until else None
    if plan.unfinished:
        if max_bytes is not None:
            max_bytes -= plan.lag_bytes - plan.window_bytes
        if (max_bytes is not None and max_bytes <= 0) or (until is not None and until <= planned.start):
            return []
    if until is None and plan.window_bytes <= min(pipeline.window_bytes, max_bytes or plan.window_bytes):
        return [planned]
    start, head = ResumePoint(planned.start, planned.start_gtids), ResumePoint(planned.head, planned.head_gtids)
    with connections.session_on(planned.server_uuid) as session:
        finder = Finder(ServerBinlogs(session))
        if until is not None:
            head = _find_bound(finder, until, start, head)
        if max_bytes is not None:
            head = finder.within(start, head, max_bytes)
        ends = _pack_files(finder, start, head, pipeline.window_bytes)
    windows: list[Window] = []
    for number, end in enumerate(ends[: pipeline.windows_per_run], start=planned.number):
        before = windows[-1] if windows else None
        windows.append(
            replace(
                planned,
                number=number,
                plan_seconds=0.0 if before else planned.plan_seconds,
                start=before.head if before else planned.start,
                start_gtids=before.head_gtids if before else planned.start_gtids,
                head=end.coordinates,
                head_gtids=end.gtids,
            )
        )
    return windows


def _cut_by_rows(connections: PipelineConnections, plan: Plan, max_rows: int, prepared: PreparedRows) -> list[Window]:
    planned = plan.window
    start, head = ResumePoint(planned.start, planned.start_gtids), ResumePoint(planned.head, planned.head_gtids)
    with connections.session_on(planned.server_uuid) as session:
        finder = Finder(ServerBinlogs(session))
        if plan.window_bytes > connections.pipeline.window_bytes:
            head = _first_pack(finder, start, head, connections.pipeline.window_bytes)
        prepared.begin(planned.server_uuid, start.coordinates)
        end = finder.within_rows(start, head, max_rows, prepared)
        prepared.end(planned.server_uuid, end.coordinates)
    return [replace(planned, head=end.coordinates, head_gtids=end.gtids)]


def _first_pack(finder: Finder, start: ResumePoint, head: ResumePoint, window_bytes: int) -> ResumePoint:
    """The first end of `_pack_files`; reads the begin of one file only."""
    files = list(finder.binlogs.files())
    name = ""
    for file in files:
        end = BinlogCoordinates(file.name, FIRST_POSITION)
        if start.coordinates < end < head.coordinates:
            if name and bytes_between(files, start.coordinates, end) > window_bytes:
                break
            name = file.name
    return finder.begin_of(name) if name else head


def _find_bound(finder: Finder, until: BinlogCoordinates, start: ResumePoint, head: ResumePoint) -> ResumePoint:
    if until.base != start.coordinates.base or not start.coordinates < until <= head.coordinates:
        raise SettingsError(f"expected `until` between the checkpoint at {start} and the head at {head}, found {until}")
    return head if until == head.coordinates else finder.at(until)


def _pack_files(finder: Finder, start: ResumePoint, head: ResumePoint, window_bytes: int) -> list[ResumePoint]:
    """The ends of the windows. Each window has as many complete files as fit into ``window_bytes``, but at least
    one."""
    files = list(finder.binlogs.files())
    ends: list[ResumePoint] = []
    begin = start
    for end in finder.file_ends(start, head):
        if ends and bytes_between(files, begin.coordinates, end.coordinates) <= window_bytes:
            ends[-1] = end
        else:
            begin = ends[-1] if ends else start
            ends.append(end)
    return ends
