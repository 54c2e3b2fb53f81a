"""Writes the values of a format as lines of a text file, as `changefeed decode FILE...` prints them."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from changefeed.formats.format import RowFormat, Shown, TransactionRecords, joins_rows, transactions_of
from changefeed.formats.notation import Notation
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Template
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema


@dataclass(frozen=True)
class LineFormat:
    """A format for lines with the values of the format ``values``.

    Each row change is one message; there are no keys and no tombstones.
    """

    values: RowFormat

    @property
    def style(self) -> Style:
        """That of ``values``."""
        return self.values.style

    @property
    def notation(self) -> Notation:
        """That of ``values``."""
        return self.values.notation

    @property
    def needs_definitions(self) -> bool:
        """As ``values`` say."""
        return self.values.needs_definitions

    @property
    def transactions(self) -> TransactionRecords | None:
        """Those of ``values``."""
        return transactions_of(self.values)

    @property
    def joins_rows(self) -> bool:
        """As ``values`` say."""
        return joins_rows(self.values)

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the protocol's signature
        """One message for each change. A change of the key is an update."""
        return ONE_MESSAGE_EACH

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """None: lines have no keys."""
        return None

    def value(self, table: TableSchema, op: Op) -> Template:
        """That of ``values``."""
        return self.values.value(table, op)

    def line(self, value: bytes) -> bytes:
        """The line of a row change; ``value`` is the value of its message."""
        return self.values.show(value) if isinstance(self.values, Shown) else value

    def statement(self, statement: Statement) -> bytes:
        """The line of a statement of any kind: `{"op":"q","source":{...},"sql":...}`."""
        source = {
            "ts_ms": statement.ts_seconds * 1000,
            "db": statement.database,
            "gtid": statement.gtid or None,
            "file": statement.file,
            "pos": statement.position,
        }
        return orjson.dumps({"op": "q", "source": source, "sql": statement.sql})
