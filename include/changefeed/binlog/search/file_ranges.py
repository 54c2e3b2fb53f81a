"""The commit boundaries of a binlog, as ranges of a file; a kernel reads them at the speed of the dump."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from changefeed.binlog.events.framing import HEADER, HEADER_SIZE
from changefeed.binlog.events.gtids import MARIADB, TAGGED, Gtid, GtidRuns, read_tagged
from changefeed.binlog.kernel import boundary_rows as kernel
from changefeed.binlog.kernel import hop
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.errors import BinlogFormatError
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Slice
from changefeed.native.memory import Words

Mask = npt.NDArray[np.bool_]
Indexes = npt.NDArray[np.intp]

Run = tuple[int, int, int, int, int, str]
"""Kind, a, b, first and last number, and the `uuid:tag` of a tagged GTID: the arguments of `GtidRuns.add`."""


@dataclass(frozen=True)
class GtidWords:
    """The GTIDs of transactions in binlog order, as arrays of equal length.

    Kind, a, b and number are as in `Gtid`; the kind is 0 for a transaction without a GTID. ``tagged`` has the GTIDs
    with a tag, by index.
    """

    kinds: Words
    a: Words
    b: Words
    numbers: Words
    tagged: Mapping[int, Gtid]

    @property
    def present(self) -> Mask:
        """A mask that is True for transactions with a GTID."""
        present: Mask = self.kinds != 0
        return present

    def mariadb(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield index, domain, server and number of each GTID of MariaDB."""
        where = np.flatnonzero(self.kinds == MARIADB)
        columns = (where, self.a[where], self.b[where], self.numbers[where])
        yield from zip(*(column.tolist() for column in columns), strict=True)

    def runs(self, chosen: Mask | slice = slice(None)) -> Iterator[Run]:
        """Yield the GTIDs of ``chosen`` as runs of numbers, by source and in order.

        The last run of a MariaDB domain is the latest."""
        selected = np.zeros(len(self.kinds), np.bool_)
        selected[chosen] = True
        for kind, a, b, where in self._sources(np.flatnonzero(selected & self.present)):
            numbers = self.numbers[where]
            ends = np.flatnonzero(np.diff(numbers) != 1)
            firsts, lasts = numbers[np.append(0, ends + 1)], numbers[np.append(ends, len(numbers) - 1)]
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                yield kind, a, b, first, last, self._prefix(kind, where)

    def contained_in(self, gtids: GtidSet) -> Mask:
        """A mask that is True for GTIDs in the set ``gtids``. MariaDB's GTIDs are compared by number, as in the set."""
        contained = np.zeros(len(self.kinds), np.bool_)
        intervals = dict(gtids.intervals)
        for kind, a, b, where in self._sources(np.flatnonzero(self.present)):
            source = str(a) if kind == MARIADB else self._prefix(kind, where) or _uuid_of(a, b)
            if source in intervals:
                firsts, lasts = np.array(intervals[source], np.uint64).T
                numbers = np.maximum(self.numbers[where], 1).astype(np.uint64)
                at = np.searchsorted(firsts, numbers, side="right").astype(np.intp) - 1
                contained[where] = (at >= 0) & (numbers <= lasts[at])
        return contained

    def _prefix(self, kind: int, where: Indexes) -> str:
        return self.tagged[int(where[0])].prefix if kind == TAGGED else ""

    def _sources(self, where: Indexes) -> Iterator[tuple[int, int, int, Indexes]]:
        """Yield kind, a and b of each source among ``where``, with its indexes; in the order of the last index."""
        if not len(where):
            return
        sources = np.stack((self.kinds[where], self.a[where], self.b[where]), axis=1)
        if (sources == sources[0]).all() and sources[0][0] != TAGGED:
            kind, a, b = sources[0].tolist()
            yield kind, a, b, where
            return
        by_source: dict[tuple[int, int, int, str], list[int]] = {}
        for index, (kind, a, b) in zip(where.tolist(), sources.tolist(), strict=True):
            prefix = self.tagged[index].prefix if kind == TAGGED else ""
            by_source.setdefault((kind, a, b, prefix), []).append(index)
        for (kind, a, b, _), members in sorted(by_source.items(), key=lambda item: item[1][-1]):
            yield kind, a, b, np.array(members)


def _uuid_of(a: int, b: int) -> str:
    return str(uuid.UUID(bytes=struct.pack("<qq", a, b)))


_MOST_ROWS = 1 << 14


@dataclass(frozen=True)
class FileRange:
    """Consecutive commit boundaries of ``file``, as arrays of equal length; never empty.

    For each boundary ``seconds`` has the time of the event after it, ``opens`` whether a transaction begins there, and
    ``gtids`` the GTID of this transaction.
    """

    file: str
    positions: Words
    seconds: Words
    opens: Mask
    gtids: GtidWords
    earlier: Sequence[Run]
    """The runs of all ranges of the file so far; the list grows. Its first ``earlier_runs`` are of earlier ranges."""
    earlier_runs: int
    begin_gtids: str

    def gtids_before(self, index: int) -> str:
        """The GTID set of all transactions before the boundary with this ``index``."""
        runs = GtidRuns(self.begin_gtids)
        for run in (*self.earlier[: self.earlier_runs], *self.gtids.runs(slice(index))):
            runs.add(*run)
        return runs.text()


def file_ranges(
    chunks: Iterable[bytes | bytearray | memoryview], file: str, start: int, end: int, gtids: str
) -> Iterator[FileRange]:
    """Yield the commit boundaries in ``[start, end)``, in order.

    ``start`` must be a commit boundary; ``gtids`` is the GTID set of all transactions before it. ``chunks`` are as in
    `boundaries`. Raises BinlogFormatError for bytes that are not a sequence of events.
    """
    walk = EventWalk(Slice(0, file, start, end), kernel.BOUNDARY_STATE_WORDS)
    rows: Words = np.empty(_MOST_ROWS * kernel.ROW, np.int64)
    parts: list[tuple[Words, dict[int, Gtid]]] = []
    earlier: list[Run] = []

    def take() -> None:
        """Copy the rows that the kernel has written."""
        count = int(walk.state[kernel.ROWS])
        if count:
            parts.append(_with_tags(rows[: count * kernel.ROW].reshape(count, kernel.ROW).copy(), walk))
            walk.state[kernel.ROWS] = 0

    def go_on() -> int:
        while True:
            code = walk.run(lambda: kernel.boundary_rows(walk.source.data, rows, walk.state, walk.checksum_size))
            take()
            if code == hop.LOOK:
                event = walk.event()
                if event is not None:  # the file's FORMAT_DESCRIPTION
                    seconds, *_ = HEADER.unpack_from(event)
                    parts.append((np.array([[walk.position, seconds, 0, 0, 0, 0, 0]]), {}))
                    walk.skip_event(event)
            elif code != hop.FULL:
                return code

    reading = walk.read(chunks, go_on)
    damage: BinlogFormatError | None = None
    while damage is None:
        try:
            next(reading)
        except StopIteration:
            return
        except BinlogFormatError as error:
            damage = error  # raised after the caller has got the boundaries before the damage
        for words, tagged in parts:
            positions, seconds, opens, kinds, a, b, numbers = words.T
            gtid_words = GtidWords(kinds, a, b, numbers, tagged)
            found = FileRange(file, positions, seconds, opens == 1, gtid_words, earlier, len(earlier), gtids)
            yield found
            earlier += found.gtids.runs()
        parts.clear()
    raise damage


def _with_tags(words: Words, walk: EventWalk) -> tuple[Words, dict[int, Gtid]]:
    """The rows with the words of tagged GTIDs, and these GTIDs by index; raises DamagedEvent for an unreadable GTID."""
    tagged: dict[int, Gtid] = {}
    *_, kinds, _, _, numbers = words.T
    for index in np.flatnonzero(kinds == TAGGED).tolist():
        at = int(numbers[index])
        size = HEADER.unpack(walk.source.data[at : at + HEADER_SIZE].tobytes())[3]
        gtid = read_tagged(walk.source.data[at + HEADER_SIZE : at + size - walk.checksum_size].tobytes())
        if gtid is None or gtid.kind != TAGGED:
            words[index, 3:] = (gtid.kind, gtid.a, gtid.b, gtid.number) if gtid else (0, 0, 0, 0)
        else:
            tagged[index] = gtid
            numbers[index] = gtid.number
    return words, tagged
