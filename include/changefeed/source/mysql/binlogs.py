"""The binlog files of a server: their identities, and access for searches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from changefeed.binlog.events.framing import HEADER
from changefeed.binlog.search.finder import Finder, ResumePoint
from changefeed.errors import BinlogGoneError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.file_identity import FileIdentity
from changefeed.model.gtid import GtidSet
from changefeed.model.window import BinlogFile, Window
from changefeed.source.mysql import source
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Row, Session
from changefeed.source.mysql.source import session_on

LARGEST_EVENT = 4 << 20
_AT_ONCE = 8
"""The number of parallel connections. A single connection mostly waits for the network."""


def file_identity(connection: MysqlConnection, server_uuid: str, file: str) -> FileIdentity:
    """The identity of ``file`` on the server ``server_uuid``, read over a new connection that is verified to be on it.

    Raises the errors of `session_on` and `DumpStream`.
    """
    dump = DumpStream(session_on(connection, server_uuid), file=file, start=FIRST_POSITION, end=1 << 62)
    seconds, _, server_id, _, _, _ = HEADER.unpack_from(dump.first_event())
    return FileIdentity(file, seconds, server_id)


def file_identity_once(session: Session, server_uuid: str, file: str) -> FileIdentity:
    """As `file_identity`, read once for each ``session``."""
    key = (server_uuid, file)
    if key not in session.file_identities:
        session.file_identities[key] = file_identity(session.connection, server_uuid, file)
    return session.file_identities[key]


def window_files(
    connection: MysqlConnection,
    window: Window,
    files: Iterable[str],
    known: Iterable[FileIdentity] = (),
) -> dict[str, FileIdentity]:
    """The identities of ``files``, the files of ``window``, by name; those that are ``known`` are not read again.

    Each reader of a file verifies the file's identity.

    Raises BinlogGoneError if the server's binlog is not the one that the window was frozen in.
    """
    newest, uuid = window.newest, window.server_uuid
    names = sorted({*files, newest.name} if newest else set(files))
    identities = {each.name: each for each in known if each.name in names}
    if unknown := [name for name in names if name not in identities]:
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            read = threads.map(lambda name: file_identity(connection, uuid, name), unknown)
            identities.update(zip(unknown, read, strict=True))
    if newest is not None:
        newest.check(identities[newest.name])
    return identities


_GTID_EVENTS = {"Previous_gtids", "Gtid_list"}


class ServerBinlogs:
    """The `Binlogs` of the server of ``session``. Files and end are read only once, so that all results are consistent.

    A caller that has read the ``head``, and the ``files`` after it, gives them; ``known`` is an earlier head of
    MariaDB in a file that is still the same. Its dumps do not end the dumps of other readers. Raises BinlogGoneError
    if the server has no files, and the errors of `Session` and `DumpStream`.
    """

    def __init__(
        self,
        session: Session,
        head: source.Head | None = None,
        files: Sequence[BinlogFile] | None = None,
        known: source.Head | None = None,
    ) -> None:
        self._session = session
        self._head, self._listed, self._known = head, files, known
        self._previous: dict[str, str] = {}

    def files(self) -> Sequence[BinlogFile]:
        """The files up to `end`, oldest first."""
        return self._files

    def end(self) -> ResumePoint:
        """The head that the server had at the first call."""
        return self._end

    def chunks(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the file's FORMAT_DESCRIPTION, then its bytes in ``[start, end)``, over a new connection."""
        own = source.session_on(self._session.connection, self._uuid)  # the stream closes it at its end
        yield from DumpStream(own, file=file, start=start, end=end)

    def first_events(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """As `chunks`, event by event and without kernels."""
        own = source.session_on(self._session.connection, self._uuid)
        yield from DumpStream(own, file=file, start=start, end=end).events()

    def small_events(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """As `first_events`, but it ends before an event of more than LARGEST_EVENT bytes."""
        own = source.session_on(self._session.connection, self._uuid)
        yield from DumpStream(own, file=file, start=start, end=end).events(LARGEST_EVENT)

    def previous_gtids(self, file: str) -> str:
        """The GTIDs of all transactions before ``file``, with those that the server never logged (`unlogged`)."""
        return str(GtidSet.parse(self.logged_before(file)).union(self.unlogged))

    @cached_property
    def unlogged(self) -> GtidSet:
        """The GTIDs of transactions that the server has executed and that were never in its binlogs.

        They come from the backup of a new server, or from a replica with log_replica_updates=OFF. MySQL has them in
        gtid_purged, but not in PREVIOUS_GTIDS.
        https://dev.mysql.com/doc/refman/9.7/en/replication-options-gtids.html#sysvar_gtid_purged
        """
        if self._session.is_mariadb:
            return GtidSet()
        purged = GtidSet.parse(re.sub(r"\s", "", self._session.variable("gtid_purged") or ""))
        if not purged:
            return purged
        # Without a name the server shows its oldest file of now, after `gtid_purged` was read: the oldest one of
        # `files` may be purged.
        oldest = _previous_gtids(self._session.rows("SHOW BINLOG EVENTS LIMIT 3"))
        return purged.subtract(GtidSet.parse(oldest))

    @cached_property
    def takes_anonymous(self) -> bool:
        """Whether transactions without GTIDs may be logged: on MySQL, unless gtid_mode is ON."""
        return not self._session.is_mariadb and self._session.variable("gtid_mode") != "ON"

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB, whose GTIDs are a position, not a set."""
        return self._session.is_mariadb

    def position_at(self, at: BinlogCoordinates) -> GtidSet:
        """MariaDB's GTID position at a commit boundary.

        Only if the server cannot compute it, the binlog is read up to the boundary."""
        if self._known is not None and self._known.coordinates == at:
            return GtidSet.parse(self._known.gtids)
        position = source.mariadb_position(self._session, at)
        return GtidSet.parse(Finder(self).at(at).gtids if position is None else position)

    def logged_before(self, file: str) -> str:
        """The GTIDs in the server's binlogs before ``file``, one of `files`: its PREVIOUS_GTIDS or GTID_LIST event.

        Raises SourceUnavailableError if the server purged it since.
        """
        if file not in self._previous:
            self._previous[file] = self._read_previous(file)
        return self._previous[file]

    def _read_previous(self, file: str) -> str:
        if self._session.is_mariadb:
            return source.mariadb_position(self._session, BinlogCoordinates(file, FIRST_POSITION)) or ""
        try:
            return _previous_gtids(self._session.rows("SHOW BINLOG EVENTS IN %s LIMIT 3", file))
        except SourceError as error:
            if any(each.name == file for each in source.binlog_files(self._session)):
                raise
            raise SourceUnavailableError(
                f"{self._session.connection}: expected binlog {file!r}, which the server listed before; it was purged "
                "meanwhile. Run again: the files are listed anew."
            ) from error

    @cached_property
    def _uuid(self) -> str:
        return source.server_uuid(self._session)

    @cached_property
    def _end(self) -> ResumePoint:
        head = self._head or source.head(self._session)
        return ResumePoint(head.coordinates, head.gtids)

    @cached_property
    def _files(self) -> list[BinlogFile]:
        end = self._end  # first, so that the list has no file that the server begins later
        _ = self._uuid  # read now, over this session: the threads that read the files must not use the session
        listed = self._listed or source.binlog_files(self._session)
        files = [file for file in listed if file.number <= end.coordinates.number]
        if not files:
            raise BinlogGoneError(f"{self._session.connection}: the server has no binlog files")
        return files


def _previous_gtids(events: Iterable[Row]) -> str:
    """The GTIDs before a file, from the rows of SHOW BINLOG EVENTS for its first events."""
    return next((re.sub(r"\s", "", str(row[5])) for row in events if row[2] in _GTID_EVENTS), "")
