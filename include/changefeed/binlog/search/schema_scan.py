"""What a part of a binlog says about schemas without decoding a row: its statements, and how rows of each table come.

The kernel goes from header to header at the speed of the dump; Python sees statements and table maps that are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from changefeed.binlog.events import payload
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, ROWS, EventType, Fields
from changefeed.binlog.events.query_event import Header, Query
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.kernel import hop, layout
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.binlog.kernel.row_counts import row_counts
from changefeed.binlog.kernel.table_index import TableIndex
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.coordinates import BinlogCoordinates
from changefeed.reader import Statement
from changefeed.window import Slice

_WORDS = 2
_TABLE_ID = 6
_CHANGE_ROWS = ("INSERT ", "UPDATE ", "DELETE ", "REPLACE")
"""What a session in statement format logs most, and what no schema follows from: not to be held in memory."""


@dataclass(frozen=True)
class TableRows:
    """The rows events of a table between two statements that come with the same TABLE_MAP.

    ``body`` is the TABLE_MAP behind its table id, ``first`` where the first such TABLE_MAP is. ``size_bytes`` are those
    of the rows events.
    """

    database: str
    table: str
    body: bytes
    first: BinlogCoordinates
    row_events: int
    size_bytes: int

    def table_map(self, *, is_mariadb: bool) -> TableMap:
        """The TABLE_MAP; raises DamagedEvent where it cannot be read."""
        return TableMap.parse(bytes(_TABLE_ID) + self.body, is_mariadb)


@dataclass(frozen=True)
class SchemaScan:
    """The statements of a range that may change schemas, and the rows between them; both in binlog order."""

    statements: tuple[Statement, ...] = ()
    rows: tuple[TableRows, ...] = ()

    def followed_by(self, other: SchemaScan) -> SchemaScan:
        """This range and the one after it."""
        return SchemaScan(self.statements + other.statements, self.rows + other.rows)


def scan_schemas(chunks: Iterable[bytes | bytearray | memoryview], piece: Slice) -> SchemaScan:
    """Scan ``piece``, whose bytes are ``chunks``. Raises BinlogFormatError, with coordinates, for bytes that cannot be
    followed."""
    scan = _Scan(piece)
    for _ in scan.walk.read(chunks, scan.go_on):
        pass
    scan.end_of_rows()
    return SchemaScan(tuple(scan.statements), tuple(scan.rows))


class _Scan:
    def __init__(self, piece: Slice) -> None:
        self.walk = EventWalk(piece)
        self.statements: list[Statement] = []
        self.rows: list[TableRows] = []
        self._file = piece.file
        self._tables: Words = np.zeros(layout.STATE_WORDS, np.int64)
        self._index = TableIndex(self._tables)
        self._bodies: Bytes = np.zeros(1 << 14, np.uint8)
        self._bodies_end = 0
        self._addresses: dict[bytes, int] = {}
        self._slots: dict[bytes, int] = {}
        """By the bytes of a TABLE_MAP the place of its two counts; all since the last statement."""
        self._uncounted: dict[bytes, TableRows] = {}
        self._counts: Words = np.zeros(_WORDS * 64, np.int64)

    def go_on(self) -> int:
        walk = self.walk
        while True:
            code = walk.run(
                lambda: row_counts(
                    walk.source.data,
                    walk.state,
                    walk.checksum_size,
                    self._tables,
                    self._index.words,
                    self._bodies,
                    self._counts,
                )
            )
            if code != hop.LOOK:
                return code
            event = walk.event()
            if event is not None:
                self._look(event)
                walk.pass_over(event)

    def _look(self, event: bytes) -> None:
        header: Header = HEADER.unpack_from(event)
        body = event[HEADER_SIZE : len(event) - self.walk.checksum_size]
        match event[4]:
            case EventType.TABLE_MAP:
                slot = self._slot(body[_TABLE_ID:])
                self._index.put(Fields(body).number(_TABLE_ID), slot, self._address(body[_TABLE_ID:]), len(body) - 6)
            case EventType.TRANSACTION_PAYLOAD:
                self._inside(payload.parts(body))
            case EventType.QUERY | EventType.MARIADB_QUERY_COMPRESSED as kind:
                query = Query.parse(body, compressed=kind == EventType.MARIADB_QUERY_COMPRESSED)
                if query.step is None and not query.sql[:7].upper().startswith(_CHANGE_ROWS):
                    self.statements.append(query.statement(header, self._file, self.walk.position, ""))
                    self.end_of_rows()

    def _inside(self, parts: Iterable[bytes]) -> None:
        """Count the rows events of a compressed transaction; their events have no checksums."""
        slots: dict[int, int] = {}
        for event in _events(b"".join(parts)):
            kind, body = event[4], event[HEADER_SIZE:]
            if kind == EventType.TABLE_MAP:
                slots[Fields(body).number(_TABLE_ID)] = self._slot(body[_TABLE_ID:])
            elif kind in ROWS and (slot := slots.get(Fields(body).number(_TABLE_ID))) is not None:
                self._counts[slot] += 1
                self._counts[slot + 1] += len(event)

    def _slot(self, body: bytes) -> int:
        """Where the words of a TABLE_MAP's rows are."""
        if body not in self._slots:
            _, database, table = TableMap.names(Fields(bytes(_TABLE_ID) + body))
            first = BinlogCoordinates(self._file, self.walk.position)
            self._uncounted[body] = TableRows(database, table, body, first, 0, 0)
        at = self._slots.setdefault(body, _WORDS * len(self._slots))
        if at == len(self._counts):
            self._counts = np.append(self._counts, np.zeros_like(self._counts))
        return at

    def _address(self, body: bytes) -> int:
        """Where the kernel finds the bytes of a TABLE_MAP behind its table id, which are kept once."""
        if body not in self._addresses:
            at, end = self._bodies_end, self._bodies_end + len(body)
            if end > len(self._bodies):
                self._bodies = np.append(self._bodies, np.zeros(end, np.uint8))
            self._bodies[at:end] = np.frombuffer(body, np.uint8)
            self._addresses[body], self._bodies_end = at, end
        return self._addresses[body]

    def end_of_rows(self) -> None:
        """Note the rows since the last statement: what comes next counts anew, be its table maps the same."""
        for body, at in self._slots.items():
            row_events, size_bytes = self._counts[at : at + _WORDS].tolist()
            if row_events:
                self.rows.append(replace(self._uncounted[body], row_events=row_events, size_bytes=size_bytes))
        self._counts[: _WORDS * len(self._slots)] = 0
        self._slots.clear()
        self._uncounted.clear()
        self._index.clear()


def _events(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + HEADER_SIZE <= len(data):
        size = HEADER.unpack_from(data, at)[3]
        if size < HEADER_SIZE:
            return  # whoever decodes it says what is wrong
        yield data[at : at + size]
        at += size
