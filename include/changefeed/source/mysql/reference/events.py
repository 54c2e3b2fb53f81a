"""Converts raw events into mysql-replication's event objects.

Events are cut by changefeed's own code, so that no event of an unknown type is skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymysql.protocol import MysqlPacket
from pymysqlreplication import event as library_event
from pymysqlreplication import row_event
from pymysqlreplication.packet import BinLogPacketWrapper

from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, EventType
from changefeed.errors import BinlogFormatError

DECODED = {
    EventType.QUERY: library_event.QueryEvent,
    EventType.XID: library_event.XidEvent,
    EventType.TABLE_MAP: row_event.TableMapEvent,
    EventType.WRITE_ROWS_V1: row_event.WriteRowsEvent,
    EventType.UPDATE_ROWS_V1: row_event.UpdateRowsEvent,
    EventType.DELETE_ROWS_V1: row_event.DeleteRowsEvent,
    EventType.ROWS_QUERY: library_event.RowsQueryLogEvent,
    EventType.WRITE_ROWS: row_event.WriteRowsEvent,
    EventType.UPDATE_ROWS: row_event.UpdateRowsEvent,
    EventType.DELETE_ROWS: row_event.DeleteRowsEvent,
    EventType.GTID: library_event.GtidEvent,
    EventType.MARIADB_ANNOTATE_ROWS: library_event.MariadbAnnotateRowsEvent,
    EventType.MARIADB_GTID: library_event.MariadbGtidEvent,
}
"""mysql-replication's classes, by the types of events that are decoded."""


@dataclass(frozen=True)
class RawEvent:
    """One event: its bytes, and the fields of its header."""

    data: bytes
    ts_seconds: int
    type: int
    server_id: int
    next_position: int
    flags: int

    @property
    def size_bytes(self) -> int:
        """Size of the event with its header and checksum."""
        return len(self.data)


def raw_events(chunks: Iterable[bytes]) -> Iterator[RawEvent]:
    """Yield the events in consecutive chunks of bytes; a chunk can end inside an event."""
    held = b""
    for chunk in chunks:
        held = held + chunk if held else bytes(chunk)
        at = 0
        while len(held) - at >= HEADER_SIZE:
            ts_seconds, kind, server_id, size, next_position, flags = HEADER.unpack_from(held, at)
            if size < HEADER_SIZE:
                raise BinlogFormatError(f"an event claims {size} bytes; its header alone has {HEADER_SIZE}")
            if len(held) - at < size:
                break
            yield RawEvent(held[at : at + size], ts_seconds, kind, server_id, next_position, flags)
            at += size
        held = held[at:]
    if held:
        raise BinlogFormatError(f"the binlog ends inside an event: {len(held)} bytes are left over")


class LibraryDecoder:
    """Decodes raw events by mysql-replication, and stores the table maps that later events need."""

    def __init__(self, is_mariadb: bool, version: tuple[int, int]) -> None:
        self.tables: dict[int, Any] = {}
        self._version = (*version, 0)
        self._connection = _ConnectionStub("mariadb" if is_mariadb else "mysql")
        self._has_checksum = True

    def format_description(self, raw: RawEvent) -> None:
        """Read from a FORMAT_DESCRIPTION event whether events have checksums; drops the table maps."""
        self.tables.clear()
        self._has_checksum = raw.data[-5] == 1

    def decode(self, raw: RawEvent, where: str) -> Any:
        """mysql-replication's object for ``raw``; raises BinlogFormatError if it fails."""
        data = raw.data if self._has_checksum else raw.data + b"\0\0\0\0"  # it always expects a checksum
        if not self._has_checksum:
            data = data[:9] + struct.pack("<I", len(data)) + data[13:]
        try:
            wrapped = BinLogPacketWrapper(
                MysqlPacket(b"\0" + data, "utf8mb4"),
                self.tables,
                self._connection,
                self._version,
                True,
                frozenset(DECODED.values()),
                None,
                None,
                None,
                None,
                False,
                False,
                False,
                True,
                False,
            )
            if isinstance(wrapped.event, row_event.RowsEvent):
                _ = wrapped.event.rows
        except Exception as error:
            raise BinlogFormatError(
                f"mysql-replication cannot decode event type {raw.type} at {where}: {type(error).__name__}: {error}. "
                "Use the pipeline's default reader, which knows all types."
            ) from error
        return wrapped.event


@dataclass(frozen=True)
class _ConnectionStub:
    """The two properties of the control connection that mysql-replication uses."""

    dbms: str
    charset: str = "utf8mb4"

    def _get_dbms(self) -> str:
        return self.dbms
