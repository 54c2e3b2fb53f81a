"""The commit boundaries of a binlog, a stretch at a time: at the speed at which a server sends, by a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from changefeed.binlog.events.framing import HEADER, HEADER_SIZE
from changefeed.binlog.events.gtids import TAGGED, Gtid, GtidRuns, read_tagged
from changefeed.binlog.kernel import boundary_rows as kernel
from changefeed.binlog.kernel import hop
from changefeed.binlog.kernel.memory import Words
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.binlog.search.gtid_words import GtidWords, Mask, Run
from changefeed.errors import BinlogFormatError
from changefeed.window import Slice

_MOST_ROWS = 1 << 14


@dataclass(frozen=True)
class Stretch:
    """Commit boundaries that follow one another in ``file``, as arrays of equal length; never empty.

    ``seconds`` is when the event behind each was written. ``opens`` says whether a transaction begins there, and
    ``gtids`` which.
    """

    file: str
    positions: Words
    seconds: Words
    opens: Mask
    gtids: GtidWords
    earlier: Sequence[Run]
    """Of the stretches before it; it grows, and ``earlier_runs`` of them are."""
    earlier_runs: int
    begin_gtids: str

    def gtids_before(self, index: int) -> str:
        """The GTIDs of everything before a boundary."""
        runs = GtidRuns(self.begin_gtids)
        for run in (*self.earlier[: self.earlier_runs], *self.gtids.runs(slice(index))):
            runs.add(*run)
        return runs.text()


def stretches(
    chunks: Iterable[bytes | bytearray | memoryview], file: str, start: int, end: int, gtids: str
) -> Iterator[Stretch]:
    """The commit boundaries in ``[start, end)``, in order; ``start`` must be one, and ``gtids`` those before it.

    ``chunks`` are those that `boundaries` takes. Raises BinlogFormatError for bytes that cannot be followed.
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
                    walk.pass_over(event)
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
            damage = error  # for whoever needs more than the boundaries before it
        for words, tagged in parts:
            positions, seconds, opens, kinds, a, b, numbers = words.T
            of_stretch = GtidWords(kinds, a, b, numbers, tagged)
            stretch = Stretch(file, positions, seconds, opens == 1, of_stretch, earlier, len(earlier), gtids)
            yield stretch
            earlier += stretch.gtids.runs()
        parts.clear()
    raise damage


def _with_tags(words: Words, walk: EventWalk) -> tuple[Words, dict[int, Gtid]]:
    """The rows, and the tagged GTIDs among them; raises DamagedEvent for one that cannot be read."""
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
