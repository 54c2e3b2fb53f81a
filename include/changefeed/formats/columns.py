"""Before, after and op as separate texts: what the `mysql_binlog` data source makes its columns of."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import Op, Slot, Template
from changefeed.table_schema import TableSchema

SEPARATOR = "\x1e"
"""ASCII's record separator: JSON text never holds it unescaped."""


@dataclass(frozen=True)
class ColumnsFormat:
    """op, row, timestamp, server_id, before and after, each ended by SEPARATOR but the last."""

    style: Style = DEFAULT_STYLE
    tombstones: bool = False

    def key(self, table: TableSchema) -> Template | None:
        return (Slot.KEY,) if table.primary_key else None

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002  # the same for each table
        return (
            f"{op}{SEPARATOR}",
            Slot.ROW,
            SEPARATOR,
            Slot.TS_SECONDS,
            SEPARATOR,
            Slot.SERVER_ID,
            SEPARATOR,
            Slot.BEFORE,
            SEPARATOR,
            Slot.AFTER,
        )
