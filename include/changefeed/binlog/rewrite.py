"""Rows events that are turned into plain ones before the kernel reads them."""

from __future__ import annotations

from changefeed.binlog.framing import EventType
from changefeed.binlog.table_map import ColumnType, TableMap

TYPES = frozenset(
    {
        EventType.PARTIAL_UPDATE_ROWS,
        EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1,
        EventType.MARIADB_UPDATE_ROWS_COMPRESSED_V1,
        EventType.MARIADB_DELETE_ROWS_COMPRESSED_V1,
        EventType.MARIADB_WRITE_ROWS_COMPRESSED,
        EventType.MARIADB_UPDATE_ROWS_COMPRESSED,
        EventType.MARIADB_DELETE_ROWS_COMPRESSED,
    }
)


def is_needed(table_map: TableMap) -> bool:
    """Whether the table has MariaDB COMPRESSED columns."""
    compressed = (ColumnType.MARIADB_BLOB_COMPRESSED, ColumnType.MARIADB_VARCHAR_COMPRESSED)
    return any(column.type in compressed for column in table_map.columns)
