"""Computes the moments of a partition's records in the source's binlog, and whether a record may be out of order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.native.memory import Words
from changefeed.records import index_kernel as kernel
from changefeed.records.event_id import EventId, moment_of
from changefeed.records.record_index import RecordIndex
from changefeed.verify.entries import BEFORE_ALL
from changefeed.verify.partition_records import Flags
from changefeed.verify.read_rows import NOT_READ

Order = tuple[int, int, int]


@dataclass
class RecordMoments:
    """Computes the moments of a partition's records, in offset order.

    - ``stream``: the source's UUID and the base name of its binlog.
    - A row that a SELECT read has the moment of the previous change in its partition. It also has the number of its
      chunk, which is 0 for a row of another server.
    - ``is_doubtful``: whether the id of a record does not come after all earlier ids of its stream. If it is true,
      `RecordOrder` must check the records one by one.
    """

    stream: tuple[str, str]
    moment: int = BEFORE_ALL
    is_doubtful: bool = False
    _last: dict[tuple[str, str], Order] = field(default_factory=dict)

    def take(self, records: RecordIndex) -> tuple[Words, Flags, Words]:
        """For each of the next records: its moment, whether it has an id of changefeed, and its chunk or NOT_READ."""
        moments, known = np.empty(len(records), np.int64), np.zeros(len(records), np.bool_)
        chunks = np.full(len(records), NOT_READ, np.int64)
        starts = np.flatnonzero(records.column(kernel.IS_NEW) != 0)
        if len(records) and (not len(starts) or starts[0] != 0):  # records before the range were cut off
            starts = np.concatenate([np.zeros(1, np.int64), starts])
        for start, end in zip(starts, [*starts[1:], len(records)], strict=True):
            self._take_run(records, int(start), int(end), moments, known, chunks)
        return moments, known, chunks

    def _take_run(
        self, records: RecordIndex, start: int, end: int, moments: Words, known: Flags, chunks: Words
    ) -> None:
        """Take records whose ids differ only in the position, or a single record whose id has another form."""
        event = EventId.parse(records.event_id(start))
        known[start:end] = event is not None
        moments[start:end] = self.moment
        if event is None:
            return
        if records.words[start, kernel.POSITION] < 0:
            positions, rows, steps = (np.array([each], np.int64) for each in (event.position, event.row, event.step))
        else:
            positions, rows, steps = records.words[start:end, kernel.POSITION : kernel.STEP + 1].T
        if not event.is_read:
            along = positions + moment_of(BinlogCoordinates(event.origin, 0))
            if event.stream == self.stream:
                moments[start:end] = along
            else:
                moments[start:end] = BEFORE_ALL
            self.moment = int(moments[end - 1])
            self._look(event.stream, along, rows, steps)
            return
        chunks[start:end] = event.chunk if event.server == self.stream[0] else 0
        for run in np.split(np.arange(end - start), np.flatnonzero(np.diff(positions)) + 1):
            stream = (event.server, f"{event.origin}:{positions[run[0]]}")
            self._look(stream, np.zeros(len(run), np.int64), rows[run], steps[run])

    def _look(self, stream: tuple[str, str], along: Words, rows: Words, steps: Words) -> None:
        before = self._last.get(stream, (-1, 0, 0))
        first, last = (int(along[0]), int(rows[0]), int(steps[0])), (int(along[-1]), int(rows[-1]), int(steps[-1]))
        same = np.diff(along) == 0
        rises = np.diff(along) > 0
        rises |= same & (np.diff(rows) > 0)
        rises |= same & (np.diff(rows) == 0) & (np.diff(steps) > 0)
        self.is_doubtful |= first <= before or not bool(rises.all())
        self._last[stream] = max(before, last)
