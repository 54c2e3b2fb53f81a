"""The source's binlog: identity, files, head, and the start of a first window."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from changefeed.errors import BinlogGoneError, ChangefeedError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION, LAST_DUMP_POSITION, BinlogCoordinates
from changefeed.model.window import BinlogFile
from changefeed.source.mysql.session import Session

_ENCRYPTION_HEADER_BYTES = 512
_HEAD_TRIES = 10
_MARIADB_HEAD = (
    "BEGIN NOT ATOMIC SHOW MASTER STATUS; SELECT @@gtid_binlog_pos, UNIX_TIMESTAMP(); SHOW MASTER STATUS; END"
)
"""One request, so that the time between its statements does not depend on the network."""


@dataclass(frozen=True)
class Head:
    """The end of the binlog, and the GTIDs executed up to it."""

    coordinates: BinlogCoordinates
    gtids: str
    seconds: int = field(default=0, compare=False)
    """On MariaDB the server's Unix time just before the coordinates were read."""


def server_uuid(session: Session) -> str:
    """The unique id of this server: its `server_uuid`. MariaDB has no UUID, so the id is derived from its server_id."""
    if not session.is_mariadb:
        return str(session.row("SELECT @@server_uuid")[0])
    return f"00000000-0000-0000-0000-{int(session.variable('server_id') or 0):012x}"


def session_on(connection: MysqlConnection, expected_uuid: str) -> Session:
    """A session that is verified to be on the server with UUID ``expected_uuid``.

    Behind a virtual address, a proxy or a DNS name, each connection may lead to another server. Raises
    SourceUnavailableError for another server, and the errors of `Session`.
    """
    session = Session(connection)
    try:
        check_server(session, expected_uuid)
    except ChangefeedError:
        session.close()
        raise
    return session


def check_server(session: Session, expected_uuid: str) -> None:
    """Raise SourceUnavailableError unless ``session`` is on the server with UUID ``expected_uuid``."""
    found = server_uuid(session)
    if found != expected_uuid:
        raise SourceUnavailableError(
            f"expected server {expected_uuid} at {session.connection.host}:{session.connection.port}, found server "
            f"{found}: the address, proxy or DNS name leads to another server now. Nothing was read from it. Run "
            f"again: if {expected_uuid} is back there, the run continues; on another server the position is looked up "
            "anew."
        )


def head(session: Session) -> Head:
    """The head of the binlog. It is always a commit boundary: the server moves it after a complete group of commits."""
    if session.is_mariadb:
        return _mariadb_head(session)
    shown = _binlog_status(session)
    return Head(_coordinates(shown), str(shown["Executed_Gtid_Set"]).replace("\n", ""))


def _mariadb_head(session: Session) -> Head:
    """As `head`. MariaDB has coordinates and GTID position in two statements, which belong together if the coordinates
    are the same before and after: the server changes both under one lock.

    Only for a server that logs all the time it computes the position: before MariaDB 11.4 it reads the file for that.
    """
    for _ in range(_HEAD_TRIES):
        before, logged, shown, *_ = session.results(_MARIADB_HEAD)
        if not shown:
            raise _log_is_off(session)
        (gtids, seconds), (file, position, *_) = logged[0], shown[0]
        coordinates = BinlogCoordinates(str(file), int(position))
        if before == shown:
            return Head(coordinates, str(gtids or ""), int(seconds))
    computed = mariadb_position(session, coordinates)
    if computed is None:  # the position was read before the coordinates, and may be older
        return Head(coordinates, str(gtids or ""))
    return Head(coordinates, computed, int(seconds))


def head_coordinates(session: Session) -> BinlogCoordinates:
    """The coordinates of `head`, with one statement that reads no file."""
    return _coordinates(_binlog_status(session))


def _binlog_status(session: Session) -> dict[str, Any]:
    shown = session.named_row(_status_statement(session))
    if not shown:
        raise _log_is_off(session)
    return shown


def _log_is_off(session: Session) -> SourceError:
    return SourceError(f"{session.connection}: the server shows no binlog status: its binary log is off (log_bin)")


def _coordinates(shown: dict[str, Any]) -> BinlogCoordinates:
    return BinlogCoordinates(str(shown["File"]), int(shown["Position"]))


def mariadb_position(session: Session, at: BinlogCoordinates) -> str | None:
    """MariaDB's GTID position at a commit boundary; '' before its first transaction.

    Before MariaDB 11.4 the server reads the file up to ``at``. None if it cannot compute the position: BINLOG_GTID_POS
    supports only positions of four bytes."""
    if at.position > LAST_DUMP_POSITION:
        return None
    return str(session.row("SELECT BINLOG_GTID_POS(%s, %s)", at.file, at.position)[0] or "")


def logs_column_names(session: Session) -> bool:
    """Whether TABLE_MAPs of MySQL have column names (binlog_row_metadata=FULL); MariaDB's setting is ignored."""
    return session.variable("binlog_row_metadata") == "FULL" and not session.is_mariadb


def binlog_files(session: Session) -> list[BinlogFile]:
    """The files of SHOW BINARY LOGS, oldest first.

    With binlog_encryption=ON MySQL's sizes include a header, which positions and dumps do not include.
    https://dev.mysql.com/doc/refman/9.7/en/replication-binlog-encryption.html
    """
    files = []
    for name, size, *encrypted in session.rows("SHOW BINARY LOGS"):
        header = _ENCRYPTION_HEADER_BYTES if encrypted == ["Yes"] else 0
        files.append(BinlogFile(str(name), int(size) - header))
    return files


def start_coordinates(session: Session, start: str, head: Head) -> BinlogCoordinates:
    """The coordinates at which a pipeline without a checkpoint begins.

    ``start`` is earliest, latest, snapshot, or FILE:POSITION. Raises BinlogGoneError for coordinates that the server
    does not have.
    """
    if start in ("latest", "snapshot"):
        return head.coordinates
    files = binlog_files(session)
    if start == "earliest":
        return BinlogCoordinates(files[0].name, FIRST_POSITION)
    coordinates = BinlogCoordinates.parse(start)
    check_present(coordinates, files, "to start")
    return coordinates


def check_present(coordinates: BinlogCoordinates, files: list[BinlogFile], purpose: str) -> None:
    """Raises BinlogGoneError if ``coordinates`` are not inside one of ``files``."""
    sizes = {file.name: file.size_bytes for file in files}
    size = sizes.get(coordinates.file)
    if size is None:
        present = f"{files[0].name} to {files[-1].name}" if files else "no files"
        raise BinlogGoneError(
            f"binlog {coordinates.file!r}, needed {purpose} from {coordinates}, is not on the server, which has "
            f"{present}. Changes between may be lost to this pipeline: publish archived files with a backfill, if "
            "there are any, then seek to earliest; and raise binlog_expire_logs_seconds. Without archived files take "
            "a snapshot after the seek, and `changefeed verify --gone FILE` names the rows that were deleted between."
        )
    if coordinates.position > size:
        raise BinlogGoneError(
            f"binlog {coordinates.file!r}, needed {purpose} from {coordinates}, ends at {size}: the server was reset "
            "or restored to an older point. Later changes have other coordinates: seek to where the pipeline "
            "should resume."
        )


def _status_statement(session: Session) -> str:
    if session.is_mariadb or session.version_number < (8, 2):
        return "SHOW MASTER STATUS"
    return "SHOW BINARY LOG STATUS"


_RDS_HOURS = "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'"
_RDS_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'mysql' AND table_name = 'rds_configuration'"
_RDS_FOLDER = "/rdsdbbin/"
"""The installation folder of Amazon's servers, including Aurora."""


@dataclass(frozen=True)
class BinlogExpiry:
    """When a server purges its binlog files: ``seconds`` after they were written.

    ``seconds`` is None if the server does not purge files by itself, or if this is unknown (``is_known`` is False).
    ``by_hours``: Amazon RDS or Aurora purges files by its setting `binlog retention hours`.
    """

    seconds: float | None
    is_known: bool = True
    by_hours: bool = False


def binlog_expiry(session: Session) -> BinlogExpiry:
    """The expiry of binlog files by the server's settings.

    Amazon RDS and Aurora ignore the server's variables and purge files by a setting of their own. Without it they purge
    files as soon as Amazon's services do not need them.

    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/mysql-stored-proc-configuring.html
    """
    if session.rows(_RDS_TABLE):
        hours = [row[0] for row in session.rows(_RDS_HOURS)]
        if hours and hours[0] is not None:
            return BinlogExpiry(3600 * float(hours[0]), by_hours=True)
        return BinlogExpiry(None, is_known=False, by_hours=True)
    if (session.variable("basedir") or "").startswith(_RDS_FOLDER):  # no privilege to read its setting
        return BinlogExpiry(None, is_known=False, by_hours=True)
    if session.variable("binlog_expire_logs_auto_purge") == "OFF":
        return BinlogExpiry(None)
    seconds = float(session.variable("binlog_expire_logs_seconds") or 0)
    return BinlogExpiry(seconds or 86_400 * float(session.variable("expire_logs_days") or 0) or None)
