"""The scout: reads the headers of a file's events and says where it can be cut into slices.

It looks at 19 bytes an event and decodes none but those that open a transaction or hold a statement, so it runs at
the speed at which the server sends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    OPENING,
    ROWS,
    DamagedEvent,
    EventType,
    FormatDescription,
    stands_in_file,
    whole_events,
)
from changefeed.binlog.events.gtids import gtid_of
from changefeed.binlog.events.query_event import Query, TransactionStep
from changefeed.coordinates import LAST_DUMP_POSITION
from changefeed.errors import BinlogFormatError
from changefeed.reader import Statement
from changefeed.window import ANONYMOUS, Slice

_STMT_END = 0x01
_FLAGS_OF_ROWS = slice(HEADER_SIZE + 6, HEADER_SIZE + 8)
_NOT_BEGIN = 0x01 | 0x40 | 0x80
"""MariaDB's GTID flags: standalone, prepared XA, completed XA."""


@dataclass(frozen=True)
class Scouting:
    """A file's part of a window, cut: its slices, numbered from 0, and the statements in it that are no framing."""

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...]
    events: int


def scout(chunks: Iterable[bytes | bytearray | memoryview], piece: Slice, slice_bytes: int) -> Scouting:
    """Cut ``piece`` into slices of about ``slice_bytes``, each begun at a commit boundary.

    Inside a transaction that is larger than that a slice begins after the end of a statement and carries the GTID.
    ``chunks`` are those that `decode` takes. Raises BinlogFormatError, with coordinates, when they end early or
    cannot be followed.
    """
    return _Scout(piece, slice_bytes).run(chunks)


class _Scout:
    def __init__(self, piece: Slice, slice_bytes: int) -> None:
        self._piece, self._slice_bytes = piece, slice_bytes
        self._position = piece.start
        self._slices: list[Slice] = []
        self._begin, self._begin_gtid = piece.start, piece.gtid
        self._gtid = piece.gtid
        self._opened = False
        self._cuttable = bool(piece.gtid)
        self._statements: list[Statement] = []
        self._events = 0
        self._checksum = 0

    def run(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Scouting:
        try:
            for kind, server_id, event in self._in_file(chunks):
                self._look(kind, server_id, event)
                self._position += len(event)
                self._events += 1
                if kind in ROWS and self._cuttable and int.from_bytes(event[_FLAGS_OF_ROWS], "little") & _STMT_END:
                    self._cut(self._gtid or ANONYMOUS)
        except DamagedEvent as damage:
            raise BinlogFormatError(f"binlog {self._piece.file}:{self._position}: {damage}") from damage
        if self._position != self._piece.end:
            raise BinlogFormatError(
                f"binlog {self._piece.file}: wanted to read up to {self._piece.end}, found its events end at "
                f"{self._position}"
            )
        if self._begin < self._piece.end:
            self._slices.append(
                Slice(len(self._slices), self._piece.file, self._begin, self._piece.end, self._begin_gtid)
            )
        return Scouting(tuple(self._slices), tuple(self._statements), self._events)

    def _in_file(self, chunks: Iterable[bytes | bytearray | memoryview]) -> Iterator[tuple[int, int, memoryview]]:
        """(type, server_id, bytes) of each event that stands in the file."""
        for event in whole_events(chunks, self._piece.size_bytes):
            _, kind, server_id, _, next_position, flags = HEADER.unpack_from(event)
            if kind == EventType.FORMAT_DESCRIPTION:
                self._checksum = CHECKSUM_SIZE * FormatDescription.parse(bytes(event[HEADER_SIZE:])).checksum
            if not stands_in_file(kind, next_position, flags, self._position):
                continue
            if self._position >= self._piece.end:
                return
            yield kind, server_id, event

    def _look(self, kind: int, server_id: int, event: memoryview) -> None:
        if kind in OPENING:
            self._cut("")
            body = bytes(event[HEADER_SIZE : len(event) - self._checksum])
            self._gtid = gtid_of(kind, server_id, body)
            # MariaDB writes no BEGIN: the GTID event is one, unless it stands for a statement alone or for XA.
            flags = int.from_bytes(body[12:13], "little")
            self._opened, self._cuttable = True, kind == EventType.MARIADB_GTID and not flags & _NOT_BEGIN
        elif kind in (EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED):
            self._query(event)
        elif kind in (EventType.XID, EventType.XA_PREPARE):
            self._opened = self._cuttable = False

    def _query(self, event: memoryview) -> None:
        seconds, kind, server_id, size, _, flags = HEADER.unpack_from(event)
        body = bytes(event[HEADER_SIZE : size - self._checksum])
        query = Query.parse(body, compressed=kind == EventType.MARIADB_QUERY_COMPRESSED)
        step = query.step
        if step is TransactionStep.BEGIN:
            if not self._opened:  # a server too old to write a GTID event before each transaction
                self._cut("")
            self._cuttable = True
        elif step in (TransactionStep.COMMIT, TransactionStep.ROLLBACK):
            self._opened = self._cuttable = False
        elif step is None:
            self._statements.append(
                Statement(
                    self._piece.file,
                    self._position,
                    seconds,
                    self._gtid,
                    query.database,
                    query.sql,
                    query.variables.hex(),
                    server_id,
                    size,
                    flags,
                )
            )

    def _cut(self, gtid: str) -> None:
        """End the slice before the event at hand, if it is large enough, and a dump can start there."""
        if self._position - self._begin >= self._slice_bytes and self._position <= LAST_DUMP_POSITION:
            self._slices.append(
                Slice(len(self._slices), self._piece.file, self._begin, self._position, self._begin_gtid)
            )
            self._begin, self._begin_gtid = self._position, gtid


def numbered(slices: Iterable[Slice]) -> list[Slice]:
    """Slices of several files, numbered through in binlog order."""
    return [replace(piece, number=number) for number, piece in enumerate(slices)]
