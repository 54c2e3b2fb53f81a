"""backfill: from a request to a frozen window and what lies in it, and what is left of it in the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from changefeed.archive.archive import Archive, ArchiveLookup
from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.binlog.search.finder import Binlogs, Finder, ResumePoint, bytes_between
from changefeed.binlog.search.table_counts import TableCounts, count_rows
from changefeed.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError, BinlogGoneError, SettingsError
from changefeed.gtid import GtidSet
from changefeed.manifest import Manifest
from changefeed.mysql import source
from changefeed.mysql.binlogs import ServerBinlogs
from changefeed.mysql.file_identities import file_identity
from changefeed.mysql.preflight import preflight
from changefeed.mysql.session import Session
from changefeed.runs.topics import table_topics
from changefeed.runs.windows import commit_log_state
from changefeed.seek import seconds_of
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_identity, backfill_pipeline
from changefeed.window import BinlogFile, Slice, Window

KEPT_BACKFILLS = 100
"""So many backfills of a pipeline, the latest ones, may be tried again without publishing anything twice."""


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill will publish: its window, its files, and the topics of the tables that are there now."""

    window: Window
    files: tuple[BinlogFile, ...]
    size_bytes: int
    topics: dict[str, str]
    archive: str | None
    tables: dict[str, TableCounts]
    """What lies in the range by "database.table", of all tables, captured or not; without compressed transactions."""

    @property
    def source(self) -> str:
        """Where the files are read, for people."""
        return "archived files" if self.archive else "the server"

    def to_json(self) -> dict[str, Any]:
        """Plain values, as a task and the REST API hand them on."""
        return {
            "window": self.window.to_json(),
            "files": [{"name": file.name, "size_bytes": file.size_bytes} for file in self.files],
            "size_bytes": self.size_bytes,
            "topics": self.topics,
            "archive": self.archive,
            "tables": {
                name: {"row_events": counts.row_events, "size_bytes": counts.size_bytes}
                for name, counts in self.tables.items()
            },
        }


def plan_backfill(
    endpoints: Endpoints, request: BackfillRequest, identity: str | None = None, *, archive_of: ArchiveLookup
) -> BackfillPlan:
    """Find the range in the server's files or the archived ones. Nothing is published, no checkpoint is looked at.

    ``archive_of`` says which archives may be read: before any is, and before the source is asked for anything.

    With an ``identity`` that has begun already, the window is the one that was frozen then: planned again, an open
    range ends where it ended the first time, and nothing is published twice.

    Raises BinlogGoneError for a range that is not there, naming the files that are, and SettingsError for one that
    is empty, for ends that are no commit boundaries, and for tables that the pipeline does not capture.
    """
    archive = archive_of(request.archive) if request.archive else None
    pipeline = endpoints.pipeline
    narrowed = backfill_pipeline(pipeline, request)
    with endpoints.session() as session:
        preflight(session, statements=pipeline.statements)
        uuid = source.server_uuid(session)
        topics = table_topics(narrowed, session)
        if request.tables and not topics:
            raise SettingsError(
                f"no table that pipeline {pipeline.name!r} captures matches {', '.join(request.tables)}: it captures "
                f"{', '.join(f'{database}.{table}' for database, table in table_topics(pipeline, session)) or 'none'}"
            )
        with _binlogs(archive, session) as binlogs:
            frozen = _begun_window(endpoints, identity, uuid) if identity else None
            start, head = _ends(frozen) if frozen else _range(Finder(binlogs), request)
            size_bytes = bytes_between(list(binlogs.files()), start.coordinates, head.coordinates)
            if size_bytes <= 0:
                raise SettingsError(f"the range is empty: it goes from {start} to {head}")
            _check_complete(binlogs, start, head)
            pieces = _pieces(binlogs, start, head)
            files = tuple(file for file, _, _ in pieces)
            tables = _counted(binlogs, pieces)
    window = frozen or Window(
        pipeline=pipeline.name,
        number=1,
        server_uuid=uuid,
        start=start.coordinates,
        head=head.coordinates,
        start_gtids=start.gtids,
        head_gtids=head.gtids,
        frozen_at_ms=int(time.time() * 1000),
        newest=None if request.archive else file_identity(endpoints.mysql, uuid, head.coordinates.file),
    )
    named = {f"{database}.{table}": topic for (database, table), topic in topics.items()}
    return BackfillPlan(window, files, size_bytes, named, request.archive, tables)


def sealed_backfill(endpoints: Endpoints, window: Window, identity: str) -> Manifest | None:
    """The manifest of a backfill that is complete; None while it is not."""
    manifest = commit_log_state(endpoints, identity).seals.get(window.number)
    return manifest if manifest is not None and manifest.window == window else None


def finish_backfill(endpoints: Endpoints, window: Window, identity: str) -> Manifest:
    """The manifest of a backfill that is complete; what nobody needs of it any more is forgotten.

    Its progress goes, a record for each topic-partition that it wrote: every run of a pipeline reads the whole log.
    Its seal stays, so that a retry of any of its tasks finds it done and publishes nothing twice, until
    KEPT_BACKFILLS others were at work after it; then all of its records go. The same holds for backfills that were
    begun and never finished.

    Raises AccountingError where the commit log has no seal of ``window``.
    """
    manifest = sealed_backfill(endpoints, window, identity)
    if manifest is None:
        raise AccountingError(
            f"backfill {identity!r} ({window.start} to {window.head}) is not sealed in the commit log: not all of it "
            "is known to be in Kafka. Publish it again: its task `ingest`, or `changefeed backfill` with its --run-id."
        )
    log = endpoints.commit_log(identity)
    state = log.read()
    log.forget({topic for topic, _ in state.progress}, state)
    ours = backfill_identity(endpoints.pipeline.name, "")
    backfills = [name for name in log.identities() if name.startswith(ours)]
    for old in backfills[:-KEPT_BACKFILLS]:
        endpoints.commit_log(old).forget_everything()
    return manifest


def _begun_window(endpoints: Endpoints, identity: str, uuid: str) -> Window | None:
    """The window that an earlier attempt of ``identity`` began to publish, or has published; None for the first."""
    state = commit_log_state(endpoints, identity)
    begun = [*state.begun.values(), *(manifest.window for manifest in state.seals.values())]
    if not begun:
        return None
    window = begun[-1]
    if window.server_uuid != uuid:
        raise BinlogGoneError(
            f"backfill {identity!r} was begun on server {window.server_uuid}, found server {uuid}: the same "
            "coordinates mean other changes there. Start a new backfill."
        )
    return window


def _ends(window: Window) -> tuple[ResumePoint, ResumePoint]:
    return ResumePoint(window.start, window.start_gtids), ResumePoint(window.head, window.head_gtids)


@contextmanager
def _binlogs(archive: Archive | None, session: Session) -> Iterator[Binlogs]:
    if archive is not None:
        yield ArchivedBinlogs(archive)
    else:
        yield ServerBinlogs(session)


def _range(finder: Finder, request: BackfillRequest) -> tuple[ResumePoint, ResumePoint]:
    if request.from_file:
        return finder.begin_of(request.from_file), finder.end_of(request.to_file or request.from_file)
    if request.from_coordinates and request.to_coordinates:
        start = finder.at(BinlogCoordinates.parse(request.from_coordinates))
        return start, finder.at(BinlogCoordinates.parse(request.to_coordinates))
    if request.gtids:
        return finder.around_gtids(GtidSet.parse(request.gtids))
    assert request.from_time is not None
    start = finder.at_time(seconds_of(request.from_time))
    return start, finder.at_time(seconds_of(request.to_time)) if request.to_time else finder.latest()


def _pieces(binlogs: Binlogs, start: ResumePoint, head: ResumePoint) -> list[tuple[BinlogFile, int, int]]:
    """The files of the range, each with where in it the range begins and ends; a file of which it has nothing is none
    of them, as the one after the last of whole files."""
    pieces = []
    for file in binlogs.files():
        if start.coordinates.number <= file.number <= head.coordinates.number:
            begin = start.coordinates.position if file.name == start.coordinates.file else FIRST_POSITION
            end = head.coordinates.position if file.name == head.coordinates.file else file.size_bytes
            if begin < end:
                pieces.append((file, begin, end))
    return pieces


def _counted(binlogs: Binlogs, pieces: list[tuple[BinlogFile, int, int]]) -> dict[str, TableCounts]:
    counts: dict[str, TableCounts] = {}
    for file, begin, end in pieces:
        count_rows(binlogs.chunks(file.name, begin, end), counts, Slice(0, file.name, begin, end))
    return dict(sorted(counts.items()))


def _check_complete(binlogs: Binlogs, start: ResumePoint, head: ResumePoint) -> None:
    wanted = range(start.coordinates.number, head.coordinates.number + 1)
    there = [file for file in binlogs.files() if file.number in wanted]
    if len(there) < len(wanted):
        numbers = {file.number for file in there}
        missing = next(number for number in wanted if number not in numbers)
        raise BinlogGoneError(
            f"binlog number {missing} of the range {start} to {head} is not there; there are "
            f"{', '.join(file.name for file in there)}"
        )
