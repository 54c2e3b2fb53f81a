"""cut: a planned window -> the windows of one run, of at most `window_bytes` each.

A backlog is cut at ends of binlog files, which are commit boundaries by nature and cost no reading; only a bound that
falls inside a file is looked for in it. The windows are published and sealed one after another in one Spark session,
and committed in order: when the third one fails, two are done, and the next run goes on with the third.
"""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.search.finder import Finder, ResumePoint, bytes_between
from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import Plan
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.unknown_tables import check_tables_known
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql.binlogs import ServerBinlogs


def cut(connections: PipelineConnections, plan: Plan, bounds: RunBounds) -> PlannedRun:
    """The windows of a run: the unfinished ones as they are, then ``plan``'s new one, bounded, and cut where it is
    larger than the pipeline's `window_bytes`.

    What was begun counts against ``bounds``, and is finished even where they are narrower.
    Raises SchemaError for rows of tables that are not known (`pipeline.unknown_tables`), and SettingsError for an
    ``until`` that is behind the checkpoint, past the head or no commit boundary.
    """
    check_tables_known(connections.pipeline, plan.history, plan.start)
    new = [] if plan.window.is_empty else _windows(connections, plan, bounds)
    return PlannedRun((*plan.unfinished, *new), plan.expected, plan.lag_bytes)


def _windows(connections: PipelineConnections, plan: Plan, bounds: RunBounds) -> list[Window]:
    whole, pipeline = plan.window, connections.pipeline
    if whole.failover is not None:
        return [whole]  # up to the head, or what is published already would stand in later windows too
    max_bytes, until = bounds.max_bytes, BinlogCoordinates.parse(bounds.until) if bounds.until else None
    if plan.unfinished:
        if max_bytes is not None:
            max_bytes -= plan.lag_bytes - plan.window_bytes
        if (max_bytes is not None and max_bytes <= 0) or (until is not None and until <= whole.start):
            return []
    if until is None and plan.window_bytes <= min(pipeline.window_bytes, max_bytes or plan.window_bytes):
        return [whole]
    start, head = ResumePoint(whole.start, whole.start_gtids), ResumePoint(whole.head, whole.head_gtids)
    with connections.session_on(whole.server_uuid) as session:
        finder = Finder(ServerBinlogs(session))
        if until is not None:
            head = _until(finder, until, start, head)
        if max_bytes is not None:
            head = finder.within(start, head, max_bytes)
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


def _until(finder: Finder, until: BinlogCoordinates, start: ResumePoint, head: ResumePoint) -> ResumePoint:
    if until.base != start.coordinates.base or not start.coordinates < until <= head.coordinates:
        raise SettingsError(
            f"until {until} is not in what is left to publish: the checkpoint is at {start}, the head at {head}"
        )
    return head if until == head.coordinates else finder.at(until)


def _packed(finder: Finder, start: ResumePoint, head: ResumePoint, window_bytes: int) -> list[ResumePoint]:
    """Ends of windows: as many whole files each as fit into ``window_bytes``, at least one."""
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
