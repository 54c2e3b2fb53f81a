"""Lists the binlog files of a server, for the choice of a range or of a position."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from changefeed.errors import ChangefeedError
from changefeed.model.window import BinlogFile
from changefeed.source.mysql.binlogs import file_identity
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import binlog_files, server_uuid

MOST = 500
"""The most files that are listed: the newest ones."""
_TIMED = 30
"""The number of the newest files whose time is read. Each needs a connection of its own."""
_AT_ONCE = 4


@dataclass(frozen=True)
class SourceBinlogs:
    """The newest binlog files of a server, the newest first; ``more`` says that it has older ones.

    ``begun_seconds`` are the Unix times at which files begin; files whose time was not read are missing.
    """

    server_uuid: str
    files: tuple[BinlogFile, ...]
    begun_seconds: Mapping[BinlogFile, int]
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

    Raises the errors of `Session`. Files whose time cannot be read have none.
    """
    uuid = server_uuid(session)
    files = tuple(reversed(binlog_files(session)))
    before = known.begun_seconds if known is not None and known.server_uuid == uuid else {}
    begun = {file: before[file] for file in files[:most] if file in before}
    unread = [file for file in files[: min(most, _TIMED)] if file not in begun]

    def read(file: BinlogFile) -> int | None:
        with suppress(ChangefeedError):  # it was purged, or the user may not read it
            return file_identity(session.connection, uuid, file.name).begun_seconds
        return None

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = dict(zip(unread, threads.map(read, unread), strict=True))
    begun |= {file: seconds for file, seconds in found.items() if seconds}
    return SourceBinlogs(uuid, files[:most], begun, len(files) > most)
