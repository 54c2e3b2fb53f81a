"""What a part of a binlog holds by table, without decoding a row: for the plan of a backfill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, ROWS, EventType, whole_events


@dataclass
class TableCounts:
    """Events that carry rows, and their bytes. How many rows are in them only decoding tells."""

    row_events: int = 0
    size_bytes: int = 0


def count_rows(chunks: Iterable[bytes], counts: dict[str, TableCounts]) -> None:
    """Add the row events of ``chunks`` to ``counts``, by "database.table"."""
    names: dict[int, str] = {}
    for event in whole_events(chunks):
        _, kind, _, size, _, _ = HEADER.unpack_from(event)
        if kind == EventType.TABLE_MAP:
            body = bytes(event[HEADER_SIZE:])
            names[int.from_bytes(body[:6], "little")] = _name(body)
        elif kind in ROWS:
            name = names.get(int.from_bytes(event[HEADER_SIZE : HEADER_SIZE + 6], "little"))
            if name is not None:
                count = counts.setdefault(name, TableCounts())
                count.row_events += 1
                count.size_bytes += size


def _name(body: bytes) -> str:
    """Table id (6), flags (2), then database and table: a length byte, the name, a null byte."""
    database_end = 9 + body[8]
    table_end = database_end + 2 + body[database_end + 1]
    return f"{body[9:database_end].decode()}.{body[database_end + 2 : table_end].decode()}"
