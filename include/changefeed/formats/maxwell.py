"""The format `maxwell`: Maxwell's JSON, with `database`, `table`, `type`, `ts`, `data`, and `old` for changed columns.

The options have the names, values and defaults of Maxwell's settings, except `bootstrap_type`, which Maxwell does not
have.
Sources: https://maxwells-daemon.io/dataformat/ and https://maxwells-daemon.io/config/#output-config
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.errors import SettingsError
from changefeed.formats.format import FormatSettings, TableChange
from changefeed.formats.notation import ColumnText, JsonNotation, Notation, json_string
from changefeed.formats.options import Options, choice, flag
from changefeed.formats.reader import ReadChange, RecordReader, SchemaText
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Messages, Op, Slot, Template
from changefeed.model.statement import Statement
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import Header

_STYLE = Style(
    {
        Kind.DECIMAL: Encoding.DOUBLE,
        **dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), Encoding.SQL),
        Kind.SET: Encoding.ARRAY,
        Kind.JSON: Encoding.INLINE,
    }
)
"""The encodings of values in Maxwell."""

KEY = choice("kafka_key_format", "hash", "array")
POSITION = flag("output_binlog_position", False)
GTID = flag("output_gtid_position", False)
SERVER_ID = flag("output_server_id", False)
QUERY = flag("output_row_query", False)
NULLS = flag("output_nulls", True)
COMMIT = flag("output_commit_info", True)
OFFSETS = flag("output_xoffset", True)
BOOTSTRAP = choice("bootstrap_type", "bootstrap-insert", "insert")
OPTIONS = (KEY, POSITION, GTID, SERVER_ID, QUERY, NULLS, COMMIT, OFFSETS, BOOTSTRAP)

_TYPES: Mapping[Op, str] = {"c": "insert", "u": "update", "d": "delete"}
_VERBS = frozenset({"create", "alter", "drop"})


@dataclass(frozen=True)
class _KeyNotation(JsonNotation):
    """The notation of keys: columns in lower case, as `"pk.id":1`, or as `{"id":1}` in an array."""

    opening: bytes = b""
    closing: bytes = b""
    array: bool = False

    def column(self, column: Column) -> ColumnText:
        name = column.name.lower()
        if not self.array:
            return super().column(Column(f"pk.{name}", column.data_type))
        text = b"{" + json_string(name) + b":"
        return ColumnText(text, text + b"null}", after=b"}")


@dataclass(frozen=True)
class _MaxwellNotation(JsonNotation):
    """The notation of rows as JSON objects. The name `old` is a part of its slot, as it is missing without changes."""

    nulls: bool = True
    array: bool = False

    def column(self, column: Column) -> ColumnText:
        text = super().column(column)
        return text if self.nulls else ColumnText(text.value, b"")

    def of(self, slot: Slot) -> Notation:
        match slot:
            case Slot.KEY:
                return _KeyNotation(array=self.array)
            case Slot.CHANGED:
                return JsonNotation(opening=b',"old":{')
        return self

    def absent(self, slot: Slot) -> bytes:
        return b"" if slot is Slot.CHANGED else super().absent(slot)


@dataclass(frozen=True)
class MaxwellFormat:
    """The format `maxwell`. ``notation`` depends on ``options``."""

    options: Options
    notation: Notation
    style: Style = _STYLE
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> MaxwellFormat:
        """The format with ``settings``.

        Raises OptionError for an invalid option, and SettingsError for a style, because Maxwell has its own encodings.
        """
        options = Options("maxwell", OPTIONS, settings.options)
        if settings.style.chosen:
            raise SettingsError("format 'maxwell' writes values by Maxwell's rules: leave `values` out")
        return cls(options, _MaxwellNotation(nulls=options[NULLS], array=options[KEY] == "array"))

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """Database, table and primary key. Without a primary key, the event id replaces the random UUID of Maxwell."""
        names = json.dumps([table.database, table.table], ensure_ascii=False, separators=(",", ":")).encode()
        if self.options[KEY] == "array":
            return (names[:-1] + b",[", Slot.KEY, b"]]") if table.primary_key else (names[:-1] + b",[]]",)
        head = b'{"database":%b,"table":%b,' % (json_string(table.database), json_string(table.table))
        if not table.primary_key:
            return (head + b'"_uuid":"', Slot.EVENT_ID, b'"}')
        return (head, Slot.KEY, b"}")

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        """One message for each change, also for a change of key, and no tombstones, as in Maxwell."""
        return ONE_MESSAGE_EACH

    def value(self, table: TableSchema, op: Op) -> Template:
        """The value: the record of a row change."""
        names = (json_string(table.database), json_string(table.table))
        kind = self.options[BOOTSTRAP] if op == "r" else _TYPES[op]
        template: Template = (b'{"database":%b,"table":%b,"type":"%b","ts":' % (*names, kind.encode()),)
        template += (Slot.TS_SECONDS,)
        if self.options[COMMIT] and op != "r":
            template += (Slot.COMMIT_INFO_OFFSET if self.options[OFFSETS] else Slot.COMMIT_INFO,)
        if self.options[POSITION]:
            template += (b',"position":"', Slot.FILE, b":", Slot.EVENT_END, b'"')
        if self.options[GTID]:
            template += (b',"gtid":', Slot.GTID)
        if self.options[SERVER_ID]:
            template += (b',"server_id":', Slot.SERVER_ID)
        if self.options[QUERY]:
            template += (b',"query":', Slot.QUERY)
        return (*template, b',"data":', Slot.BEFORE if op == "d" else Slot.AFTER, Slot.CHANGED, b"}")

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """The reader of records. Keys do not identify rows, as a change of key is one record with the new key only."""
        return RecordReader(_change_of, has_keys=False)

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """`table-create`, `table-alter`, `table-drop`, or `database-…` for a statement about no table.

        Each statement has one record. If it changes several tables, `others` has all but the first.
        """
        verb = kind.lower() if kind.lower() in _VERBS else "alter"
        tables = [
            {"database": database, "table": table, **({"def": _definition(schema)} if schema else {})}
            for database, table, schema in changes
        ]
        record: dict[str, Any] = {
            "type": f"{'table' if tables else 'database'}-{verb}",
            **(tables[0] if tables else {"database": statement.database}),
            "ts": statement.ts_seconds * 1000,
            "sql": statement.sql,
        }
        if len(tables) > 1:
            record["others"] = tables[1:]
        return orjson.dumps({**record, **self._where(statement)})

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None, because Maxwell has no such record."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """A record of type `statement`, which Maxwell does not have."""
        record = {
            "type": "statement",
            "database": statement.database,
            "ts": statement.ts_seconds,
            "sql": None if hide_sql else statement.sql,
            "tables": [f"{database}.{table}" for database, table in tables],
        }
        return orjson.dumps({**record, **self._where(statement)})

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()

    def _where(self, statement: Statement) -> dict[str, object]:
        where: dict[str, object] = {}
        if self.options[POSITION]:
            where["position"] = f"{statement.file}:{statement.position + statement.size_bytes}"
        if self.options[GTID]:
            where["gtid"] = statement.gtid or None
        return where


def _change_of(value: Any) -> ReadChange:
    table, row = f"{value.get('database')}.{value.get('table')}", value.get("data")
    match value["type"]:
        case "insert" | "bootstrap-insert":
            return ReadChange("c", table, None, row)
        case "update":
            return ReadChange("u", table, {**row, **value.get("old", {})}, row)
        case "delete":
            return ReadChange("d", table, row, None)
        case "statement":
            return ReadChange("q")
        case _:
            return ReadChange("")


def _definition(schema: TableSchema) -> dict[str, object]:
    return {
        "database": schema.database,
        "table": schema.table,
        "columns": [_column(column) for column in schema.columns],
        "primary-key": [schema.columns[index].name for index in schema.primary_key],
    }


_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})


def _column(column: Column) -> dict[str, object]:
    definition: dict[str, object] = {"type": column.data_type, "name": column.name}
    if column.data_type in _INTEGERS:
        definition["signed"] = not column.unsigned
    if column.collation:
        definition["charset"] = column.collation.partition("_")[0]
    if column.labels:
        definition["enum-values"] = list(column.labels)
    return definition
