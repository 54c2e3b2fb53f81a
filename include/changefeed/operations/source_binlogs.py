"""Lists the binlog files of a server, for the choice of a range or of a position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from changefeed.errors import ChangefeedError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.model.window import BinlogFile
from changefeed.source.mysql.binlogs import file_identity
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import binlog_files, server_uuid

MOST = 500
"""The most files that are listed: the newest ones."""
_TIMED = 30
"""The number of the newest files whose time is read. Each needs a connection of its own."""
_AT_ONCE = 4
_TIMED_SECONDS = 5.0
"""For how long times are read. A dialog waits for the list."""


@dataclass(frozen=True)
class SourceBinlogs:
    """The newest binlog files of a server, the newest first; ``more`` says that it has older ones.

    ``begun_seconds`` are the Unix times at which files begin, None for files whose time cannot be read; files whose
    time was not read are missing.
    """

    server_uuid: str
    files: tuple[BinlogFile, ...]
    begun_seconds: Mapping[BinlogFile, int | None]
    more: bool

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        files = [
            {"name": file.name, "size_bytes": file.size_bytes, "begun_seconds": self.begun_seconds.get(file)}
            for file in self.files
        ]
        return {"files": files, "more": self.more}


def source_binlogs(session: Session, known: SourceBinlogs | None = None, most: int = MOST) -> SourceBinlogs:
    """The newest ``most`` files of the server. Times of files that have not grown are taken from ``known``.

    Raises the errors of `Session`.
    """
    uuid = server_uuid(session)
    files = tuple(reversed(binlog_files(session)))
    before = known.begun_seconds if known is not None and known.server_uuid == uuid else {}
    begun = {file: before[file] for file in files[:most] if file in before}
    unread = [file for file in files[: min(most, _TIMED)] if file not in begun]
    begun |= _begun_seconds(session.connection, uuid, unread)
    return SourceBinlogs(uuid, files[:most], begun, len(files) > most)


def _begun_seconds(connection: MysqlConnection, uuid: str, files: Sequence[BinlogFile]) -> dict[BinlogFile, int | None]:
    """When ``files`` begin, None for those whose time cannot be read.

    Ends after _TIMED_SECONDS, and when the server is unavailable, because each further file would wait for it, too. The
    files that are left are missing, and are read the next time.
    """
    found: dict[BinlogFile, int | None] = {}
    threads = ThreadPoolExecutor(_AT_ONCE)
    reading = {threads.submit(_begun, connection, uuid, file): file for file in files}
    try:
        for done in as_completed(reading, _TIMED_SECONDS):
            found[reading[done]] = done.result()
    except (TimeoutError, SourceUnavailableError):
        pass
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
    return found


def _begun(connection: MysqlConnection, uuid: str, file: BinlogFile) -> int | None:
    try:
        return file_identity(connection, uuid, file.name).begun_seconds or None
    except SourceUnavailableError:
        raise
    except ChangefeedError:  # it was purged, or the user may not read it
        return None
