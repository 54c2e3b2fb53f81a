"""The format `event`: binlog events as JSON. A message is a rows event with all of its rows, or a QUERY event.

The fields have the names of attributes in mysql-replication.

Source: https://github.com/julien-duponchelle/python-mysql-replication, `pymysqlreplication/event.py` and `row_event.py`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.formats.format import FormatSettings, TableChange
from changefeed.formats.notation import JSON, Notation, json_string
from changefeed.formats.options import Options
from changefeed.formats.reader import Envelope, JsonImage, ReadChange, RecordReader, SchemaText, envelopes_of
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template, join_rows
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header

_STYLE = {
    Kind.DECIMAL: Encoding.STRING,
    Kind.BIGINT_UNSIGNED: Encoding.NUMBER,
    **dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), Encoding.ISO),
}
"""Encodings of plain JSON that lose no part of a value."""
_EVENTS: dict[Op, str] = {"c": "WriteRowsEvent", "u": "UpdateRowsEvent", "d": "DeleteRowsEvent", "r": "Row"}
_QUERY = "QueryEvent"


@dataclass(frozen=True)
class EventFormat:
    """The format `event`, whose messages have no key. ``style`` has the encodings of values."""

    style: Style
    notation: Notation = JSON
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> EventFormat:
        """The format with ``settings``; raises OptionError for any option, as it has none."""
        Options("event", (), settings.options)
        return cls(Style({**_STYLE, **settings.style.chosen}))

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:  # noqa: ARG002 - the protocol's signature
        """No key."""
        return None

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """One message for each change, and no tombstones."""
        return ONE_MESSAGE_EACH

    @property
    def joins_rows(self) -> bool:
        """True: a message has all rows of an event."""
        return True

    @property
    def statements_to_named(self) -> bool:
        """True: records of statements go to all tables that the statement names."""
        return True

    def value(self, table: TableSchema, op: Op) -> Template:
        """The value: a rows event. A row that a SELECT read has no event, so it has no fields of an event's header."""
        row: Template = (b'{"values":', Slot.BEFORE if op == "d" else Slot.AFTER, b"}")
        if op == "u":
            row = (b'{"before_values":', Slot.BEFORE, b',"after_values":', Slot.AFTER, b"}")
        header: Template = (
            b',"event_type":',
            Slot.EVENT_TYPE,
            b',"event_size":',
            Slot.EVENT_SIZE,
            b',"log_pos":',
            Slot.EVENT_END,
            b',"flags":',
            Slot.EVENT_FLAGS,
            Slot.PARTITION_INFO,
        )
        key = [table.columns[number].name for number in table.primary_key]
        head: Template = (
            b'{"event":"%b","timestamp":' % _EVENTS[op].encode(),
            Slot.TS_SECONDS,
            b',"server_id":',
            Slot.SERVER_ID,
            *(header if op != "r" else ()),
            b',"log_file":"',
            Slot.FILE,
            b'","schema":%b,"table":%b,"primary_key":%b,"rows":['
            % (json_string(table.database), json_string(table.table), orjson.dumps(key)),
        )
        return join_rows(op, head, row, b"]}")

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """The reader of records, which have no keys. The record of a statement has only its text."""
        return RecordReader(_changes_of, has_keys=False, envelopes=envelopes_of(_envelopes))

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:  # noqa: ARG002
        """The statement's QUERY event."""
        return _query(statement, statement.sql)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None: TRUNCATE is published as a statement, if `publish_ddl` is set."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:  # noqa: ARG002
        """The statement's QUERY event, without its text if ``hide_sql`` is set."""
        return _query(statement, "" if hide_sql else statement.sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()


def _query(statement: Statement, sql: str) -> bytes:
    return orjson.dumps(
        {
            "event": _QUERY,
            "timestamp": statement.ts_seconds,
            "server_id": statement.server_id,
            "event_type": 2,
            "event_size": statement.size_bytes,
            "log_pos": statement.position + statement.size_bytes,
            "flags": statement.flags,
            "log_file": statement.file,
            "schema": statement.database,
            "error_code": statement.error_code,
            "query": sql,
        }
    )


_OPS = {event: op for op, event in _EVENTS.items()}


def _changes_of(value: Any) -> list[ReadChange]:
    if value["event"] == _QUERY:
        return [ReadChange("s", value["schema"], sql=value["query"])]
    return [
        ReadChange(change.op, f"{change.database}.{change.table}", change.before, change.after)
        for change in _envelopes(value)
    ]


def _envelopes(value: Any) -> list[Envelope]:
    if value["event"] == _QUERY:
        return []
    op = _OPS[value["event"]]
    return [
        Envelope(
            op,
            value["schema"],
            value["table"],
            *_images(op, row),
            value["log_file"],
            value.get("log_pos", 0),
            ends=True,
        )
        for row in value["rows"]
    ]


def _images(op: Op, row: Any) -> tuple[JsonImage | None, JsonImage | None]:
    if op == "u":
        return row["before_values"], row["after_values"]
    return (row["values"], None) if op == "d" else (None, row["values"])
