"""Find commit boundaries in a binlog: by coordinates, GTID set, time or size.

A GTID position of MariaDB has the last transaction of each replication domain, as DOMAIN-SERVER-NUMBER. A number alone
does not identify a transaction. For example, a replica that has not received 0-1-11 is promoted: it continues with
0-2-9, 0-2-10 and so on, and passes number 11 without having 0-1-11. So the search compares server and number, as a
MariaDB source does for a replica that connects with a GTID position
(https://mariadb.com/kb/en/gtid/#gtid_strict_mode).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from changefeed.binlog.events.gtids import GtidRuns
from changefeed.binlog.search.boundaries import boundaries
from changefeed.binlog.search.prepared_rows import PreparedRows
from changefeed.errors import BinlogGoneError, SettingsError
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.iso_time import utc_text
from changefeed.model.window import BinlogFile, Slice


class DomainPositions:
    """Checks that the ``requested`` transactions are in a MariaDB binlog; `see` takes the binlog's GTIDs in order.

    ``begin`` is the GTID position before the first of them.
    """

    def __init__(self, requested: Iterable[str], begin: GtidSet) -> None:
        self._missing: dict[int, set[tuple[int, int]]] = {}
        for gtid in requested:
            domain, server, number = map(int, gtid.split("-"))
            self._missing.setdefault(domain, set()).add((server, number))
        self._last: dict[int, int] = {}
        self._disorder = ""
        for gtid in begin.mariadb_gtids:
            self.see(*map(int, gtid.split("-")))

    def see(self, domain: int, server: int, number: int) -> None:
        """Take the GTID of the binlog's next transaction."""
        if domain not in self._missing:
            return
        if number <= self._last.get(domain, 0):
            self._disorder = self._disorder or f"{domain}-{server}-{number}"
        self._last[domain] = number
        self._missing[domain].discard((server, number))

    @property
    def complete(self) -> bool:
        """Whether all requested transactions were seen."""
        return not any(self._missing.values())

    def fault(self, *, at_end: bool = False) -> str:
        """Why reading cannot resume after ``requested`` in this binlog; '' if it can.

        In an error message the text comes after "the binlog".

        A requested transaction is missing if it was not seen, and either its domain has a later number or the binlog
        ends (``at_end``). If the numbers of a domain are not ascending, two servers wrote to it, and a GTID does not
        identify the transactions before it.
        """
        lost = sorted(
            f"{domain}-{server}-{number}"
            for domain, requested in self._missing.items()
            for server, number in requested
            if at_end or number <= self._last.get(domain, 0)
        )
        if lost:
            return f"does not have transactions {', '.join(lost)}"
        if self._disorder:
            return (
                f"has transaction {self._disorder} after a higher or equal number of its domain: the server "
                "logged a transaction of its own while it was a replica, with gtid_strict_mode=OFF (for example by "
                "ANALYZE TABLE), so a GTID does not identify the transactions before it"
            )
        return ""


if TYPE_CHECKING:
    from changefeed.binlog.search.file_ranges import FileRange


@dataclass(frozen=True)
class ResumePoint:
    """A commit boundary, and the GTID set of all transactions before it ('' if they have no GTIDs)."""

    coordinates: BinlogCoordinates
    gtids: str = ""

    def __str__(self) -> str:
        return str(self.coordinates)


class Binlogs(Protocol):
    """The binlog files of a server, or archived binlog files."""

    def files(self) -> Sequence[BinlogFile]:
        """The files, oldest first; the last one may grow. Raises BinlogGoneError if there are none."""
        ...

    def end(self) -> ResumePoint:
        """The end of the last file."""
        ...

    def chunks(self, file: str, start: int, end: int) -> Iterable[bytes]:
        """The bytes of the events in ``[start, end)`` of ``file``, after its FORMAT_DESCRIPTION; see `boundaries`."""
        ...

    def first_events(self, file: str, start: int, end: int) -> Iterable[bytes]:
        """The bytes of `chunks`, for a caller that needs only the first events: reading them loads no kernels."""
        ...

    def previous_gtids(self, file: str) -> str:
        """The GTID set of all transactions before ``file``."""
        ...


@dataclass(frozen=True)
class Finder:
    """Finds commit boundaries in ``binlogs``; reads only the files that may have them."""

    binlogs: Binlogs

    def earliest(self) -> ResumePoint:
        """The start of the oldest file."""
        return self.begin_of(self.binlogs.files()[0].name)

    def latest(self) -> ResumePoint:
        """The end of the binlog."""
        return self.binlogs.end()

    def begin_of(self, file: str) -> ResumePoint:
        """The first position of a file."""
        self._file(file)
        return ResumePoint(BinlogCoordinates(file, FIRST_POSITION), self.binlogs.previous_gtids(file))

    def end_of(self, file: str) -> ResumePoint:
        """The end of a file: the start of the next file, or the end of the binlog."""
        names = [file.name for file in self.binlogs.files()]
        number = names.index(self._file(file).name)
        return self.begin_of(names[number + 1]) if number + 1 < len(names) else self.latest()

    def at(self, coordinates: BinlogCoordinates) -> ResumePoint:
        """The resume point at ``coordinates``, which must be a commit boundary.

        Raises BinlogGoneError if the file is missing, SettingsError if the coordinates are not a commit boundary; the
        message has the two nearest boundaries.
        """
        file = self._file(coordinates.file)
        if coordinates.position == FIRST_POSITION:
            return self.begin_of(file.name)
        size = self._size(file)
        if coordinates.position > size:
            raise SettingsError(
                f"expected a position up to {size}, the end of {file.name}, found {coordinates}. Choose an earlier one."
            )
        before, after = FIRST_POSITION, size
        begin = self.begin_of(file.name)
        reached: tuple[FileRange, int] | None = None
        for file_range in self._walk_from(begin, size):
            index = int(file_range.positions.searchsorted(coordinates.position))
            reached = file_range, index
            if index:
                before = int(file_range.positions[index - 1])
            if index < len(file_range.positions):
                after = int(file_range.positions[index])
                break
        if after != coordinates.position:
            raise SettingsError(
                f"{coordinates} is inside a transaction or an event: a checkpoint is always between two transactions. "
                f"Choose one of the nearest boundaries, {file.name}:{before} or {file.name}:{after}."
            )
        return ResumePoint(coordinates, reached[0].gtids_before(reached[1]) if reached else begin.gtids)

    def after_gtids(self, requested: GtidSet) -> ResumePoint:
        """The boundary before the first transaction that is not in ``requested``.

        A reader that has ``requested`` resumes there.

        Raises BinlogGoneError if a transaction that is not in ``requested`` is older than the oldest file, or if
        ``requested`` is a GTID position of MariaDB and its transactions are not in the binlog.
        """
        files = self.binlogs.files()
        chosen: BinlogFile | None = None
        for file in reversed(files):
            if requested.contains(GtidSet.parse(self.binlogs.previous_gtids(file.name))):
                chosen = file
                break
        if chosen is None:
            missing = GtidSet.parse(self.binlogs.previous_gtids(files[0].name)).subtract(requested)
            raise BinlogGoneError(
                f"transactions {missing} are no longer in the binlog (its oldest file is {files[0].name}), and GTID "
                f"set {requested} does not have them: their changes would be lost. If you have archived files, publish "
                "these with a backfill. To continue without the changes, seek to earliest"
            )
        begin = self.begin_of(chosen.name)
        positions = DomainPositions(requested.mariadb_gtids, GtidSet.parse(begin.gtids))
        resume: ResumePoint | None = None
        for file_range in self._walk(begin):
            resume_at = 0
            if resume is None:
                (absent,) = (file_range.gtids.present & ~file_range.gtids.contained_in(requested)).nonzero()
                resume_at = int(absent[0]) if len(absent) else len(file_range.positions)
                resume = _point(file_range, resume_at) if len(absent) else None
            for index, *gtid in file_range.gtids.mariadb():
                if positions.complete and (index >= resume_at or positions.fault()):
                    break
                positions.see(*gtid)
            if positions.complete and (resume is not None or positions.fault()):
                break
        if fault := positions.fault(at_end=True):
            why = (
                "Whether changes were lost is unknown"
                if positions.complete
                else f"The server that wrote it did not have all transactions up to {requested}"
            )
            raise BinlogGoneError(f"the binlog from {begin} on {fault}. {why}")
        return resume or self.latest()

    def anonymous_before(self, resume: BinlogCoordinates, requested: GtidSet) -> BinlogCoordinates | None:
        """The start of the first transaction without a GTID that is before ``resume`` and may follow ``requested``.

        None if there is none. The search begins with the file that has the last transaction of ``requested``, because
        replicas that apply in parallel may log neighboring transactions in another order.
        """
        files = [file for file in self.binlogs.files() if file.number <= resume.number]
        not_after = (file for file in reversed(files) if not self._begins_after(file, requested))
        begin = self.begin_of(next(not_after, files[0]).name)
        for file_range in self._walk(begin):
            for index in (file_range.opens & ~file_range.gtids.present).nonzero()[0].tolist():
                at = BinlogCoordinates(file_range.file, int(file_range.positions[index]))
                return at if at < resume else None
            if BinlogCoordinates(file_range.file, int(file_range.positions[-1])) >= resume:
                return None
        return None

    def _begins_after(self, file: BinlogFile, requested: GtidSet) -> bool:
        return GtidSet.parse(self.binlogs.previous_gtids(file.name)).contains(requested)

    def missing_transactions(self, gtids: Iterable[str], start: ResumePoint) -> str:
        """Why the binlog from ``start`` on does not have all of MariaDB's ``gtids``; '' if it has them.

        The text is as in `DomainPositions.fault`."""
        positions = DomainPositions(gtids, GtidSet.parse(start.gtids))
        for file_range in self._walk(start):
            for _, *gtid in file_range.gtids.mariadb():
                if positions.complete:
                    return positions.fault(at_end=True)
                positions.see(*gtid)
        return positions.fault(at_end=True)

    def around_gtids(self, requested: GtidSet) -> tuple[ResumePoint, ResumePoint]:
        """Start and end of the shortest range with all of ``requested``. Raises BinlogGoneError if one is missing."""
        first: ResumePoint | None = None
        last: ResumePoint | None = None
        seen = GtidRuns()
        ended = False  # whether the last transaction of the previous range was requested
        for file_range in self._walk(self.earliest()):
            if ended:
                last, ended = _point(file_range, 0), False
            requested_here = file_range.gtids.contained_in(requested)
            (where,) = requested_here.nonzero()
            if not len(where):
                continue
            first = first or _point(file_range, int(where[0]))
            for run in file_range.gtids.runs(requested_here):
                seen.add(*run)
            after = int(where[-1]) + 1
            ended = after == len(file_range.positions)
            if not ended:
                last = _point(file_range, after)
        missing = requested.subtract(GtidSet.parse(seen.text()))
        if first is None or missing:
            files = self.binlogs.files()
            raise BinlogGoneError(
                f"transactions {missing} are not in the existing binlog files, {files[0].name} to "
                f"{files[-1].name}: they were purged, or never written by this server."
            )
        return first, self.latest() if ended or last is None else last

    def at_time(self, ts_seconds: int) -> ResumePoint:
        """The boundary before the first transaction that was written at ``ts_seconds`` (Unix time) or later.

        The end of the binlog if there is none. Raises BinlogGoneError if the oldest file begins after ``ts_seconds``.
        """
        files = self.binlogs.files()
        begun = self._begun(files[0].name)
        if begun > ts_seconds:
            raise BinlogGoneError(
                f"the oldest binlog file, {files[0].name}, begins at {utc_text(begun)}, after {utc_text(ts_seconds)}: "
                f"the changes in between were purged. Existing files: {files[0].name} to {files[-1].name}. Choose a "
                f"time from {utc_text(begun)} on."
            )
        chosen = files[0]
        for file in reversed(files[1:]):
            if self._begun(file.name) <= ts_seconds:
                chosen = file
                break
        for file_range in self._walk(self.begin_of(chosen.name)):
            (indexes,) = (file_range.opens & (file_range.seconds >= ts_seconds)).nonzero()
            if len(indexes):
                return _point(file_range, int(indexes[0]))
        return self.latest()

    def within(self, start: ResumePoint, head: ResumePoint, size_bytes: int) -> ResumePoint:
        """The last commit boundary up to ``head`` with at most ``size_bytes`` between it and ``start``.

        If the first transaction is larger than ``size_bytes``, the end of that transaction: a window is never empty.
        """
        best: ResumePoint | None = None
        earlier_bytes = 0
        files = {file.number: file for file in self.binlogs.files()}
        for number in range(start.coordinates.number, head.coordinates.number + 1):
            file = self._file_of_number(files, number)
            begin = start if number == start.coordinates.number else self.begin_of(file.name)
            is_last = number == head.coordinates.number
            end = head.coordinates.position if is_last else file.size_bytes
            size_in_file = end - begin.coordinates.position
            if earlier_bytes + size_in_file <= size_bytes:
                earlier_bytes += size_in_file
                best = head if is_last else self.begin_of(self._file_of_number(files, number + 1).name)
                continue
            return (
                self._last_within(begin, end, earlier_bytes, size_bytes, best)
                or best
                or (head if is_last else self.begin_of(self._file_of_number(files, number + 1).name))
            )
        return best or head

    def within_rows(
        self, start: ResumePoint, head: ResumePoint, rows: int, prepared: PreparedRows | None = None
    ) -> ResumePoint:
        """The last commit boundary up to ``head`` with at most ``rows`` row changes between it and ``start``; see
        `RowCounter`. If the first transaction has more, the end of that transaction. ``prepared`` has the XA
        transactions that are prepared at ``start``, and then those at the result; an XA COMMIT of an unknown one is a
        range of its own.

        It reads the binlog up to the result, once or twice. Raises BinlogFormatError as `at` does.
        """
        from changefeed.binlog.search.row_limit import find_last_within  # imported here: it loads kernels

        best: ResumePoint | None = None
        prepared = prepared or PreparedRows()
        files = {file.number: file for file in self.binlogs.files()}
        for number in range(start.coordinates.number, head.coordinates.number + 1):
            file = self._file_of_number(files, number)
            begin = start if number == start.coordinates.number else self.begin_of(file.name)
            is_last = number == head.coordinates.number
            at, end = begin.coordinates.position, head.coordinates.position if is_last else file.size_bytes
            if at < end:
                part = Slice(0, file.name, at, end)
                chunks = partial(self.binlogs.chunks, file.name, end=end)
                found = find_last_within(chunks, part, begin.gtids, rows, prepared, is_first=best is None)
                if not found.is_end:
                    return _point(*found.boundary) if found.boundary else best or head
                rows -= found.rows
            best = head if is_last else self.begin_of(self._file_of_number(files, number + 1).name)
            if rows < 0:  # one transaction
                break
        return best or head

    def _last_within(
        self, begin: ResumePoint, end: int, earlier_bytes: int, size_bytes: int, best: ResumePoint | None
    ) -> ResumePoint | None:
        """The result of `within` for one file, from ``begin`` to position ``end``; None if it has no such boundary.

        ``earlier_bytes`` is the size of the range before ``begin``. ``best`` is the boundary found in earlier files; if
        it is None, the range up to the result has at least one transaction.
        """
        reached: tuple[FileRange, int] | None = None
        for file_range in self._walk_from(begin, end):
            sizes = file_range.positions - begin.coordinates.position + earlier_bytes
            fitting = int(sizes.searchsorted(size_bytes, side="right"))
            if fitting and sizes[fitting - 1] > 0:
                reached = file_range, fitting - 1
            if fitting < len(sizes):
                if reached is None and best is None:
                    reached = file_range, fitting
                break
        return _point(*reached) if reached else None

    def file_ends(self, start: ResumePoint, head: ResumePoint) -> list[ResumePoint]:
        """The ends of the files between two commit boundaries, and ``head``. Reads no events."""
        names = [
            file.name
            for file in self.binlogs.files()
            if start.coordinates.number < file.number <= head.coordinates.number
        ]
        ends = [self.begin_of(name) for name in names]
        return [point for point in ends if point.coordinates != head.coordinates] + [head]

    def begun_seconds(self, file: str) -> int:
        """The Unix time, in seconds, at which a file was created."""
        return self._begun(file)

    # --- reading boundaries and files

    def _walk(self, start: ResumePoint) -> Iterator[FileRange]:
        yield from self._walk_from(start, self._size(self._file(start.coordinates.file)))
        for file in self.binlogs.files():
            if file.number > start.coordinates.number:
                yield from self._walk_from(self.begin_of(file.name), self._size(file))

    def _walk_from(self, begin: ResumePoint, end: int) -> Iterator[FileRange]:
        from changefeed.binlog.search.file_ranges import file_ranges  # imported here: it loads a kernel

        at = begin.coordinates
        return file_ranges(self.binlogs.chunks(at.file, at.position, end), at.file, at.position, end, begin.gtids)

    def _begun(self, file: str) -> int:
        size = self._size(self._file(file))
        for boundary in boundaries(self.binlogs.first_events(file, FIRST_POSITION, size), file, FIRST_POSITION, size):
            return boundary.ts_seconds
        return 0

    def _size(self, file: BinlogFile) -> int:
        end = self.binlogs.end().coordinates
        return end.position if end.file == file.name else file.size_bytes

    def _file(self, name: str) -> BinlogFile:
        files = self.binlogs.files()
        for file in files:
            if file.name == name:
                return file
        raise BinlogGoneError(
            f"binlog file {name!r} is not there: found only {files[0].name} to {files[-1].name}. Choose an existing "
            "file, or pass a folder with archived files."
        )

    def _file_of_number(self, files: dict[int, BinlogFile], number: int) -> BinlogFile:
        if number not in files:
            names = [file.name for file in files.values()]
            raise BinlogGoneError(f"binlog file number {number} is not there: found only {names[0]} to {names[-1]}")
        return files[number]


def _point(file_range: FileRange, index: int) -> ResumePoint:
    coordinates = BinlogCoordinates(file_range.file, int(file_range.positions[index]))
    return ResumePoint(coordinates, file_range.gtids_before(index))
