"""Scans a range of a binlog for schemas: its statements, and the number of rows of each table.

The kernel counts the rows without decoding them, at the speed of the dump. Python reads statements and new table maps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from changefeed.binlog.events import payload, rewrite
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, ROWS, DamagedEvent, EventType, Fields
from changefeed.binlog.events.query_event import Header, Query
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.kernel import hop, layout
from changefeed.binlog.kernel.row_counts import COUNTS, row_counts, rows_in
from changefeed.binlog.kernel.table_index import TableIndex
from changefeed.binlog.programs.codecs import size_of
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.search.event_walk import EventWalk
from changefeed.model import column_types
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.native.memory import Bytes, Words

_TABLE_ID = 6
_CHANGE_ROWS = ("INSERT ", "UPDATE ", "DELETE ", "REPLACE")
"""Statements that change no schema. A session in statement format logs many of them, so the scan does not store
them."""


@dataclass(frozen=True)
class TableRows:
    """The rows of a table between two statements that come with the same TABLE_MAP.

    ``body`` is the TABLE_MAP after its table id, ``first`` the position of the first such TABLE_MAP. ``rows`` is the
    number of rows, ``size_bytes`` the size of their events.
    """

    database: str
    table: str
    body: bytes
    first: BinlogCoordinates
    rows: int
    size_bytes: int

    def table_map(self, *, is_mariadb: bool) -> TableMap:
        """The TABLE_MAP; raises DamagedEvent if it cannot be read."""
        return TableMap.parse(bytes(_TABLE_ID) + self.body, is_mariadb)


@dataclass(frozen=True)
class SchemaScan:
    """The statements of a range that may change schemas, and the rows between them; both in binlog order."""

    statements: tuple[Statement, ...] = ()
    rows: tuple[TableRows, ...] = ()

    def followed_by(self, other: SchemaScan) -> SchemaScan:
        """The scan of this range and of ``other``, the range after it."""
        return SchemaScan(self.statements + other.statements, self.rows + other.rows)


def scan_schemas(chunks: Iterable[bytes | bytearray | memoryview], slice: Slice) -> SchemaScan:
    """The scan of ``slice``, whose bytes are ``chunks``.

    Raises BinlogFormatError, with coordinates, for bytes that are not a sequence of events."""
    scan = Scan(slice)
    for _ in scan.walk.read(chunks, scan.go_on):
        pass
    scan.end_of_rows()
    return SchemaScan(tuple(scan.statements), tuple(scan.rows))


class Scan:
    """Counts the rows of each TABLE_MAP of ``slice`` between statements, while its bytes are read."""

    def __init__(self, slice: Slice) -> None:
        self.walk = EventWalk(slice)
        self.statements: list[Statement] = []
        self.rows: list[TableRows] = []
        self._file = slice.file
        self._tables: Words = np.zeros(layout.STATE_WORDS, np.int64)
        self._index = TableIndex(self._tables)
        self._bodies: Bytes = np.zeros(1 << 14, np.uint8)
        self._bodies_end = 0
        self._addresses: dict[bytes, int] = {}
        self._slots: dict[bytes, int] = {}
        """The address of the counts since the last statement, by the bytes of a TABLE_MAP."""
        self._uncounted: dict[bytes, TableRows] = {}
        self._counts: Words = np.zeros(COUNTS * 64, np.int64)
        self._columns = ProgramMemory()
        self._placed: dict[bytes, int] = {}

    def go_on(self) -> int:
        """Read the available bytes; returns a code of `hop`."""
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
                    self._columns.words,
                )
            )
            if code != hop.LOOK:
                return code
            event = walk.event()
            if event is not None:
                self._look(event)
                walk.skip_event(event)

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
                changes_rows = query.sql[:7].upper().startswith(_CHANGE_ROWS)
                if query.step is None and query.takes_effect and not changes_rows:
                    self.statements.append(query.statement(header, self._file, self.walk.position, ""))
                    self.end_of_rows()
            case kind if kind in rewrite.COMPRESSED_TYPES:
                if (known := self._index.table(rewrite.table_id_of(body))) is not None:
                    self._count(known, self._compressed_rows(known, event, body), len(event))

    def _inside(self, parts: Iterable[bytes]) -> None:
        """Count the rows of a compressed transaction; their events have no checksums."""
        slots: dict[int, int] = {}
        for event in _events(b"".join(parts)):
            kind, body = event[4], event[HEADER_SIZE:]
            if kind == EventType.TABLE_MAP:
                slots[Fields(body).number(_TABLE_ID)] = self._slot(body[_TABLE_ID:])
            elif kind in ROWS and (slot := slots.get(Fields(body).number(_TABLE_ID))) is not None:
                self._count(slot, self._rows_in(slot, event), len(event))

    def _count(self, slot: int, rows: int, size_bytes: int) -> None:
        self._counts[slot] += rows
        self._counts[slot + 1] += size_bytes

    def _rows_in(self, slot: int, event: bytes) -> int:
        """The number of rows of a rows event without a checksum."""
        data = np.frombuffer(bytearray(event), np.uint8)
        return rows_in(data, 0, self._columns.words, self._counts[slot + 2])

    def _compressed_rows(self, slot: int, event: bytes, body: bytes) -> int:
        try:
            return self._rows_in(slot, rewrite.inflate_event(event, body, event[4]))
        except DamagedEvent:  # the decoder reports the damage
            return 1

    def _slot(self, body: bytes) -> int:
        """The address of the words of a TABLE_MAP's counts."""
        if body not in self._slots:
            _, database, table = TableMap.names(Fields(bytes(_TABLE_ID) + body))
            first = BinlogCoordinates(self._file, self.walk.position)
            self._uncounted[body] = TableRows(database, table, body, first, 0, 0)
        at = self._slots.setdefault(body, COUNTS * len(self._slots))
        if at == len(self._counts):
            self._counts = np.append(self._counts, np.zeros_like(self._counts))
        self._counts[at + 2] = self._columns_of(body)
        return at

    def _columns_of(self, body: bytes) -> int:
        """The address of the sizes of a TABLE_MAP's columns, for the kernel."""
        if body not in self._placed:
            try:
                columns = TableMap.parse(bytes(_TABLE_ID) + body).columns
                json = sum(column.wire is column_types.JSON for column in columns)
                sizes = (size for column in columns for size in size_of(column, self._columns))
                words = [len(columns), json, *sizes]
            except DamagedEvent:  # the decoder reports the damage
                words = [-1]
            self._placed[body] = self._columns.place_words(words)
        return self._placed[body]

    def _address(self, body: bytes) -> int:
        """The address of the bytes of a TABLE_MAP after its table id, which are stored once, for the kernel."""
        if body not in self._addresses:
            at, end = self._bodies_end, self._bodies_end + len(body)
            if end > len(self._bodies):
                self._bodies = np.append(self._bodies, np.zeros(end, np.uint8))
            self._bodies[at:end] = np.frombuffer(body, np.uint8)
            self._addresses[body], self._bodies_end = at, end
        return self._addresses[body]

    def end_of_rows(self) -> None:
        """Add the rows since the last statement to the result, and reset the counts."""
        for body, at in self._slots.items():
            rows, size_bytes, _ = self._counts[at : at + COUNTS].tolist()
            if rows:
                self.rows.append(replace(self._uncounted[body], rows=rows, size_bytes=size_bytes))
        self._counts[: COUNTS * len(self._slots)] = 0
        self._slots.clear()
        self._uncounted.clear()
        self._index.clear()


def _events(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + HEADER_SIZE <= len(data):
        size = HEADER.unpack_from(data, at)[3]
        if size < HEADER_SIZE:
            return  # the decoder reports the damage
        yield data[at : at + size]
        at += size


@dataclass
class TableCounts:
    """The number of rows of a table, and the bytes of their events."""

    rows: int = 0
    size_bytes: int = 0


def count_rows(chunks: Iterable[bytes], counts: dict[str, TableCounts], slice: Slice) -> None:
    """Add the rows of ``slice``, whose bytes are ``chunks``, to ``counts``, by "database.table".

    Raises BinlogFormatError, with coordinates, for bytes that are not a sequence of events.
    """
    for rows in scan_schemas(chunks, slice).rows:
        count = counts.setdefault(f"{rows.database}.{rows.table}", TableCounts())
        count.rows += rows.rows
        count.size_bytes += rows.size_bytes
