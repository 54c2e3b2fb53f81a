"""What the source says of its binlog: identity, files, head, and where a first window may start."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.errors import BinlogGoneError, SourceError
from changefeed.mysql.session import Session
from changefeed.window import BinlogFile


@dataclass(frozen=True)
class Head:
    """The end of the binlog, and the GTIDs executed up to it, read in one statement."""

    coordinates: BinlogCoordinates
    gtids: str


def server_uuid(session: Session) -> str:
    """What names this server and no other: its `server_uuid`, or on MariaDB, which has no UUID, its server_id."""
    uuid = session.variable("server_uuid")
    if uuid:
        return uuid
    return f"00000000-0000-0000-0000-{int(session.variable('server_id') or 0):012x}"


def head(session: Session) -> Head:
    """The head of the binlog. Always a commit boundary: the server moves it after a whole group of commits."""
    shown = session.named_row(_status_statement(session))
    if not shown:
        raise SourceError(f"{session.connection}: the server shows no binlog status: its binary log is off (log_bin)")
    coordinates = BinlogCoordinates(str(shown["File"]), int(shown["Position"]))
    if session.is_mariadb:
        (gtids,) = session.row("SELECT BINLOG_GTID_POS(%s, %s)", coordinates.file, coordinates.position)
        return Head(coordinates, str(gtids or ""))
    return Head(coordinates, str(shown["Executed_Gtid_Set"]).replace("\n", ""))


def binlog_files(session: Session) -> list[BinlogFile]:
    """SHOW BINARY LOGS, oldest first."""
    return [BinlogFile(str(row[0]), int(row[1])) for row in session.rows("SHOW BINARY LOGS")]


def start_coordinates(session: Session, start: str, head: Head) -> BinlogCoordinates:
    """Where a pipeline without a checkpoint begins: ``start`` is earliest, latest, or FILE:POSITION.

    Raises BinlogGoneError for coordinates that the server does not have.
    """
    if start == "latest":
        return head.coordinates
    files = binlog_files(session)
    if start == "earliest":
        return BinlogCoordinates(files[0].name, FIRST_POSITION)
    coordinates = BinlogCoordinates.parse(start)
    check_present(coordinates, files, "to start")
    return coordinates


def check_present(coordinates: BinlogCoordinates, files: list[BinlogFile], purpose: str) -> None:
    """Raises BinlogGoneError when ``coordinates`` are not inside one of ``files``."""
    sizes = {file.name: file.size_bytes for file in files}
    size = sizes.get(coordinates.file)
    if size is None:
        present = f"{files[0].name} to {files[-1].name}" if files else "no files"
        raise BinlogGoneError(
            f"binlog {coordinates.file!r}, needed {purpose} from {coordinates}, is not on the server, which has "
            f"{present}. Changes between may be lost to this pipeline: publish archived files with a backfill, if "
            "there are any, then seek to earliest; and raise binlog_expire_logs_seconds."
        )
    if coordinates.position > size:
        raise BinlogGoneError(
            f"binlog {coordinates.file!r}, needed {purpose} from {coordinates}, ends at {size}: the server was reset "
            "or restored to an older point. What it wrote since has other coordinates: seek to where the pipeline "
            "should resume."
        )


def _status_statement(session: Session) -> str:
    if session.is_mariadb or session.version_number < (8, 2):
        return "SHOW MASTER STATUS"
    return "SHOW BINARY LOG STATUS"
