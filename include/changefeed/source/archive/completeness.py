"""Proves that copies of binlog files are complete. Changes that are missing in a copy would be lost without an
error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from changefeed.binlog.events.file_frame import LONGEST_CLOSING, is_closed_by
from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    OPENING,
    DamagedEvent,
    EventType,
    FormatDescription,
    complete_events,
)
from changefeed.binlog.events.gtids import logged_before
from changefeed.binlog.search.finder import Binlogs
from changefeed.errors import BinlogFormatError, BinlogGoneError
from changefeed.formats.columns import ColumnsFormat
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import BinlogFile, Slice
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql.binlogs import ServerBinlogs


def check_complete(
    archive: ArchivedBinlogs,
    server: ServerBinlogs,
    start: BinlogCoordinates,
    end: BinlogCoordinates,
    *,
    to_end: bool = False,
) -> None:
    """Check that each archived file that ``[start, end)`` contains to its end is complete.

    A file is complete if

    - it ends in a ROTATE or STOP event; or
    - the next file's previous GTIDs are exactly those up to this file's end, as after a server crash; or
    - ``server``, whose binlog it is, has the same file with the same size.

    GTIDs prove nothing about transactions without GTIDs. So GTIDs are ignored if one of the two files has such
    transactions, or if the server's gtid_mode allows them. If the range ends at a commit boundary inside its last file,
    this file needs no proof, unless the range goes ``to_end`` of the archive.

    Raises BinlogGoneError for a file for which there is no proof, BinlogFormatError for a file that cannot be read.
    """
    files = {file.number: file for file in archive.files()}
    for number, file in files.items():
        is_last = number == end.number and end.position == file.size_bytes
        if start.number <= number < end.number or is_last:
            ending = _Ending(archive, server, file, files.get(number + 1))
            ending.check(boundary_is_enough=is_last and not to_end)


@dataclass(frozen=True)
class _Preamble:
    """The properties of a file that its first events have."""

    begun_seconds: int
    server_id: int
    has_checksums: bool
    before: GtidSet
    """The GTIDs of all transactions before the file; may be empty."""


@dataclass(frozen=True)
class _Ending:
    """Checks the end of ``file`` in ``archive``; ``following`` is the archived file after it."""

    archive: ArchivedBinlogs
    server: ServerBinlogs
    file: BinlogFile
    following: BinlogFile | None

    def check(self, *, boundary_is_enough: bool) -> None:
        preamble = self._preamble(self.archive, self.file)
        if is_closed_by(self.archive.tail(self.file, LONGEST_CLOSING), checksum=preamble.has_checksums):
            return
        report = self._report(self.file)
        if boundary_is_enough and report.open_since is None:
            return
        by_gtids = self._not_proved_by_gtids(preamble, report)
        if not by_gtids:
            return
        by_server = self._not_proved_by_server(preamble)
        if by_server:
            raise self._incomplete(report, f"{by_gtids}, and {by_server}")

    def _not_proved_by_gtids(self, preamble: _Preamble, report: SliceReport) -> str:
        """Why the GTIDs of the next file do not prove that this file is complete; '' if they do."""
        if self.following is None:
            return "the archive has no file after it"
        name, before = self.following.name, self._preamble(self.archive, self.following).before
        upto = preamble.before.move_past(GtidSet.parse(report.gtids))
        if missing := before.subtract(upto):
            return f"{name!r} says that transactions {missing} were before it, which are in no file"
        if before != upto:
            return f"{name!r} says that {before} were before it, not {upto}"
        if not upto or not _has_gtids(report):
            return f"its transactions have no GTIDs by which {name!r} would prove it"
        if self.server.takes_anonymous or not _has_gtids(self._report(self.following)):
            return f"transactions without GTIDs may follow, of which {name!r} says nothing (gtid_mode is or was not ON)"
        return ""

    def _not_proved_by_server(self, preamble: _Preamble) -> str:
        """Why the server's file does not prove that this file is complete; '' if it does."""
        name = self.file.name
        theirs = next((file for file in self.server.files() if file.name == name), None)
        if theirs is None:
            return "the server no longer has the file"
        found = self._preamble(self.server, theirs)
        if (found.begun_seconds, found.server_id) != (preamble.begun_seconds, preamble.server_id):
            return "the server's file of that name is another one"
        if theirs.size_bytes != self.file.size_bytes:
            return f"the server's file of that name has {theirs.size_bytes:,} bytes"
        return ""

    def _incomplete(self, report: SliceReport, why: str) -> BinlogGoneError:
        name, end = self.file.name, self.file.size_bytes
        inside = f", inside the transaction from {report.open_since} on" if report.open_since is not None else ""
        boundary = report.open_since if report.open_since is not None else end
        return BinlogGoneError(
            f"archived file {name!r} of {end:,} bytes is not known to be complete: expected a ROTATE or STOP event at "
            f"its end, which a server writes when it closes a file, found none{inside}; {why}. Changes that are "
            "missing in a truncated copy would look as if never written; nothing was published. Copy the file again. "
            "If the server crashed while it wrote the file, or still writes it, end the range where its last "
            f"transaction ends (--from FILE:POSITION --to {name}:{boundary}), and begin another with the next file."
        )

    # --- what the files say

    def _report(self, file: BinlogFile) -> SliceReport:
        """The report of a slice with the complete ``file``; no rows are decoded."""
        from changefeed.binlog.decoder import (
            KernelDecoder,
        )  # imported here: it loads the kernels, and few files need it

        name, size = file.name, file.size_bytes
        decoder = KernelDecoder(lambda *_: None, lambda *_: None, ColumnsFormat(), "")
        slice = Slice(0, name, FIRST_POSITION, size)
        try:
            *_, report = decoder.decode(self.archive.chunks(name, FIRST_POSITION, size), slice)
        except BinlogFormatError as error:
            raise BinlogFormatError(
                f"archived file {name!r} of {size:,} bytes is damaged, or was truncated: {error}. Nothing was "
                "published. Copy the file again"
            ) from error
        assert isinstance(report, SliceReport)
        return report

    def _preamble(self, binlogs: Binlogs, file: BinlogFile) -> _Preamble:
        """The preamble, read from the events before the first transaction.

        Raises BinlogFormatError for a file that does not begin as a binlog does."""
        begun, server_id, checksum, before = 0, 0, 0, GtidSet()
        with _add_coordinates(file):
            for event in complete_events(
                binlogs.chunks(file.name, FIRST_POSITION, file.size_bytes), file.size_bytes - FIRST_POSITION
            ):
                seconds, kind, server, size, _, _ = HEADER.unpack_from(event)
                body = bytes(event[HEADER_SIZE : size - checksum])
                if kind == EventType.FORMAT_DESCRIPTION and not begun:
                    begun, server_id = seconds, server
                    checksum = CHECKSUM_SIZE * FormatDescription.parse(bytes(event[HEADER_SIZE:])).checksum
                elif kind in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
                    before = logged_before(kind, body)
                elif kind in OPENING:
                    break
        return _Preamble(begun, server_id, bool(checksum), before)


def _has_gtids(report: SliceReport) -> bool:
    """Whether all transactions of the file have GTIDs. On MariaDB they always have."""
    gtids = GtidSet.parse(report.gtids)
    counted = sum(last - first + 1 for _, intervals in gtids.intervals for first, last in intervals)
    return bool(gtids.mariadb_servers) or counted == report.transactions


@contextmanager
def _add_coordinates(file: BinlogFile) -> Iterator[None]:
    try:
        yield
    except DamagedEvent as damage:
        raise BinlogFormatError(f"binlog {file.name}: {damage}") from damage
