"""backfill: the plan of one, from a request to a window and what lies in it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.binlog.search.finder import Binlogs, Finder, Place, bytes_between
from changefeed.binlog.search.table_counts import TableCounts, count_rows
from changefeed.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError, BinlogGoneError, SettingsError
from changefeed.gtid import GtidSet
from changefeed.manifest import Manifest
from changefeed.mysql import source
from changefeed.mysql.binlogs import ServerBinlogs
from changefeed.mysql.preflight import preflight
from changefeed.mysql.session import Session
from changefeed.runs.topics import table_topics
from changefeed.seek import seconds_of
from changefeed.upkeep.backfill_request import BackfillRequest, backfill_pipeline
from changefeed.window import BinlogFile, Window


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
        return "archived files" if self.archive else "the server"

    def to_json(self) -> dict[str, Any]:
        return {
            "window": self.window.to_json(),
            "files": [{"name": file.name, "size_bytes": file.size_bytes} for file in self.files],
            "size_bytes": self.size_bytes,
            "topics": self.topics,
            "archive": self.archive,
            "tables": {
                name: {"row_events": one.row_events, "size_bytes": one.size_bytes} for name, one in self.tables.items()
            },
        }


def plan_backfill(endpoints: Endpoints, request: BackfillRequest) -> BackfillPlan:
    """Find the range in the server's files or the archived ones. Nothing is published, no checkpoint is looked at.

    Raises BinlogGoneError for a range that is not there, naming the files that are, and SettingsError for one that
    is empty, for places that are no commit boundaries, and for tables that the pipeline does not capture.
    """
    pipeline = endpoints.pipeline
    narrowed = backfill_pipeline(pipeline, request)
    with endpoints.session() as session:
        preflight(session)
        uuid = source.server_uuid(session)
        topics = table_topics(narrowed, session)
        if request.tables and not topics:
            raise SettingsError(
                f"no table that pipeline {pipeline.name!r} captures matches {', '.join(request.tables)}: it captures "
                f"{', '.join(f'{database}.{table}' for database, table in table_topics(pipeline, session)) or 'none'}"
            )
        with _binlogs(request, session) as binlogs:
            start, head = _range(Finder(binlogs), request)
            files = tuple(
                file
                for file in binlogs.files()
                if start.coordinates.number <= BinlogCoordinates(file.name, 0).number <= head.coordinates.number
            )
            size_bytes = bytes_between(list(binlogs.files()), start.coordinates, head.coordinates)
            if size_bytes <= 0:
                raise SettingsError(f"the range is empty: it goes from {start} to {head}")
            _check_complete(files, start, head)
            tables = _counted(binlogs, files, start, head)
    window = Window(
        pipeline=pipeline.name,
        number=1,
        server_uuid=uuid,
        start=start.coordinates,
        head=head.coordinates,
        start_gtids=start.gtids,
        head_gtids=head.gtids,
        frozen_at_ms=int(time.time() * 1000),
    )
    named = {f"{database}.{table}": topic for (database, table), topic in topics.items()}
    return BackfillPlan(window, files, size_bytes, named, request.archive, tables)


def finished_backfill(endpoints: Endpoints, window: Window, identity: str) -> Manifest:
    """The manifest of a backfill that is complete; raises AccountingError where the commit log has none."""
    values = endpoints.commit_log(identity).read().seals.get(window.number)
    manifest = Manifest.from_json(values) if values else None
    if manifest is None or manifest.window != window:
        raise AccountingError(
            f"backfill {identity!r} ({window.start} to {window.head}) is not sealed in the commit log: not all of it "
            "is known to be in Kafka. Run its task `ingest` again."
        )
    return manifest


@contextmanager
def _binlogs(request: BackfillRequest, session: Session) -> Iterator[Binlogs]:
    if request.archive is not None:
        yield ArchivedBinlogs(request.archive)
    else:
        yield ServerBinlogs(session)


def _range(finder: Finder, request: BackfillRequest) -> tuple[Place, Place]:
    if request.from_file:
        return finder.begin_of(request.from_file), _file_end(finder, request.to_file or request.from_file)
    if request.from_coordinates and request.to_coordinates:
        start = finder.at(BinlogCoordinates.parse(request.from_coordinates))
        return start, finder.at(BinlogCoordinates.parse(request.to_coordinates))
    if request.gtids:
        return finder.around_gtids(GtidSet.parse(request.gtids))
    assert request.from_time is not None
    start = finder.at_time(seconds_of(request.from_time))
    return start, finder.at_time(seconds_of(request.to_time)) if request.to_time else finder.latest()


def _counted(binlogs: Binlogs, files: tuple[BinlogFile, ...], start: Place, head: Place) -> dict[str, TableCounts]:
    counts: dict[str, TableCounts] = {}
    for file in files:
        begin = start.coordinates.position if file.name == start.coordinates.file else FIRST_POSITION
        end = head.coordinates.position if file.name == head.coordinates.file else file.size_bytes
        if begin < end:
            count_rows(binlogs.chunks(file.name, begin, end), counts)
    return dict(sorted(counts.items()))


def _file_end(finder: Finder, file: str) -> Place:
    return finder.end_of(file)


def _check_complete(files: tuple[BinlogFile, ...], start: Place, head: Place) -> None:
    wanted = range(start.coordinates.number, head.coordinates.number + 1)
    there = {BinlogCoordinates(file.name, 0).number for file in files}
    missing = [number for number in wanted if number not in there]
    if missing:
        raise BinlogGoneError(
            f"binlog number {missing[0]} of the range {start} to {head} is not there; there are "
            f"{', '.join(file.name for file in files)}"
        )
