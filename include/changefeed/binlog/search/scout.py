"""The scout: reads the headers of a file's events and says where it can be cut into slices.

A kernel hops from header to header (`kernel/hop.py`), and Python sees only the events where a cut is due and those that
hold a statement: so it runs at the speed at which the server sends.
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
    chunks: Iterable[bytes | bytearray | memoryview], piece: Slice, slice_bytes: int, *, cuts_inside: bool = True
) -> Scouting:
    """Cut ``piece`` into slices of about ``slice_bytes``, each begun at a commit boundary.

    Inside a transaction that is larger than that a slice begins after the end of a statement and carries the GTID;
    without ``cuts_inside`` none does.
    ``chunks`` are those that `decode` takes. Raises BinlogFormatError, with coordinates, when they end early or
    cannot be followed.
    """
    parts = list(_Scout(piece, slice_bytes, skips_rest=False, cuts_inside=cuts_inside).parts(chunks))
    return Scouting(
        tuple(piece for part in parts for piece in part.slices),
        tuple(statement for part in parts for statement in part.statements),
        sum(part.events for part in parts),
    )


def scout_in_parts(
    chunks: Iterable[bytes | bytearray | memoryview], piece: Slice, slice_bytes: int, *, cuts_inside: bool = True
) -> Iterator[Scouting]:
    """As `scout`, and yield after each chunk what it made known: slices, and at least the statements before them.

    Where the rest of ``piece`` is not worth cutting, it is the last slice, and is not read: its statements are not
    listed.
    """
    return _Scout(piece, slice_bytes, skips_rest=True, cuts_inside=cuts_inside).parts(chunks)


class _Scout:
    def __init__(self, piece: Slice, slice_bytes: int, *, skips_rest: bool, cuts_inside: bool) -> None:
        self._piece, self._slice_bytes, self._skips_rest = piece, slice_bytes, skips_rest
        self._cuts_inside = cuts_inside
        self._slice_count = 0
        self._slices: list[Slice] = []
        self._begin, self._begin_gtid = piece.start, piece.gtid
        self._begin_commit, self._begin_thread = piece.commit_micros, piece.thread
        self._statements: list[Statement] = []
        self._opening: Bytes = np.empty(hop.LARGEST_OPENING, np.uint8)
        self._walk = EventWalk(piece)
        self._state = self._walk.state
        self._state[hop.CUT_AT] = piece.start + slice_bytes
        self._state[hop.CUTTABLE] = bool(piece.gtid)
        self._state[hop.THREAD] = piece.thread

    @property
    def _position(self) -> int:
        return self._walk.position

    def parts(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[Scouting]:
        """What each chunk makes known."""
        if not self._is_rest():
            for _ in self._walk.read(chunks, self._go_on):
                yield self._part()
                if self._is_rest():
                    break
            else:
                self._check_end()
        if self._begin < self._piece.end:
            self._add_slice(self._piece.end)
        yield self._part()

    def _check_end(self) -> None:
        if self._position != self._piece.end:
            raise BinlogFormatError(
                f"binlog {self._piece.file}: wanted to read up to {self._piece.end}, found its events end at "
                f"{self._position}"
            )

    def _part(self) -> Scouting:
        """What came to be known since the last one."""
        part = Scouting(tuple(self._slices), tuple(self._statements), int(self._state[hop.EVENTS]))
        self._slices, self._statements, self._state[hop.EVENTS] = [], [], 0
        return part

    def _is_rest(self) -> bool:
        """Whether what follows the last cut is one slice, and need not be read."""
        left = self._piece.end - self._begin
        return self._skips_rest and (
            not is_worth_cutting(left, self._slice_bytes) or self._begin + self._slice_bytes > LAST_DUMP_POSITION
        )

    def _go_on(self) -> int:
        """Go on as far as bytes are there; MORE or DONE."""
        walk = self._walk
        while True:
            code = walk.run(lambda: hop.hop(walk.source.data, self._opening, walk.state, walk.checksum_size))
            match code:
                case hop.CUT:
                    self._cut("")
                case hop.CUT_INSIDE if not self._cuts_inside:
                    self._state[hop.CUTTABLE] = 0  # until the next transaction
                case hop.CUT_INSIDE:
                    self._cut(self._gtid() or ANONYMOUS, self._commit_micros())
                case hop.LOOK:
                    self._look()
                case _:
                    return code

    def _look(self) -> None:
        """Pass over an event that is no more than framing, or holds a statement."""
        event = self._walk.event()
        if event is None:
            return
        _, kind, _, size, _, _ = HEADER.unpack_from(event)
        if kind in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            self._query(event)
        elif kind in OPENING or kind in ROWS:
            raise DamagedEvent(f"{name_of(kind)} of {size} bytes: a server writes none of that size")
        self._walk.pass_over(event)

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
            self._statements.append(query.statement(header, self._piece.file, self._position, self._gtid()))

    def _gtid(self) -> str:
        """That of the transaction at hand."""
        size = int(self._state[hop.OPENING_SIZE])
        if not size:
            return self._piece.gtid
        event = self._opening[:size].tobytes()
        _, kind, server_id, _, _, _ = HEADER.unpack_from(event)
        return gtid_of(kind, server_id, event[HEADER_SIZE : size - self._walk.checksum_size])

    def _commit_micros(self) -> int:
        """When the transaction at hand was committed; 0 where nothing says it."""
        size = int(self._state[hop.OPENING_SIZE])
        if not size:
            return self._piece.commit_micros
        event = self._opening[:size].tobytes()
        return commit_micros(event[4], event[HEADER_SIZE : size - self._walk.checksum_size])

    def _cut(self, gtid: str, commit_micros: int = 0) -> None:
        """End the slice here, where one of its size is due; none is behind the last position of a dump."""
        if self._position > LAST_DUMP_POSITION:
            self._state[hop.CUT_AT] = self._piece.end + 1
            return
        self._add_slice(self._position)
        self._begin, self._begin_gtid, self._begin_commit = self._position, gtid, commit_micros
        self._begin_thread = int(self._state[hop.THREAD]) if gtid else 0
        self._state[hop.CUT_AT] = self._position + self._slice_bytes

    def _add_slice(self, end: int) -> None:
        self._slices.append(
            Slice(
                self._slice_count,
                self._piece.file,
                self._begin,
                end,
                self._begin_gtid,
                self._begin_commit,
                self._begin_thread,
            )
        )
        self._slice_count += 1
