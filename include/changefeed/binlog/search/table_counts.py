"""What a part of a binlog holds by table, without decoding a row: for the plan of a backfill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.binlog.events.framing import (
    HEADER,
    HEADER_SIZE,
    ROWS,
    DamagedEvent,
    EventType,
    Fields,
    stands_in_file,
    whole_events,
)
from changefeed.errors import BinlogFormatError
from changefeed.window import Slice


@dataclass
class TableCounts:
    """Events that carry rows, and their bytes. How many rows are in them only decoding tells."""

    row_events: int = 0
    size_bytes: int = 0


def count_rows(chunks: Iterable[bytes], counts: dict[str, TableCounts], piece: Slice) -> None:
    """Add the row events of ``chunks``, those of ``piece``, to ``counts``, by "database.table".

    Raises BinlogFormatError, with coordinates, for bytes that cannot be followed.
    """
    names: dict[int, str] = {}
    position = piece.start
    try:
        for event in whole_events(chunks, piece.size_bytes):
            _, kind, _, size, next_position, flags = HEADER.unpack_from(event)
            if kind == EventType.TABLE_MAP:
                body = Fields(bytes(event[HEADER_SIZE:]))
                table_id = body.number(6)
                names[table_id] = _name(body)
            elif kind in ROWS:
                name = names.get(int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + 6], "little"))
                if name is not None:
                    count = counts.setdefault(name, TableCounts())
                    count.row_events += 1
                    count.size_bytes += size
            if stands_in_file(kind, next_position, flags, position):
                position += size
    except DamagedEvent as damage:
        raise BinlogFormatError(f"binlog {piece.file}:{position}: {damage}") from damage


def _name(body: Fields) -> str:
    """After the table id: flags (2), then database and table: a length byte, the name, a null byte."""
    body.take(2)
    database = body.take(body.number(1)).decode("utf-8", "replace")
    body.take(1)
    return f"{database}.{body.take(body.number(1)).decode('utf-8', 'replace')}"
