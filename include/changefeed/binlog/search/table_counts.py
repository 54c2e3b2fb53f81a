"""What a part of a binlog holds by table, without decoding a row: for the plan of a backfill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from changefeed.binlog.search.schema_scan import scan_schemas
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
    for rows in scan_schemas(chunks, piece).rows:
        count = counts.setdefault(f"{rows.database}.{rows.table}", TableCounts())
        count.row_events += rows.row_events
        count.size_bytes += rows.size_bytes
