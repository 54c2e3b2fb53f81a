"""backfill: plans a frozen window from a request, and cleans up the commit log after the window is published."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from changefeed.binlog.search.finder import Binlogs, Finder, ResumePoint
from changefeed.binlog.search.schema_scan import TableCounts, count_rows
from changefeed.errors import AccountingError, BinlogGoneError, SettingsError
from changefeed.kafka.fencing import fence
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.iso_time import seconds_of
from changefeed.model.manifest import Manifest
from changefeed.model.run_identity import backfill_identity
from changefeed.model.window import BinlogFile, Slice, Window, bytes_between, slices_between
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.old_identities import forget_older
from changefeed.pipeline.open_windows import sealed_manifest
from changefeed.pipeline.parking import check_none_parked
from changefeed.pipeline.topics import table_topics
from changefeed.pipeline.windows import commit_log_state, last_stable_state
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import Archive, ArchiveLookup
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.archive.completeness import check_complete
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity
from changefeed.source.mysql.preflight import preflight
from changefeed.source.mysql.session import Session

KEPT_BACKFILLS = 100
"""The number of a pipeline's latest backfills that can be retried without publishing anything twice."""


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill will publish: its window, its files, and the topics of the current tables."""

    window: Window
    files: tuple[BinlogFile, ...]
    size_bytes: int
    topics: dict[str, str]
    archive: str | None
    tables: dict[str, TableCounts]
    """By "database.table", the changes in the range. They include changes of tables that the pipeline does not capture,
    and exclude compressed transactions."""

    @property
    def source(self) -> str:
        """Where the backfill reads the files, as a text for people."""
        return "archived files" if self.archive else "the server"

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values, for XComs and the REST API."""
        return {
            "window": self.window.to_json(),
            "files": [{"name": file.name, "size_bytes": file.size_bytes} for file in self.files],
            "size_bytes": self.size_bytes,
            "topics": self.topics,
            "archive": self.archive,
            "tables": {
                name: {"rows": counts.rows, "size_bytes": counts.size_bytes} for name, counts in self.tables.items()
            },
        }


def plan_backfill(
    connections: PipelineConnections,
    request: BackfillRequest,
    identity: str | None = None,
    *,
    archive_of: ArchiveLookup,
) -> BackfillPlan:
    """Return the plan of a backfill: find the range of ``request`` in the server's binlog files or in archived files.

    Publishes nothing, and does not read the checkpoint.

    ``archive_of`` checks whether the archive may be read. It is called before the archive and the source are read.

    If an earlier attempt of ``identity`` began to publish, the plan has that attempt's frozen window. So an open range
    ends where it ended the first time, and nothing is published twice.

    Raises:
    - BinlogGoneError if the range does not exist (it names the existing files), or if `check_complete` cannot prove
      that an archived file is complete.
    - SettingsError if the range is empty, if an end is not a commit boundary, if the pipeline does not capture a
      requested table, or if a table is parked whose live topic the backfill writes to.
    """
    archive = archive_of(request.archive) if request.archive else None
    pipeline = connections.pipeline
    narrowed = backfill_pipeline(pipeline, request)
    with connections.session() as session:
        preflight(session, statements=pipeline.statements)
        uuid = source.server_uuid(session)
        topics = table_topics(narrowed, session)
        if request.tables and not topics:
            raise SettingsError(
                f"no table that pipeline {pipeline.name!r} captures matches {', '.join(request.tables)}: it captures "
                f"{', '.join(f'{database}.{table}' for database, table in table_topics(pipeline, session)) or 'none'}"
            )
        if not request.suffix:  # rows that are missing would follow the rows of the backfill, and be older
            named = {f"{database}.{table}" for database, table in topics}
            check_none_parked(pipeline.name, last_stable_state(connections), "backfill to the live topics", named)
        with _binlogs(archive, session) as binlogs:
            frozen = begun_window(connections, identity, uuid) if identity else None
            start, head = _ends(frozen) if frozen else _range(Finder(binlogs), request)
            size_bytes = bytes_between(list(binlogs.files()), start.coordinates, head.coordinates)
            if size_bytes <= 0:
                raise SettingsError(f"the range is empty: it goes from {start} to {head}")
            if isinstance(binlogs, ArchivedBinlogs):
                to_end = not (request.to_coordinates or request.gtids)
                check_complete(binlogs, ServerBinlogs(session), start.coordinates, head.coordinates, to_end=to_end)
            slices = _slices(binlogs, start, head)
            read = {each.file for each in slices}
            files = tuple(file for file in binlogs.files() if file.name in read)
            tables = _count_changes(binlogs, slices)
    window = frozen or Window(
        pipeline=pipeline.name,
        number=1,
        server_uuid=uuid,
        start=start.coordinates,
        head=head.coordinates,
        start_gtids=start.gtids,
        head_gtids=head.gtids,
        frozen_at_ms=int(time.time() * 1000),
        newest=None if request.archive else file_identity(connections.mysql, uuid, head.coordinates.file),
    )
    topic_of = {f"{database}.{table}": topic for (database, table), topic in topics.items()}
    return BackfillPlan(window, files, size_bytes, topic_of, request.archive, tables)


def sealed_backfill(connections: PipelineConnections, window: Window, identity: str) -> Manifest | None:
    """The manifest of a complete backfill; None if it is not complete."""
    return sealed_manifest(window, commit_log_state(connections, identity))


def finish_backfill(connections: PipelineConnections, window: Window, identity: str) -> Manifest:
    """Remove the progress of a complete backfill from the commit log, and return the backfill's manifest.

    Every run reads the complete commit log, so it must stay small.

    The seal stays, so that a retry of a task publishes nothing twice. After KEPT_BACKFILLS later backfills, all records
    of a backfill are removed, even if it was never finished.

    Raises AccountingError if the commit log has no seal of ``window``.
    """
    manifest = sealed_backfill(connections, window, identity)
    if manifest is None:
        raise AccountingError(
            f"backfill {identity!r} ({window.start} to {window.head}) is not sealed in the commit log, so records may "
            "be missing in Kafka. Publish it again: its task `ingest`, or `changefeed backfill` with its --run-id."
        )
    with connections.lease(identity, brief=True) as lease:
        fence(lease)  # a late copy of a task must not publish after its progress is removed
        state = lease.log().read()
        lease.log().forget({topic for topic, _ in state.progress}, state)
    forget_older(connections, backfill_identity(connections.pipeline.name, ""), KEPT_BACKFILLS)
    return manifest


def begun_window(connections: PipelineConnections, identity: str, uuid: str) -> Window | None:
    """The window that an earlier attempt of ``identity`` began to publish; None for the first attempt."""
    state = commit_log_state(connections, identity)
    begun = [*state.begun.values(), *(manifest.window for manifest in state.seals.values())]
    if not begun:
        return None
    window = begun[-1]
    if window.server_uuid != uuid:
        raise BinlogGoneError(
            f"expected server {window.server_uuid}, on which backfill {identity!r} began, found server {uuid}: the "
            "same coordinates mean other changes there. Start a new backfill."
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


def _slices(binlogs: Binlogs, start: ResumePoint, head: ResumePoint) -> list[Slice]:
    def missing_file_message(number: int, have: str) -> str:
        return f"binlog number {number} of the range {start} to {head} is not there; there are {have}"

    return list(slices_between(start.coordinates, head.coordinates, binlogs.files(), missing_file_message))


def _count_changes(binlogs: Binlogs, slices: Iterable[Slice]) -> dict[str, TableCounts]:
    counts: dict[str, TableCounts] = {}
    for each in slices:
        count_rows(binlogs.chunks(each.file, each.start, each.end), counts, each)
    return dict(sorted(counts.items()))
