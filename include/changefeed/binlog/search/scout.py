"""The scout: reads the headers of a file's events and cuts the file into slices.

A kernel reads header after header (`kernel/hop.py`). Python reads only events with a statement and events at which a
cut is due, so the scout runs at the speed of the dump.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from changefeed.binlog.events.framing import (
    HEADER,
    HEADER_SIZE,
    OPENING,
    ROWS,
    DamagedEvent,
    EventType,
    name_of,
)
from changefeed.binlog.events.gtids import commit_micros, gtid_of
from changefeed.binlog.events.query_event import Header, Query, TransactionStep
from changefeed.binlog.kernel import hop
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.binlog.search.scouting import Scouting, is_worth_cutting
from changefeed.errors import BinlogFormatError
from changefeed.model.coordinates import LAST_DUMP_POSITION
from changefeed.model.statement import Statement
from changefeed.model.window import ANONYMOUS, Slice
from changefeed.native.memory import Bytes


def scout(
    chunks: Iterable[bytes | bytearray | memoryview], slice: Slice, slice_bytes: int, *, cuts_inside: bool = True
) -> Scouting:
    """The result of cutting ``slice`` into slices of about ``slice_bytes``, each of which begins at a commit boundary.

    A transaction that is larger is cut after the end of a statement, and the next slice has the transaction's GTID.
    Without ``cuts_inside`` such a transaction is not cut.
    ``chunks`` are as in `KernelDecoder.decode`. Raises BinlogFormatError, with coordinates, if they end early or
    cannot be read.
    """
    parts = list(_Scout(slice, slice_bytes, skips_rest=False, cuts_inside=cuts_inside).parts(chunks))
    return Scouting(
        tuple(slice for part in parts for slice in part.slices),
        tuple(statement for part in parts for statement in part.statements),
        sum(part.events for part in parts),
    )


def scout_in_parts(
    chunks: Iterable[bytes | bytearray | memoryview], slice: Slice, slice_bytes: int, *, cuts_inside: bool = True
) -> Iterator[Scouting]:
    """Yield the results of `scout` in parts: after each chunk the new slices, and at least the statements before them.

    If the rest of ``slice`` is not worth cutting, it becomes the last slice without being read; its statements are
    omitted.
    """
    return _Scout(slice, slice_bytes, skips_rest=True, cuts_inside=cuts_inside).parts(chunks)


class _Scout:
    def __init__(self, slice: Slice, slice_bytes: int, *, skips_rest: bool, cuts_inside: bool) -> None:
        self._slice, self._slice_bytes, self._skips_rest = slice, slice_bytes, skips_rest
        self._cuts_inside = cuts_inside
        self._slice_count = 0
        self._slices: list[Slice] = []
        self._begin, self._begin_gtid = slice.start, slice.gtid
        self._begin_commit, self._begin_thread = slice.commit_micros, slice.thread
        self._statements: list[Statement] = []
        self._opening: Bytes = np.empty(hop.LARGEST_OPENING, np.uint8)
        self._walk = EventWalk(slice)
        self._state = self._walk.state
        self._state[hop.CUT_AT] = slice.start + slice_bytes
        self._state[hop.CUTTABLE] = bool(slice.gtid)
        self._state[hop.THREAD] = slice.thread

    @property
    def _position(self) -> int:
        return self._walk.position

    def parts(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[Scouting]:
        """Yield the new slices and statements after each chunk."""
        if not self._is_rest():
            for _ in self._walk.read(chunks, self._go_on):
                yield self._part()
                if self._is_rest():
                    break
            else:
                self._check_end()
        if self._begin < self._slice.end:
            self._add_slice(self._slice.end)
        yield self._part()

    def _check_end(self) -> None:
        if self._position != self._slice.end:
            raise BinlogFormatError(
                f"binlog {self._slice.file}: expected events up to {self._slice.end}, found their end at "
                f"{self._position}"
            )

    def _part(self) -> Scouting:
        """The slices and statements since the last call."""
        part = Scouting(tuple(self._slices), tuple(self._statements), int(self._state[hop.EVENTS]))
        self._slices, self._statements, self._state[hop.EVENTS] = [], [], 0
        return part

    def _is_rest(self) -> bool:
        """Whether the range after the last cut becomes one slice, so that it need not be read."""
        left = self._slice.end - self._begin
        return self._skips_rest and (
            not is_worth_cutting(left, self._slice_bytes) or self._begin + self._slice_bytes > LAST_DUMP_POSITION
        )

    def _go_on(self) -> int:
        """Process the available bytes; returns MORE or DONE."""
        walk = self._walk
        while True:
            code = walk.run(lambda: hop.hop(walk.source.data, self._opening, walk.state, walk.checksum_size))
            match code:
                case hop.CUT:
                    self._cut("")
                case hop.CUT_INSIDE if not self._cuts_inside:
                    self._state[hop.CUTTABLE] = 0  # no cut until the next transaction
                case hop.CUT_INSIDE:
                    self._cut(self._gtid() or ANONYMOUS, self._commit_micros())
                case hop.LOOK:
                    self._look()
                case _:
                    return code

    def _look(self) -> None:
        """Process an event that the kernel does not read, such as a statement."""
        event = self._walk.event()
        if event is None:
            return
        _, kind, _, size, _, _ = HEADER.unpack_from(event)
        if kind in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            self._query(event)
        elif kind in OPENING or kind in ROWS:
            raise DamagedEvent(f"{name_of(kind)} of {size} bytes: a server writes none of that size")
        self._walk.skip_event(event)

    def _query(self, event: bytes) -> None:
        state = self._state
        header: Header = HEADER.unpack_from(event)
        compressed = header[1] == EventType.MARIADB_QUERY_COMPRESSED
        body = event[HEADER_SIZE : len(event) - self._walk.checksum_size]
        query = Query.parse(body, compressed=compressed)
        step = query.step
        if step is TransactionStep.BEGIN:
            if not state[hop.OPENED] and self._position >= state[hop.CUT_AT]:
                self._cut("")
            state[hop.CUTTABLE] = 1
        elif step in (TransactionStep.COMMIT, TransactionStep.ROLLBACK):
            state[hop.OPENED] = state[hop.CUTTABLE] = 0
        elif step is None and query.takes_effect:
            self._statements.append(query.statement(header, self._slice.file, self._position, self._gtid()))

    def _gtid(self) -> str:
        """The GTID of the current transaction."""
        size = int(self._state[hop.OPENING_SIZE])
        if not size:
            return self._slice.gtid
        event = self._opening[:size].tobytes()
        _, kind, server_id, _, _, _ = HEADER.unpack_from(event)
        return gtid_of(kind, server_id, event[HEADER_SIZE : size - self._walk.checksum_size])

    def _commit_micros(self) -> int:
        """The commit time of the current transaction, in microseconds since 1970; 0 if unknown."""
        size = int(self._state[hop.OPENING_SIZE])
        if not size:
            return self._slice.commit_micros
        event = self._opening[:size].tobytes()
        return commit_micros(event[4], event[HEADER_SIZE : size - self._walk.checksum_size])

    def _cut(self, gtid: str, commit_micros: int = 0) -> None:
        """End the slice here, unless the position is beyond the last position at which a dump can start."""
        if self._position > LAST_DUMP_POSITION:
            self._state[hop.CUT_AT] = self._slice.end + 1
            return
        self._add_slice(self._position)
        self._begin, self._begin_gtid, self._begin_commit = self._position, gtid, commit_micros
        self._begin_thread = int(self._state[hop.THREAD]) if gtid else 0
        self._state[hop.CUT_AT] = self._position + self._slice_bytes

    def _add_slice(self, end: int) -> None:
        self._slices.append(
            Slice(
                self._slice_count,
                self._slice.file,
                self._begin,
                end,
                self._begin_gtid,
                self._begin_commit,
                self._begin_thread,
            )
        )
        self._slice_count += 1
