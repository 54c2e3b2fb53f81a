"""Finding a commit boundary in a binlog: by coordinates, GTID set, time or size.

A position of MariaDB names the last transaction of each replication domain, DOMAIN-SERVER-NUMBER. Numbers alone prove
nothing: a follower that never got 0-1-11 and became the source goes on with 0-2-9, 0-2-10 and so on, past 11. So each
transaction is looked for as it is, its server included, as a MariaDB source does for a replica that connects with a
position (https://mariadb.com/kb/en/gtid/#gtid_strict_mode).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from changefeed.binlog.events.gtids import GtidRuns
from changefeed.binlog.search.boundaries import boundaries
from changefeed.errors import BinlogGoneError, SettingsError
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.window import BinlogFile


class DomainPositions:
    """Takes a binlog's GTIDs in its order, and knows which of ``wanted`` stand in it.

    ``begin`` is the position at which reading begins.
    """

    def __init__(self, wanted: Iterable[str], begin: GtidSet) -> None:
        self._wanted: dict[int, set[tuple[int, int]]] = {}
        for gtid in wanted:
            domain, server, number = map(int, gtid.split("-"))
            self._wanted.setdefault(domain, set()).add((server, number))
        self._last: dict[int, int] = {}
        self._disorder = ""
        for gtid in begin.mariadb_gtids:
            self.see(*map(int, gtid.split("-")))

    def see(self, domain: int, server: int, number: int) -> None:
        """The next transaction's GTID."""
        if domain not in self._wanted:
            return
        if number <= self._last.get(domain, 0):
            self._disorder = self._disorder or f"{domain}-{server}-{number}"
        self._last[domain] = number
        self._wanted[domain].discard((server, number))

    @property
    def complete(self) -> bool:
        """Whether all of them were seen."""
        return not any(self._wanted.values())

    def fault(self, *, at_end: bool = False) -> str:
        """What shows that the binlog is not one behind ``wanted``, as the end of a sentence, or ''.

        A transaction is not in its place when its domain has come past its number; ``at_end`` of the binlog is known
        whether it is there at all. Where numbers of a domain do not rise, two servers wrote to it: then a transaction
        does not tell what stands before it.
        """
        lost = sorted(
            f"{domain}-{server}-{number}"
            for domain, wanted in self._wanted.items()
            for server, number in wanted
            if at_end or number <= self._last.get(domain, 0)
        )
        if lost:
            return f"lacks transactions {', '.join(lost)}"
        if self._disorder:
            return (
                f"has transaction {self._disorder} behind a higher number of its domain, or the same: the server "
                "logged a transaction of its own while it was a replica, with gtid_strict_mode=OFF (ANALYZE TABLE is "
                "enough), so GTIDs do not tell what stands before a position"
            )
        return ""


if TYPE_CHECKING:
    from changefeed.binlog.search.file_ranges import FileRange


@dataclass(frozen=True)
class ResumePoint:
    """A commit boundary, and the GTIDs of everything before it ('' where the source has none)."""

    coordinates: BinlogCoordinates
    gtids: str = ""

    def __str__(self) -> str:
        return str(self.coordinates)


class Binlogs(Protocol):
    """Binlog files that can be read: those of a server, or archived ones."""

    def files(self) -> Sequence[BinlogFile]:
        """The files, oldest first; the last may grow. Raises BinlogGoneError where there are none."""
        ...

    def end(self) -> ResumePoint:
        """The end of the last file."""
        ...

    def chunks(self, file: str, start: int, end: int) -> Iterable[bytes]:
        """The events of ``file`` from ``start`` on, its FORMAT_DESCRIPTION first, as `boundaries` takes them."""
        ...

    def previous_gtids(self, file: str) -> str:
        """GTIDs of everything before ``file``."""
        ...


@dataclass(frozen=True)
class Finder:
    """Searches ``binlogs``; files that need not be read are passed over."""

    binlogs: Binlogs

    def earliest(self) -> ResumePoint:
        """The begin of the oldest file."""
        return self.begin_of(self.binlogs.files()[0].name)

    def latest(self) -> ResumePoint:
        """The end of the binlog."""
        return self.binlogs.end()

    def begin_of(self, file: str) -> ResumePoint:
        """The first position of a file."""
        self._file(file)
        return ResumePoint(BinlogCoordinates(file, FIRST_POSITION), self.binlogs.previous_gtids(file))

    def end_of(self, file: str) -> ResumePoint:
        """Where a file is complete: the begin of the next one, or the end of the binlog."""
        names = [file.name for file in self.binlogs.files()]
        number = names.index(self._file(file).name)
        return self.begin_of(names[number + 1]) if number + 1 < len(names) else self.latest()

    def at(self, coordinates: BinlogCoordinates) -> ResumePoint:
        """The commit boundary at ``coordinates``.

        Raises BinlogGoneError for a file that is not there, SettingsError where they are no commit boundary: then
        the message names the nearest ones.
        """
        file = self._file(coordinates.file)
        if coordinates.position == FIRST_POSITION:
            return self.begin_of(file.name)
        size = self._size(file)
        if coordinates.position > size:
            raise SettingsError(f"{coordinates} is past the end of its file: {file.name} ends at {size}")
        before, after = FIRST_POSITION, size
        begin = self.begin_of(file.name)
        reached: tuple[FileRange, int] | None = None
        for file_range in self._walk_from(begin, size):
            index = int(np.searchsorted(file_range.positions, coordinates.position))
            reached = file_range, index
            if index:
                before = int(file_range.positions[index - 1])
            if index < len(file_range.positions):
                after = int(file_range.positions[index])
                break
        if after != coordinates.position:
            raise SettingsError(
                f"{coordinates} is inside a transaction or an event: a checkpoint stands between two transactions. "
                f"The nearest are {file.name}:{before} and {file.name}:{after}."
            )
        return ResumePoint(coordinates, reached[0].gtids_before(reached[1]) if reached else begin.gtids)

    def after_gtids(self, wanted: GtidSet) -> ResumePoint:
        """The first commit boundary whose next transaction is not in ``wanted``: where one that has them resumes.

        Raises BinlogGoneError when transactions that ``wanted`` lacks are older than the oldest file, or, for a
        position of MariaDB, when its transactions are not in the binlog.
        """
        files = self.binlogs.files()
        chosen: BinlogFile | None = None
        for file in reversed(files):
            if wanted.contains(GtidSet.parse(self.binlogs.previous_gtids(file.name))):
                chosen = file
                break
        if chosen is None:
            missing = GtidSet.parse(self.binlogs.previous_gtids(files[0].name)).subtract(wanted)
            raise BinlogGoneError(
                f"transactions {missing} are in no file any more (the oldest is {files[0].name}), and the GTID set "
                f"{wanted} lacks them: changes would be lost. Publish them with a backfill of archived files, if "
                "there are any; seek to earliest to go on without them."
            )
        begin = self.begin_of(chosen.name)
        positions = DomainPositions(wanted.mariadb_gtids, GtidSet.parse(begin.gtids))
        resume: ResumePoint | None = None
        for file_range in self._walk(begin):
            resume_at = 0
            if resume is None:
                lacking = np.flatnonzero(file_range.gtids.present & ~file_range.gtids.contained_in(wanted))
                resume_at = int(lacking[0]) if len(lacking) else len(file_range.positions)
                resume = _point(file_range, resume_at) if len(lacking) else None
            for index, *gtid in file_range.gtids.mariadb():
                if positions.complete and (index >= resume_at or positions.fault()):
                    break
                positions.see(*gtid)
            if positions.complete and (resume is not None or positions.fault()):
                break
        if fault := positions.fault(at_end=True):
            why = (
                "Nothing shows that changes were lost, and nothing that none were"
                if positions.complete
                else f"It was written to by a server that did not have all transactions up to {wanted}"
            )
            raise BinlogGoneError(f"the binlog from {begin} on {fault}. {why}")
        return resume or self.latest()

    def nameless_before(self, resume: BinlogCoordinates, wanted: GtidSet) -> BinlogCoordinates | None:
        """Where the first transaction without a GTID is that may follow those of ``wanted``, and is before ``resume``.

        Looked for from the begin of the file on that has the last of ``wanted``: replicas that apply in parallel may
        log transactions that follow each other closely in another order. None where there is none.
        """
        files = [file for file in self.binlogs.files() if file.number <= resume.number]
        lacking = (file for file in reversed(files) if not self._begins_after(file, wanted))
        begin = self.begin_of(next(lacking, files[0]).name)
        for file_range in self._walk(begin):
            for index in np.flatnonzero(file_range.opens & ~file_range.gtids.present).tolist():
                at = BinlogCoordinates(file_range.file, int(file_range.positions[index]))
                return at if at < resume else None
            if BinlogCoordinates(file_range.file, int(file_range.positions[-1])) >= resume:
                return None
        return None

    def _begins_after(self, file: BinlogFile, wanted: GtidSet) -> bool:
        return GtidSet.parse(self.binlogs.previous_gtids(file.name)).contains(wanted)

    def lacks(self, gtids: Iterable[str], start: ResumePoint) -> str:
        """How the binlog from ``start`` on shows that it lacks some of MariaDB's ``gtids``, '' where it has them."""
        positions = DomainPositions(gtids, GtidSet.parse(start.gtids))
        for file_range in self._walk(start):
            for _, *gtid in file_range.gtids.mariadb():
                if positions.complete:
                    return positions.fault(at_end=True)
                positions.see(*gtid)
        return positions.fault(at_end=True)

    def around_gtids(self, wanted: GtidSet) -> tuple[ResumePoint, ResumePoint]:
        """The shortest range that holds all transactions of ``wanted``; raises BinlogGoneError where some are gone."""
        first: ResumePoint | None = None
        last: ResumePoint | None = None
        seen = GtidRuns()
        ended = False  # the transaction before this boundary is the last wanted one so far
        for file_range in self._walk(self.earliest()):
            if ended:
                last, ended = _point(file_range, 0), False
            wanted_here = file_range.gtids.contained_in(wanted)
            where = np.flatnonzero(wanted_here)
            if not len(where):
                continue
            first = first or _point(file_range, int(where[0]))
            for run in file_range.gtids.runs(wanted_here):
                seen.add(*run)
            behind = int(where[-1]) + 1
            ended = behind == len(file_range.positions)
            if not ended:
                last = _point(file_range, behind)
        missing = wanted.subtract(GtidSet.parse(seen.text()))
        if first is None or missing:
            files = self.binlogs.files()
            raise BinlogGoneError(
                f"transactions {missing} are not in the binlog files that are there, {files[0].name} to "
                f"{files[-1].name}: they were purged, or never written by this server."
            )
        return first, self.latest() if ended or last is None else last

    def at_time(self, ts_seconds: int) -> ResumePoint:
        """Before the first transaction that was written at ``ts_seconds`` or later; the end where there is none.

        Raises BinlogGoneError when the oldest file begins later: what was asked for is not there.
        """
        files = self.binlogs.files()
        begun = self._begun(files[0].name)
        if begun > ts_seconds:
            raise BinlogGoneError(
                f"the oldest binlog file, {files[0].name}, begins at {begun} (Unix time), after {ts_seconds}: what was "
                "written between is not there any more. Files that are there: "
                f"{files[0].name} to {files[-1].name}."
            )
        chosen = files[0]
        for file in reversed(files[1:]):
            if self._begun(file.name) <= ts_seconds:
                chosen = file
                break
        for file_range in self._walk(self.begin_of(chosen.name)):
            late = np.flatnonzero(file_range.opens & (file_range.seconds >= ts_seconds))
            if len(late):
                return _point(file_range, int(late[0]))
        return self.latest()

    def within(self, start: ResumePoint, head: ResumePoint, size_bytes: int) -> ResumePoint:
        """The last commit boundary that is at most ``size_bytes`` after ``start`` and not after ``head``.

        Where the first transaction alone is larger, its end: a window always moves.
        """
        best: ResumePoint | None = None
        gone = 0
        files = {file.number: file for file in self.binlogs.files()}
        for number in range(start.coordinates.number, head.coordinates.number + 1):
            file = self._numbered(files, number)
            begin = start if number == start.coordinates.number else self.begin_of(file.name)
            is_last = number == head.coordinates.number
            end = head.coordinates.position if is_last else file.size_bytes
            rest = end - begin.coordinates.position
            if gone + rest <= size_bytes:
                gone += rest
                best = head if is_last else self.begin_of(self._numbered(files, number + 1).name)
                continue
            return (
                self._last_within(begin, end, gone, size_bytes, best)
                or best
                or (head if is_last else self.begin_of(self._numbered(files, number + 1).name))
            )
        return best or head

    def _last_within(
        self, begin: ResumePoint, end: int, gone: int, size_bytes: int, best: ResumePoint | None
    ) -> ResumePoint | None:
        """As `within` in one file, in front of which are ``gone`` bytes; where there is none and no ``best``, the first
        boundary behind."""
        reached: tuple[FileRange, int] | None = None
        for file_range in self._walk_from(begin, end):
            behind = file_range.positions - begin.coordinates.position + gone
            over = int(np.searchsorted(behind, size_bytes, side="right"))
            if over and behind[over - 1] > 0:
                reached = file_range, over - 1
            if over < len(behind):
                if reached is None and best is None:
                    reached = file_range, over
                break
        return _point(*reached) if reached else None

    def file_ends(self, start: ResumePoint, head: ResumePoint) -> list[ResumePoint]:
        """The ends of files between two commit boundaries, and ``head``. They cost no reading."""
        names = [
            file.name
            for file in self.binlogs.files()
            if start.coordinates.number < file.number <= head.coordinates.number
        ]
        ends = [self.begin_of(name) for name in names]
        return [point for point in ends if point.coordinates != head.coordinates] + [head]

    def first_seconds(self, at: BinlogCoordinates) -> int | None:
        """When the first transaction after a commit boundary was written (Unix time), or None where there is none."""
        later = [(file.name, FIRST_POSITION) for file in self.binlogs.files() if file.number > at.number]
        for file, start in [(at.file, at.position), *later]:
            size = self._size(self._file(file))
            for boundary in boundaries(self.binlogs.chunks(file, start, size), file, start, size):
                if boundary.opens:
                    return boundary.ts_seconds
        return None

    def begun_seconds(self, file: str) -> int:
        """When a file was begun (Unix time)."""
        return self._begun(file)

    # --- walking

    def _walk(self, start: ResumePoint) -> Iterator[FileRange]:
        yield from self._walk_from(start, self._size(self._file(start.coordinates.file)))
        for file in self.binlogs.files():
            if file.number > start.coordinates.number:
                yield from self._walk_from(self.begin_of(file.name), self._size(file))

    def _walk_from(self, begin: ResumePoint, end: int) -> Iterator[FileRange]:
        from changefeed.binlog.search.file_ranges import file_ranges  # its kernel is loaded where it is needed

        at = begin.coordinates
        return file_ranges(self.binlogs.chunks(at.file, at.position, end), at.file, at.position, end, begin.gtids)

    def _begun(self, file: str) -> int:
        size = self._size(self._file(file))
        for boundary in boundaries(self.binlogs.chunks(file, FIRST_POSITION, size), file, FIRST_POSITION, size):
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
            f"binlog {name!r} is not there: there are {files[0].name} to {files[-1].name}. Choose files of these, or "
            "name a folder with archived files."
        )

    def _numbered(self, files: dict[int, BinlogFile], number: int) -> BinlogFile:
        if number not in files:
            names = [file.name for file in files.values()]
            raise BinlogGoneError(f"binlog number {number} is not there: there are {names[0]} to {names[-1]}")
        return files[number]


def _point(file_range: FileRange, index: int) -> ResumePoint:
    coordinates = BinlogCoordinates(file_range.file, int(file_range.positions[index]))
    return ResumePoint(coordinates, file_range.gtids_before(index))


def bytes_between(files: Sequence[BinlogFile], start: BinlogCoordinates, end: BinlogCoordinates) -> int:
    """Bytes of binlog from ``start`` to ``end``; negative when ``end`` is before ``start``."""
    if end < start:
        return -bytes_between(files, end, start)
    whole = sum(file.size_bytes for file in files if start.number <= file.number < end.number)
    return whole + end.position - start.position
