"""Makes schema histories: from the server's tables at its head or from a known history, by reading the binlog."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.search.finder import Binlogs, ResumePoint
from changefeed.ddl.backwards import ReadStatement, derived_timeline
from changefeed.ddl.ddl_statement import Kind
from changefeed.ddl.history import SchemaHistory, read_logged
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.seen_rows import RowsByTable, SeenRows
from changefeed.ddl.session import Server
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import SchemaTimeline
from changefeed.errors import BinlogGoneError, SchemaError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.file_identity import FileIdentity
from changefeed.model.statement import Statement
from changefeed.model.window import BinlogFile, Slice, slices_between
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.archive.completeness import check_complete
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity_once
from changefeed.source.mysql.server_schemas import collation_names, current_schemas, wait_for_logged_ddl
from changefeed.source.mysql.session import Session, server_of

if TYPE_CHECKING:  # the import loads the kernels, and most runs scan nothing
    from changefeed.binlog.search.schema_scan import SchemaScan, TableRows


_log = logging.getLogger(__name__)
_MOST_THREADS = 8
_REPORT_SECONDS = 10.0


def scan_range(binlogs: Binlogs, start: BinlogCoordinates, end: BinlogCoordinates) -> SchemaScan:
    """The DDL and the row counts of ``[start, end)``.

    Each file has a connection and a thread of its own, and progress is logged.

    Raises BinlogGoneError, which names the file, if a file of the range is missing or not complete, and the errors of
    reading.
    """
    from changefeed.binlog.search.schema_scan import SchemaScan, scan_schemas

    def scan(window_slice: Slice) -> SchemaScan:
        return scan_schemas(binlogs.chunks(window_slice.file, window_slice.start, window_slice.end), window_slice)

    def gone(number: int, have: str) -> str:
        return (
            f"binlog number {number} is needed to follow what tables were from {start} to {end}, and is not there: "
            f"there are {have}. What its statements changed is not known. Give the file back, or say what the "
            "tables were: `changefeed schema PIPELINE --define FILE.sql --at FILE:POSITION`."
        )

    if isinstance(binlogs, JoinedBinlogs):
        binlogs.check_complete(start, end)
    slices = list(slices_between(start, end, binlogs.files(), gone)) if start < end else []
    total, done, reported = sum(window_slice.size_bytes for window_slice in slices), 0, time.monotonic()
    found = SchemaScan()
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
        scans = [threads.submit(scan, window_slice) for window_slice in slices]
        try:
            for window_slice, scanned in zip(slices, scans, strict=True):
                found = found.followed_by(scanned.result())
                done += window_slice.size_bytes
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    _log.info(
                        "scanned %d of %d bytes of the binlog for schemas, up to %s", done, total, window_slice.file
                    )
        finally:
            threads.shutdown(cancel_futures=True)
    return found


class JoinedBinlogs:
    """`Binlogs` of archived files, and of the server for files that the archive does not have."""

    def __init__(self, archived: ArchivedBinlogs, server: ServerBinlogs) -> None:
        self._archived = archived
        both: tuple[Binlogs, ...] = (server, archived)
        files = {file.number: (file, binlogs) for binlogs in both for file in binlogs.files()}
        self._server, self._files = server, {file.name: (file, binlogs) for file, binlogs in files.values()}

    def check_complete(self, start: BinlogCoordinates, end: BinlogCoordinates) -> None:
        """Raise BinlogGoneError for an archived file of ``[start, end)`` that is not proved to be complete."""
        try:
            check_complete(self._archived, self._server, start, end)
        except BinlogGoneError as error:
            raise BinlogGoneError(
                f"what tables were from {start} to {end} is not known: statements of all files between say it. {error}"
            ) from error

    def files(self) -> Sequence[BinlogFile]:
        """All files, by their number."""
        return sorted((file for file, _ in self._files.values()), key=lambda file: file.number)

    def end(self) -> ResumePoint:
        """The server's head."""
        return self._server.end()

    def chunks(self, file: str, start: int, end: int) -> Iterable[bytes]:
        """See `Binlogs.chunks`."""
        return self._files[file][1].chunks(file, start, end)

    def first_events(self, file: str, start: int, end: int) -> Iterable[bytes]:
        """See `Binlogs.first_events`."""
        return self._files[file][1].first_events(file, start, end)

    def previous_gtids(self, file: str) -> str:
        """See `Binlogs.previous_gtids`."""
        return self._files[file][1].previous_gtids(file)


_TRIES = 5


def learn_history(
    session: Session,
    server_uuid: str,
    start: BinlogCoordinates,
    binlogs: Binlogs | None = None,
    known: Mapping[TableName, Entry] | None = None,
) -> SchemaHistory:
    """The history from ``start`` to the head, learned from `information_schema` and read backwards from there.

    The content of `information_schema` is valid at the head if no DDL statement was logged while it was read. The
    binlog is searched for such statements; if there are any, the tables are read again. A table that no statement after
    ``start`` touched has not changed. Other tables are derived backwards (`ddl.backwards`); if that fails, they are
    UnknownTables.

    ``binlogs`` has the files, if some are not on the server; ``known`` are tables whose schemas at ``start`` are known
    from elsewhere. Raises SchemaError if DDL statements are logged during each attempt, BinlogGoneError if a file of
    the range is missing.
    """
    collations, server = collation_names(session), server_of(session)
    for _ in range(_TRIES):
        before = source.head(session).coordinates
        wait_for_logged_ddl(session)
        schemas = current_schemas(session)
        head = source.head(session).coordinates
        during = scan_range(ServerBinlogs(session), before, head).statements
        kinds = {read_logged(statement, server, collations, schemas.tables).kind for statement in during}
        if not kinds & {Kind.DDL, Kind.TRUNCATE}:
            break
    else:
        raise SchemaError(
            f"the schemas of {session.connection} changed {_TRIES} times while they were read from information_schema, "
            "so that nothing says to which coordinates they belong. Run again when fewer definitions are executed."
        )
    scan = scan_range(binlogs or ServerBinlogs(session), start, before)
    timeline = _derive(schemas, scan, collations, known)
    history = SchemaHistory(server_uuid, start, before, timeline, collations, file=_file(session, server_uuid, start))
    for name, entry in schemas.tables.items():
        if isinstance(entry, Table) and timeline.latest.tables.get(name) != entry:
            history = history.relearn_table(entry)
    return replace(history, until=start)


def extend_back(history: SchemaHistory, start: BinlogCoordinates, binlogs: Binlogs) -> SchemaHistory:
    """``history`` extended backwards to ``start``; raises BinlogGoneError if a file between is missing."""
    scan = scan_range(binlogs, start, history.since)
    earlier = _derive(history.timeline.initial, scan, history.collations)
    timeline = earlier.continue_with(history.since, history.timeline)
    return replace(history, since=start, timeline=timeline, id="", elsewhere=None)


def extend_forward(history: SchemaHistory, end: BinlogCoordinates, binlogs: Binlogs) -> SchemaHistory:
    """``history`` extended to the later ``end``; raises BinlogGoneError if a file between is missing."""
    for statement in scan_range(binlogs, history.until, end).statements:
        history = history.advance(statement)
    return replace(history.extend_to(end), id="")


def carry_over(schemas: Schemas, session: Session, server_uuid: str, start: BinlogCoordinates) -> SchemaHistory:
    """The history of a new server from ``start`` on, with the old server's ``schemas``, whose DDL the new server has
    executed."""
    tables = {  # without the row counts, which are of the old server
        name: UnknownTable(name, entry.problem) if isinstance(entry, UnknownTable) else entry
        for name, entry in schemas.tables.items()
    }
    initial = replace(schemas, server=server_of(session), tables=tables)
    timeline, file = SchemaTimeline(initial), _file(session, server_uuid, start)
    return SchemaHistory(server_uuid, start, start, timeline, collation_names(session), file=file)


def _file(session: Session, server_uuid: str, start: BinlogCoordinates) -> FileIdentity | None:
    """The file that a history begins in, which identifies the binlog; None if only an archive has it."""
    if start.file not in {file.name for file in source.binlog_files(session)}:
        return None
    return file_identity_once(session, server_uuid, start.file)


def _derive(
    now: Schemas, scan: SchemaScan, collations: Mapping[int, str], known: Mapping[TableName, Entry] | None = None
) -> SchemaTimeline:
    read = [_read(statement, now, collations) for statement in scan.statements]
    return derived_timeline(now, read, RowsByTable(_seen_rows(scan.rows, now.server)), collations, known or {})


def _read(statement: Statement, now: Schemas, collations: Mapping[int, str]) -> ReadStatement:
    at = BinlogCoordinates(statement.file, statement.position)
    return ReadStatement(at, read_logged(statement, now.server, collations, now.tables))


def _seen_rows(rows: Iterable[TableRows], server: Server) -> Iterable[SeenRows]:
    for each in rows:
        name = TableName(server.table_name(each.database), server.table_name(each.table))
        try:
            columns = tuple(each.table_map(is_mariadb=server.is_mariadb).columns)
        except DamagedEvent:
            continue  # decoding reports the error
        yield SeenRows(name, each.first, columns, each.rows)
