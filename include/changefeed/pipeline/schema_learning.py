"""Where a schema history comes from: the server's tables at its head, or a history that is known, read backwards."""

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
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity
from changefeed.source.mysql.server_schemas import collation_names, current_schemas, wait_for_logged_ddl
from changefeed.source.mysql.session import Session, server_of

if TYPE_CHECKING:  # it loads the kernels, and most runs scan nothing
    from changefeed.binlog.search.schema_scan import SchemaScan, TableRows


_log = logging.getLogger(__name__)
_MOST_THREADS = 8
_REPORT_SECONDS = 10.0


def scan_range(binlogs: Binlogs, start: BinlogCoordinates, end: BinlogCoordinates) -> SchemaScan:
    """What lies in ``[start, end)``; each file has a connection and a thread of its own, and progress is logged.

    Raises BinlogGoneError, which names the file, where one of the range is missing or not complete, and what reading
    raises.
    """
    from changefeed.binlog.search.schema_scan import SchemaScan, scan_schemas

    def scan(piece: Slice) -> SchemaScan:
        return scan_schemas(binlogs.chunks(piece.file, piece.start, piece.end), piece)

    def gone(number: int, have: str) -> str:
        return (
            f"binlog number {number} is needed to follow what tables were from {start} to {end}, and is not there: "
            f"there are {have}. What its statements changed is not known. Give the file back, or say what the "
            "tables were: `changefeed schema PIPELINE --define FILE.sql --at FILE:POSITION`."
        )

    if isinstance(binlogs, JoinedBinlogs):
        binlogs.check_complete(start, end)
    pieces = list(slices_between(start, end, binlogs.files(), gone)) if start < end else []
    total, done, reported = sum(piece.size_bytes for piece in pieces), 0, time.monotonic()
    found = SchemaScan()
    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as threads:
        scans = [threads.submit(scan, piece) for piece in pieces]
        try:
            for piece, scanned in zip(pieces, scans, strict=True):
                found = found.followed_by(scanned.result())
                done += piece.size_bytes
                if time.monotonic() - reported > _REPORT_SECONDS:
                    reported = time.monotonic()
                    _log.info("scanned %d of %d bytes of the binlog for schemas, up to %s", done, total, piece.file)
        finally:
            threads.shutdown(cancel_futures=True)
    return found


class JoinedBinlogs:
    """`Binlogs` of archived files, and the server's where the archive has none of that number."""

    def __init__(self, archived: ArchivedBinlogs, server: ServerBinlogs) -> None:
        self._archived = archived
        both: tuple[Binlogs, ...] = (server, archived)
        files = {file.number: (file, binlogs) for binlogs in both for file in binlogs.files()}
        self._server, self._files = server, {file.name: (file, binlogs) for file, binlogs in files.values()}

    def check_complete(self, start: BinlogCoordinates, end: BinlogCoordinates) -> None:
        """Raises BinlogGoneError for an archived file of ``[start, end)`` that is not proved to be complete."""
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
        """As `Binlogs.chunks`."""
        return self._files[file][1].chunks(file, start, end)

    def previous_gtids(self, file: str) -> str:
        """As `Binlogs.previous_gtids`."""
        return self._files[file][1].previous_gtids(file)


_TRIES = 5


def learned(
    session: Session,
    server_uuid: str,
    start: BinlogCoordinates,
    binlogs: Binlogs | None = None,
    known: Mapping[TableName, Entry] | None = None,
) -> SchemaHistory:
    """The history from ``start`` to the head, learned from `information_schema` and read backwards from there.

    What `information_schema` says is right at the head, if no definition was logged while it was read: that is looked
    up in the binlog, and read again otherwise. A table that no statement behind ``start`` touched was always as it is
    now; the others are derived (`ddl.backwards`), and those that cannot be are UnknownTables.

    ``binlogs`` has the files, where that is not the server alone; ``known`` are tables that are known at ``start``
    otherwise. Raises SchemaError when definitions do not cease
    while it reads, BinlogGoneError where a file of the range is missing.
    """
    collations, server = collation_names(session), server_of(session)
    for _ in range(_TRIES):
        before = source.head(session).coordinates
        wait_for_logged_ddl(session)
        schemas = current_schemas(session)
        head = source.head(session).coordinates
        during = scan_range(ServerBinlogs(session), before, head).statements
        kinds = {read_logged(statement, server, collations, schemas.tables).kind for statement in during}
        if not kinds & {Kind.DEFINITION, Kind.TRUNCATE}:
            break
    else:
        raise SchemaError(
            f"the schemas of {session.connection} changed {_TRIES} times while they were read from information_schema, "
            "so that nothing says to which coordinates they belong. Run again when fewer definitions are executed."
        )
    scan = scan_range(binlogs or ServerBinlogs(session), start, before)
    timeline = _derived(schemas, scan, collations, known)
    history = SchemaHistory(server_uuid, start, before, timeline, collations, file=_file(session, server_uuid, start))
    for name, entry in schemas.tables.items():
        if isinstance(entry, Table) and timeline.latest.tables.get(name) != entry:
            history = history.relearned(entry)
    return replace(history, until=start)


def extended_back(history: SchemaHistory, start: BinlogCoordinates, binlogs: Binlogs) -> SchemaHistory:
    """``history`` from the earlier ``start`` on; raises BinlogGoneError where a file between is missing."""
    scan = scan_range(binlogs, start, history.since)
    earlier = _derived(history.timeline.initial, scan, history.collations)
    timeline = earlier.continued(history.since, history.timeline)
    return replace(history, since=start, timeline=timeline, id="", elsewhere=None)


def extended_forward(history: SchemaHistory, end: BinlogCoordinates, binlogs: Binlogs) -> SchemaHistory:
    """``history`` up to the later ``end``; raises BinlogGoneError where a file between is missing."""
    for statement in scan_range(binlogs, history.until, end).statements:
        history = history.advance(statement)
    return replace(history.reached(end), id="")


def carried(schemas: Schemas, session: Session, server_uuid: str, start: BinlogCoordinates) -> SchemaHistory:
    """The history of another server from ``start`` on, where it has executed what gave the old one its ``schemas``."""
    tables = {  # rows that were counted are those of the other server
        name: UnknownTable(name, entry.problem) if isinstance(entry, UnknownTable) else entry
        for name, entry in schemas.tables.items()
    }
    initial = replace(schemas, server=server_of(session), tables=tables)
    timeline, file = SchemaTimeline(initial), _file(session, server_uuid, start)
    return SchemaHistory(server_uuid, start, start, timeline, collation_names(session), file=file)


def _file(session: Session, server_uuid: str, start: BinlogCoordinates) -> FileIdentity | None:
    """The file that a history begins in, which tells binlogs apart; None where an archive alone has it."""
    if start.file not in {file.name for file in source.binlog_files(session)}:
        return None
    return file_identity(session.connection, server_uuid, start.file)


def _derived(
    now: Schemas, scan: SchemaScan, collations: Mapping[int, str], known: Mapping[TableName, Entry] | None = None
) -> SchemaTimeline:
    read = [_read(statement, now, collations) for statement in scan.statements]
    return derived_timeline(now, read, RowsByTable(_seen(scan.rows, now.server)), collations, known or {})


def _read(statement: Statement, now: Schemas, collations: Mapping[int, str]) -> ReadStatement:
    at = BinlogCoordinates(statement.file, statement.position)
    return ReadStatement(at, read_logged(statement, now.server, collations, now.tables))


def _seen(rows: Iterable[TableRows], server: Server) -> Iterable[SeenRows]:
    for each in rows:
        name = TableName(server.table_name(each.database), server.table_name(each.table))
        try:
            columns = tuple(each.table_map(is_mariadb=server.is_mariadb).columns)
        except DamagedEvent:
            continue  # whoever decodes it says what is wrong
        yield SeenRows(name, each.first, columns, each.rows)
