"""The record headers that a pipeline's setting `headers` adds to messages of any format.

Every record also has the headers of event id and GTID, which are not set here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.format import (
    Format,
    Numbering,
    Shown,
    TableChange,
    TransactionRecords,
    joins_rows,
    member_fault,
    numbering_of,
    statements_to_named,
    transactions_of,
)
from changefeed.formats.notation import Notation
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.formats.style import Style
from changefeed.formats.template import Messages, Op, RowMessage, Slot, Template
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header

BINLOG_HEADER = "mysql_binlog_headers"
"""The name of the header that has the binlog event's header as JSON."""
QUERY_EVENT = 2
"""The type of binlog events with statements."""

_BINLOG_HEADER: Template = (
    b'{"timestamp":',
    Slot.TS_SECONDS,
    b',"event_type":',
    Slot.EVENT_TYPE,
    b',"server_id":',
    Slot.SERVER_ID,
    b',"event_size":',
    Slot.EVENT_SIZE,
    b',"log_file":"',
    Slot.FILE,
    b'","log_pos":',
    Slot.EVENT_END,
    b',"flags":',
    Slot.EVENT_FLAGS,
    b"}",
)

HEADERS: Mapping[str, Callable[[TableSchema, RowMessage], Template]] = {
    BINLOG_HEADER: lambda _table, _message: _BINLOG_HEADER,
    "table": lambda table, _message: (f"{table.database}.{table.table}".encode(),),
    "op": lambda _table, message: ((message.op or "d").encode(),),
    "transaction_id": lambda _table, _message: (Slot.GTID_TEXT,),
    "xid": lambda _table, _message: (Slot.XID_TEXT,),
    "ts_ms": lambda _table, _message: (Slot.TS_SECONDS, b"000"),
}
"""The headers of a row message, by name.

- `table`: DATABASE.TABLE
- `op`: c, u, d or r; d for a tombstone
- `transaction_id`: the GTID; empty if the source has none
- `xid`: the xid of an XA transaction; empty for other transactions
- `ts_ms`: the time at which the source wrote the event"""


def check_headers(names: Sequence[str]) -> None:
    """Raises SettingsError if ``names`` has an unknown or a repeated name."""
    for name in names:
        if name not in HEADERS:
            raise SettingsError(
                f"unknown header {name!r}{did_you_mean(name, HEADERS)}; valid headers: {', '.join(HEADERS)}"
            )
        if names.count(name) > 1:
            raise SettingsError(f"header {name!r} is given {names.count(name)} times: expected once")


def _binlog_header(statement: Statement) -> bytes:
    """The header of the binlog event of ``statement``, as JSON."""
    fields = {
        "timestamp": statement.ts_seconds,
        "event_type": QUERY_EVENT,
        "server_id": statement.server_id,
        "event_size": statement.size_bytes,
        "log_file": statement.file,
        "log_pos": statement.position + statement.size_bytes,
        "flags": statement.flags,
    }
    return orjson.dumps(fields)


@dataclass(frozen=True)
class WithHeaders:
    """The messages of ``format`` with the headers ``names``, after the headers that the format adds.

    Rows that a SELECT read have no binlog event, so they do not get `mysql_binlog_headers`.
    """

    format: Format
    names: tuple[str, ...]

    @property
    def style(self) -> Style:
        """The style of ``format``."""
        return self.format.style

    @property
    def notation(self) -> Notation:
        """The notation of ``format``."""
        return self.format.notation

    @property
    def needs_definitions(self) -> bool:
        """Whether ``format`` needs definitions."""
        return self.format.needs_definitions

    @property
    def joins_rows(self) -> bool:
        """Whether ``format`` joins rows."""
        return joins_rows(self.format)

    @property
    def statements_to_named(self) -> bool:
        """Whether ``format`` sends records of statements to all tables that they name."""
        return statements_to_named(self.format)

    @property
    def numbering(self) -> Numbering | None:
        """The numbering of ``format``."""
        return numbering_of(self.format)

    @property
    def transactions(self) -> TransactionRecords | None:
        """The records of transactions of ``format``, without the headers ``names``."""
        return transactions_of(self.format)

    def member_fault(self, name: str, value: object) -> str | None:
        """The reason why records of ``format`` cannot have a further member; None if they can."""
        return member_fault(self.format, name, value)

    def messages(self, table: TableSchema) -> Messages:
        """The messages of ``format``, with headers."""
        return {
            change: tuple(self._with_headers(table, message) for message in made)
            for change, made in self.format.messages(table).items()
        }

    def _with_headers(self, table: TableSchema, message: RowMessage) -> RowMessage:
        names = [name for name in self.names if message.op != "r" or name != BINLOG_HEADER]
        return replace(message, headers=(*message.headers, *((name, HEADERS[name](table, message)) for name in names)))

    def key(self, table: TableSchema) -> Template | None:
        """The key of ``format``."""
        return self.format.key(table)

    def value(self, table: TableSchema, op: Op) -> Template:
        """The value of ``format``."""
        return self.format.value(table, op)

    def show(self, message: bytes) -> bytes:
        """The JSON that ``format`` shows; ``message`` itself if the format is not binary."""
        return self.format.show(message) if isinstance(self.format, Shown) else message

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """The reader of ``format``."""
        return self.format.reader(schemas)

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """The record of ``format``."""
        return self.format.schema_change(statement, kind, changes)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """The record of ``format``."""
        return self.format.truncate(statement, table)

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """The record of ``format``."""
        return self.format.statement(statement, tables, hide_sql=hide_sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The headers of ``format``, and those of ``names`` that apply to a statement."""
        values = {
            BINLOG_HEADER: _binlog_header(statement),
            "transaction_id": statement.gtid.encode(),
            "ts_ms": b"%d" % (statement.ts_seconds * 1000),
        }
        named = ((name, values[name]) for name in self.names if name in values)
        return [*self.format.statement_headers(statement), *named]
