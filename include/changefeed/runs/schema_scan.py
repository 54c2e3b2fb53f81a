"""The statements and table maps of a range of the binlog, read file by file at the same time."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from changefeed.binlog.search.finder import Binlogs, ResumePoint
from changefeed.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.errors import BinlogGoneError
from changefeed.window import BinlogFile, Slice

if TYPE_CHECKING:  # it loads the kernels, and most runs scan nothing
    from changefeed.binlog.search.schema_scan import SchemaScan

_log = logging.getLogger(__name__)
_MOST_THREADS = 8
_REPORT_SECONDS = 10.0


def scan_range(binlogs: Binlogs, start: BinlogCoordinates, end: BinlogCoordinates) -> SchemaScan:
    """What lies in ``[start, end)``; each file has a connection and a thread of its own, and progress is logged.

    Raises BinlogGoneError, which names the file, where one of the range is missing, and what reading raises.
    """
    from changefeed.binlog.search.schema_scan import SchemaScan, scan_schemas

    def scan(piece: Slice) -> SchemaScan:
        return scan_schemas(binlogs.chunks(piece.file, piece.start, piece.end), piece)

    pieces = _pieces(binlogs.files(), start, end) if start < end else []
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


def _pieces(files: Sequence[BinlogFile], start: BinlogCoordinates, end: BinlogCoordinates) -> list[Slice]:
    by_number = {file.number: file for file in files}
    pieces: list[Slice] = []
    for number in range(start.number, end.number + 1):
        file = by_number.get(number)
        begin = start.position if number == start.number else FIRST_POSITION
        if file is None and number == end.number and end.position <= FIRST_POSITION:
            continue
        if file is None:
            have = f"{files[0].name} to {files[-1].name}" if files else "none"
            raise BinlogGoneError(
                f"binlog number {number} is needed to follow what tables were from {start} to {end}, and is not there: "
                f"there are {have}. What its statements changed is not known. Give the file back, or say what the "
                "tables were: `changefeed schema PIPELINE --define FILE.sql --at FILE:POSITION`."
            )
        stop = end.position if number == end.number else file.size_bytes
        if begin < stop:
            pieces.append(Slice(len(pieces), file.name, max(begin, FIRST_POSITION), stop))
    return pieces


class JoinedBinlogs:
    """`Binlogs` of archived files, and the server's where the archive has none of that number."""

    def __init__(self, archived: Binlogs, server: Binlogs) -> None:
        files = {file.number: (file, binlogs) for binlogs in (server, archived) for file in binlogs.files()}
        self._server, self._files = server, {file.name: (file, binlogs) for file, binlogs in files.values()}

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
