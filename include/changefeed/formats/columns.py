"""The format of the data source `mysql_binlog`: op, before and after as separate columns."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.formats.notation import JSON, Notation
from changefeed.formats.style import DEFAULT_STYLE, Style
from changefeed.formats.template import DELETE_AND_CREATE, Messages, Op, Slot, Template
from changefeed.model.table_schema import TableSchema

SEPARATOR = b"\x1e"
"""The record separator of ASCII, which JSON text never has unescaped."""


@dataclass(frozen=True)
class ColumnsFormat:
    """Values with op, row, timestamp, server_id, before and after, separated by SEPARATOR."""

    style: Style = DEFAULT_STYLE
    notation: Notation = JSON
    needs_definitions: bool = False

    def key(self, table: TableSchema) -> Template | None:
        """The primary key's columns as a JSON object; None for a table without a primary key."""
        return (Slot.KEY,) if table.primary_key else None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """A change of key is two rows of the data frame: d and c."""
        return DELETE_AND_CREATE

    def value(self, table: TableSchema, op: Op) -> Template:  # noqa: ARG002 - the same for each table
        """The fields of the class's docstring, in that order."""
        return (
            op.encode() + SEPARATOR,
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
