"""Finds the first change of a pipeline's own tables in a range of a binlog, within limits of bytes and CPU time.

It reads event by event and loads no kernel, as its callers are short: a status, a task of Airflow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from changefeed.binlog.events.framing import (
    CHECKSUM_SIZE,
    HEADER,
    HEADER_SIZE,
    OPENING,
    DamagedEvent,
    EventType,
    Fields,
    FormatDescription,
    complete_events,
    is_in_file,
)
from changefeed.binlog.events.table_map import TableMap
from changefeed.errors import BinlogFormatError
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates

if TYPE_CHECKING:  # what reads statements and payloads is imported at the first one: few statuses meet any
    from changefeed.ddl.session import Server

_STATEMENTS = frozenset({EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED, EventType.EXECUTE_LOAD_QUERY})
_EVENTS_BETWEEN_CLOCKS = 64
_LARGEST_STATEMENT = 1 << 13
"""Statements of more bytes are not parsed, and count as own changes: parsing 50 kB takes up to a second."""

Events = Callable[[str, int, int], Iterable[bytes]]
"""(file, start, end) -> the events in this range, after the FORMAT_DESCRIPTION. May end before a very large event."""


@dataclass(frozen=True)
class OwnTables:
    """The tables of a pipeline: ``matches`` of (database, table), ``may_have`` of a database. ``server`` reads DDL.

    With ``skips_statements``, rows that a statement changes (`binlog_format=STATEMENT`) are not published.
    """

    matches: Callable[[str, str], bool]
    may_have: Callable[[str], bool]
    server: Server
    skips_statements: bool = False


@dataclass(frozen=True)
class OwnChange:
    """The result of a search.

    - ``is_found`` says whether there is a change; None if the limits ended the search before it found one.
    - ``seconds`` is the Unix time of its transaction; of the first unread transaction if ``is_found`` is None; None if
      there is no change.
    - ``reached`` is a commit boundary: there is no change before it.
    """

    is_found: bool | None
    seconds: int | None
    reached: BinlogCoordinates


def find_own_change(
    ranges: Sequence[tuple[BinlogCoordinates, int]],
    events: Events,
    tables: OwnTables,
    *,
    most_bytes: int,
    cpu_seconds: float,
) -> OwnChange:
    """Search ``ranges`` (start, end position) of consecutive files, of which the first begins at a commit boundary.

    It ends at the limit of bytes, or of the CPU time of this thread. Raises BinlogFormatError for bytes that are not a
    sequence of events, and what ``events`` raises.
    """
    search = _Search(tables, most_bytes, time.thread_time() + cpu_seconds, ranges[0][0])
    for start, end in ranges:
        result = search.read_file(events(start.file, start.position, end), start, end)
        if result is not None:
            return result
    return OwnChange(False, None, BinlogCoordinates(ranges[-1][0].file, ranges[-1][1]))


class _Search:
    def __init__(self, tables: OwnTables, most_bytes: int, until: float, reached: BinlogCoordinates) -> None:
        self._tables, self._bytes_left, self._until = tables, most_bytes, until
        self._reached, self._seconds = reached, 0
        self._is_own: dict[tuple[str, str], bool] = {}
        self._count = 0
        self._has_read_statement = False

    def read_file(self, chunks: Iterable[bytes], start: BinlogCoordinates, end: int) -> OwnChange | None:
        """The result, if the search ends in this file."""
        position, checksum = start.position, 0
        try:
            for event in complete_events(chunks, end - start.position):
                seconds, kind, _, size, next_position, flags = HEADER.unpack_from(event)
                if kind == EventType.FORMAT_DESCRIPTION:
                    checksum = CHECKSUM_SIZE * FormatDescription.parse(bytes(event[HEADER_SIZE:])).checksum
                if not is_in_file(kind, next_position, flags, position):
                    continue
                if position >= end:
                    return None
                if kind in OPENING or start.position == position == FIRST_POSITION:
                    self._reached, self._seconds = BinlogCoordinates(start.file, position), seconds
                if self._is_over(size):
                    break
                if self._has_change(kind, event[HEADER_SIZE : len(event) - checksum]):
                    return OwnChange(True, self._seconds or seconds, self._reached)
                if self._bytes_left < 0:  # a payload was unpacked in part
                    break
                position += size
        except DamagedEvent as damage:
            raise BinlogFormatError(f"binlog {start.file}:{position}: {damage}") from damage
        return None if position >= end else OwnChange(None, self._seconds, self._reached)

    def _is_over(self, size: int) -> bool:
        self._bytes_left -= size
        self._count += 1
        is_late = self._count % _EVENTS_BETWEEN_CLOCKS == 0 and time.thread_time() > self._until
        return self._bytes_left < 0 or is_late

    def _has_change(self, kind: int, body: memoryview) -> bool:
        if kind == EventType.TABLE_MAP:
            return self._is_own_map(body)
        if kind in _STATEMENTS:
            return self._has_own_statement(kind, bytes(body))
        if kind == EventType.TRANSACTION_PAYLOAD:
            return any(self._has_change(inner, view) for inner, view in self._unpacked(bytes(body)))
        return kind == EventType.INCIDENT  # a run reports it

    def _is_own_map(self, body: memoryview) -> bool:
        _, database, table = TableMap.names(Fields(bytes(body[: 8 + 2 * 258])))
        name = (database, table)
        if name not in self._is_own:
            self._is_own[name] = self._tables.matches(*name)
        return self._is_own[name]

    def _has_own_statement(self, kind: int, body: bytes) -> bool:
        """See `_is_own_statement`. What the first statement takes does not count: it loads the code that reads
        statements, which takes as long as the search may."""
        if kind == EventType.QUERY and _text_of_query(body) in (b"BEGIN", b"COMMIT"):
            return False
        began = time.thread_time()
        is_own = self._is_own_statement(kind, body)
        if not self._has_read_statement:
            self._until += time.thread_time() - began
            self._has_read_statement = True
        return is_own

    def _is_own_statement(self, kind: int, body: bytes) -> bool:
        """Whether a statement may change own tables; also if its text does not show the tables."""
        if len(body) > _LARGEST_STATEMENT:
            return True
        from changefeed.binlog.events.query_event import Query, TransactionStep

        query = Query.parse(
            body,
            compressed=kind == EventType.MARIADB_QUERY_COMPRESSED,
            load=kind == EventType.EXECUTE_LOAD_QUERY,
        )
        if query.step is not None:
            return (
                query.step is TransactionStep.XA_COMMIT
            )  # publishes rows that were logged before, maybe of own tables
        from changefeed.ddl.ddl_statement import Kind, read_statement
        from changefeed.ddl.session import SessionContext

        read = read_statement(query.sql, SessionContext(query.database), self._tables.server)
        self._count = -1  # the clock is read before the next event, as this takes long
        if read.changes_rows and not self._tables.skips_statements:
            return True  # views, triggers and functions may change own tables
        if read.kind in (Kind.HARMLESS, Kind.TRANSACTION):
            return False
        if read.tables:
            return any(self._tables.matches(*name) for name in read.tables)
        return self._tables.may_have(query.database)

    def _unpacked(self, body: bytes) -> Iterator[tuple[int, memoryview]]:
        """Type and body of the events in a payload, within the limit of bytes. Those have no checksum."""
        from changefeed.binlog.events import payload

        size = 0
        unpacked = bytearray()
        for part in payload.parts(body):
            unpacked += part
            size += len(part)
            if size > self._bytes_left:
                break
        self._bytes_left -= size
        view, at = memoryview(bytes(unpacked)), 0
        while at + HEADER_SIZE <= len(view):
            _, kind, _, event_size, _, _ = HEADER.unpack_from(view, at)
            if event_size < HEADER_SIZE or at + event_size > len(view):
                return
            yield kind, view[at + HEADER_SIZE : at + event_size]
            at += event_size


def _text_of_query(body: bytes) -> bytes:
    """The statement's text in a QUERY event; see `Query.parse`, whose import costs more than a status."""
    fields = Fields(body)
    fields.take(8)
    database_size = fields.number(1)
    fields.take(2)
    fields.take(fields.number(2) + database_size + 1)
    return fields.take(fields.left)
