"""What Debezium's MySQL connector writes, as Kafka Connect's JSON converter spells it.

Options have the names, values and defaults that they have there. Sources:
https://debezium.io/documentation/reference/stable/connectors/mysql.html, and the connector itself, which a test runs
beside this.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import orjson

from changefeed import __version__
from changefeed.block import Header
from changefeed.formats import connect_schema
from changefeed.formats.column_defaults import with_default
from changefeed.formats.connect_json import ConnectNotation, schema_literal
from changefeed.formats.connect_schema import ConnectSchema, value_schema
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.format import FormatSettings, TableChange
from changefeed.formats.notation import json_string
from changefeed.formats.options import Option, Options, choice, flag, text
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import (
    CREATED,
    CREATED_ANEW,
    DELETED,
    READ,
    TOMBSTONE,
    UPDATED,
    Change,
    Messages,
    Op,
    RowMessage,
    Slot,
    Template,
)
from changefeed.reader import Statement
from changefeed.table_schema import TableSchema

_SKIPPABLE = ("c", "u", "d", "t")


def _operations(name: str) -> Option[frozenset[str]]:
    """The option called ``name``: operations with commas between them, or `none`."""

    def read(given: object) -> frozenset[str]:
        words = frozenset(word.strip() for word in given.split(",")) if isinstance(given, str) else frozenset()
        if not words or not (words == {"none"} or words <= set(_SKIPPABLE)):
            raise ValueError(f"none, or some of {', '.join(_SKIPPABLE)} with commas between them")
        return words - {"none"}

    return Option(name, frozenset({"t"}), read)


SCHEMAS = flag("schemas", default=False)
PREFIX = text("topic.prefix", "")
DECIMALS = choice("decimal.handling.mode", "precise", "double", "string")
TIMES = choice("time.precision.mode", "adaptive_time_microseconds", "microseconds")
BIGINTS = choice("bigint.unsigned.handling.mode", "long", "precise")
BINARIES = choice("binary.handling.mode", "bytes", "base64", "hex")
TOMBSTONES = flag("tombstones.on.delete", default=True)
SKIPPED = _operations("skipped.operations")
QUERIES = flag("include.query", default=False)
OPTIONS = (SCHEMAS, PREFIX, DECIMALS, TIMES, BIGINTS, BINARIES, TOMBSTONES, SKIPPED, QUERIES)

_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def connector_style(options: Options, chosen: Mapping[Kind, Encoding]) -> Style:
    """How the options say that values are written; ``chosen`` comes before them."""
    micros = options[TIMES] == "microseconds"
    return Style(
        {
            Kind.DECIMAL: Encoding(options[DECIMALS]),
            Kind.BIGINT_UNSIGNED: Encoding(options[BIGINTS]),
            Kind.DATE: Encoding.EPOCH,
            Kind.TIME: Encoding.MICROS,
            Kind.DATETIME: Encoding.MICROS if micros else Encoding.EPOCH,
            Kind.TIMESTAMP: Encoding.ZONED,
            Kind.BIT: Encoding.CONNECT,
            Kind.BINARY: Encoding.HEX if options[BINARIES] == "hex" else Encoding.BASE64,
            Kind.GEOMETRY: Encoding.CONNECT,
            **chosen,
        }
    )


@dataclass(frozen=True)
class ConnectorFormat:
    """``prefix`` is the connector's `topic.prefix`, ``ts_ms`` when the window was frozen."""

    prefix: str
    ts_ms: int
    style: Style
    schemas: bool = False
    tombstones: bool = True
    skipped: frozenset[str] = SKIPPED.default
    queries: bool = False
    binary_text: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> ConnectorFormat:
        """The format as ``settings`` say; raises OptionError for options that it does not have."""
        options = Options("debezium", OPTIONS, settings.options)
        return cls(
            options[PREFIX] or settings.server_name,
            settings.ts_ms,
            connector_style(options, settings.style.chosen),
            options[SCHEMAS],
            options[TOMBSTONES] and settings.tombstones,
            options[SKIPPED],
            options[QUERIES],
            options[BINARIES] != "bytes",
        )

    @cached_property
    def notation(self) -> ConnectNotation:
        """JSON as Connect has it."""
        return ConnectNotation(style=self.style)

    @property
    def needs_definitions(self) -> bool:
        """Schemas say defaults."""
        return self.schemas

    # --- schemas

    def _row(self, table: TableSchema, name: str, columns: Sequence[int]) -> ConnectSchema:
        described = [(table.columns[index].name, self._column(table, index)) for index in columns]
        return connect_schema.row_schema(f"{connect_schema.prefix_of(self.prefix, table)}.{name}", described)

    def _column(self, table: TableSchema, index: int) -> ConnectSchema:
        column = table.columns[index]
        schema = with_default(value_schema(column, Style({**self.style.chosen, Kind.BINARY: Encoding.BASE64})), column)
        hexed = self.style[Kind.BINARY] is Encoding.HEX
        if schema.type is not connect_schema.Type.BYTES or schema.name is not None or not (self.binary_text or hexed):
            return schema
        default = schema.default
        if isinstance(default, bytes):
            default = default.hex() if hexed else base64.b64encode(default).decode()
        return replace(schema, type=connect_schema.Type.STRING, default=default)

    def _with_schema(self, schema: ConnectSchema, payload: Template) -> Template:
        return (schema_literal(schema), *payload, b"}")

    def _envelope(self, table: TableSchema) -> ConnectSchema:
        row = self._row(table, "Value", range(len(table.columns)))
        return connect_schema.envelope(connect_schema.prefix_of(self.prefix, table), row)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The key's columns as a struct; None for a table without one."""
        if not table.primary_key:
            return None
        if not self.schemas:
            return (Slot.KEY,)
        return self._with_schema(self._row(table, "Key", table.primary_key), (Slot.KEY,))

    def messages(self, table: TableSchema) -> Messages:
        """A change of key is a delete that names the new one, its tombstone, and a create that names the old one.

        Operations that are skipped become no message.
        """
        deleted = (DELETED, TOMBSTONE) if self.tombstones and table.primary_key else (DELETED,)
        moved = tuple(replace(message, headers=((_NEW_KEY, (Slot.KEY_AFTER,)),)) for message in deleted)
        created = replace(CREATED_ANEW, headers=((_OLD_KEY, (Slot.KEY_BEFORE,)),))
        updates: dict[Change, tuple[RowMessage, ...]] = {
            Change.UPDATE: (UPDATED,),
            Change.KEY_CHANGE: (*moved, created),
        }
        return {
            Change.READ: (READ,),
            Change.CREATE: () if "c" in self.skipped else (CREATED,),
            Change.DELETE: () if "d" in self.skipped else deleted,
            **(dict.fromkeys(updates, ()) if "u" in self.skipped else updates),
        }

    def value(self, table: TableSchema, op: Op) -> Template:
        """The envelope of a row change."""
        payload: Template = (
            b'{"before":',
            Slot.BEFORE,
            b',"after":',
            Slot.AFTER,
            b',"source":{"version":"%b","connector":"mysql","name":%b,"ts_ms":'
            % (__version__.encode(), json_string(self.prefix)),
            Slot.TS_MILLIS,
            b',"snapshot":"',
            Slot.SNAPSHOT,
            b'","db":%b,"sequence":null,"ts_us":' % json_string(table.database),
            Slot.TS_MICROS,
            b',"ts_ns":',
            Slot.TS_NANOS,
            b',"table":%b,"server_id":' % json_string(table.table),
            Slot.SERVER_ID,
            b',"gtid":',
            Slot.GTID,
            b',"file":"',
            Slot.FILE,
            b'","pos":',
            Slot.POSITION,
            b',"row":',
            Slot.ROW,
            b',"thread":',
            Slot.THREAD,
            b',"query":',
            Slot.QUERY if self.queries else b"null",
            b'},"transaction":null,"op":"%b",%b}' % (op.encode(), self._processed()),
        )
        return self._with_schema(self._envelope(table), payload) if self.schemas else payload

    def _processed(self) -> bytes:
        return b'"ts_ms":%d,"ts_us":%d,"ts_ns":%d' % (self.ts_ms, self.ts_ms * 1000, self.ts_ms * 1_000_000)

    # --- statements

    @property
    def _records(self) -> DebeziumFormat:
        """What writes the records of statements."""
        return DebeziumFormat(self.prefix, self.ts_ms, self.style, self.tombstones)

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """As the format `debezium-json` writes it, without a schema."""
        return self._records.schema_change(statement, kind, changes)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """Op `t`; None where it is skipped, as it is by default."""
        if "t" in self.skipped:
            return None
        moments = {"ts_ms": 1000, "ts_us": 1_000_000, "ts_ns": 1_000_000_000}
        times = {name: statement.ts_seconds * each for name, each in moments.items()}
        source = {
            "version": __version__,
            "connector": "mysql",
            "name": self.prefix,
            "ts_ms": times["ts_ms"],
            "snapshot": "false",
            "db": table.database,
            "sequence": None,
            "ts_us": times["ts_us"],
            "ts_ns": times["ts_ns"],
            "table": table.table,
            "server_id": statement.server_id,
            "gtid": statement.gtid or None,
            "file": statement.file,
            "pos": statement.position,
            "row": 0,
            "thread": None,
            "query": None,
        }
        fields = {"before": None, "after": None, "source": source, "transaction": None, "op": "t"}
        payload = orjson.dumps(fields)[:-1] + b"," + self._processed() + b"}"
        return schema_literal(self._envelope(table)) + payload + b"}" if self.schemas else payload

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """As the format `debezium-json` writes it, without a schema: Debezium has no such record."""
        return self._records.statement(statement, tables, hide_sql=hide_sql)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The binlog event's own header as JSON."""
        return self._records.statement_headers(statement)
