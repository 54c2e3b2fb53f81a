"""The format `avro`: Debezium's envelope in Confluent's framing, which is a zero byte, a schema id, and Avro's binary.

Sources: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format,
https://debezium.io/documentation/reference/stable/configuration/avro.html
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import orjson

from changefeed import __version__
from changefeed.errors import SchemaError, SettingsError
from changefeed.formats import connect_schema
from changefeed.formats.avro_binary import FIRST, SECOND, encode, read
from changefeed.formats.avro_notation import AvroNotation
from changefeed.formats.avro_reader import FRAME_BYTES, MAGIC, RegisteredRecords
from changefeed.formats.avro_schema import avro_text
from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.debezium import NEW_KEY, OLD_KEY
from changefeed.formats.debezium_options import (
    BIGINTS,
    BINARIES,
    DECIMALS,
    PREFIX,
    QUERIES,
    TIMES,
    TOMBSTONES,
    connector_style,
)
from changefeed.formats.envelope import change_of
from changefeed.formats.format import FormatSettings, RowRules, TableChange
from changefeed.formats.options import Options, choice, text
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.formats.schema_ids import Part, SchemaIds, SubjectNames
from changefeed.formats.style import Style
from changefeed.formats.table_changes import table_changes
from changefeed.formats.template import (
    ABSENT_IMAGE,
    DELETE_AND_CREATE,
    NO_SNAPSHOT,
    ONE_MESSAGE_EACH,
    WITH_TOMBSTONES,
    ChangeKind,
    Messages,
    Op,
    Slot,
    Template,
)
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header
from changefeed.records.varint import encode_bytes, encode_varint

REGISTRY = text("registry", "")
"""The connection id of the schema registry. Without it schemas have local numbers, for messages that are not stored."""
_ON_INCOMPATIBLE = choice("on_incompatible", "stop", "register")
"""The action of a run if a schema violates the compatibility rule of its subject."""
_DECIMALS = choice(DECIMALS.name, "precise", "string")
"""Debezium's values except `double`."""
_PRECISIONS = choice(TIMES.name, "adaptive_time_microseconds", "microseconds")
_BINARIES = choice(BINARIES.name, "bytes", "base64", "hex")
"""Debezium's values that Avro can have with these types."""
_KEY_SUBJECTS = choice("key.subject.name.strategy", *SubjectNames)
_VALUE_SUBJECTS = choice("value.subject.name.strategy", *SubjectNames)
"""Options with the names of Confluent's converter."""
OPTIONS = (
    REGISTRY, _ON_INCOMPATIBLE, PREFIX, _DECIMALS, _PRECISIONS, BIGINTS, _BINARIES, TOMBSTONES, QUERIES,
    _KEY_SUBJECTS, _VALUE_SUBJECTS,
)  # fmt: skip
DEFAULT_STYLE = connector_style(Options("avro", OPTIONS, {}), {})
"""Debezium's defaults."""

_NULL = FIRST
_TIMES = (("ts_ms", 1), ("ts_us", 1000), ("ts_ns", 1_000_000))
"""The fields of a time, and the number of their units in a millisecond."""


_RULES = RowRules(keyless="unique")
"""The row rules of Debezium, whose key for a table without a primary key is the unique key that serves as one."""


@dataclass(frozen=True)
class AvroFormat:
    """The format `avro`.

    ``server_name`` is the connector's `topic.prefix`. ``ts_ms`` is the time at which the window was frozen. ``ids``
    returns the schema ids of keys and values. Methods raise the errors of ``ids``.
    """

    server_name: str
    ts_ms: int
    ids: SchemaIds
    style: Style = DEFAULT_STYLE
    tombstones: bool = True
    queries: bool = False
    binary_text: bool = False
    subjects: Mapping[Part, SubjectNames] = field(default_factory=dict)
    """The subject name strategies; `TopicNameStrategy` for a part that is missing."""
    needs_definitions: bool = True
    row_rules: RowRules = _RULES
    _made: dict[int, ConnectSchema] = field(default_factory=dict, compare=False, repr=False)
    """The used schemas by id, for `show`."""

    @classmethod
    def of(cls, settings: FormatSettings) -> AvroFormat:
        """The format with ``settings``; raises OptionError for an invalid option."""
        options = Options("avro", OPTIONS, settings.options)
        return cls(
            options[PREFIX] or settings.server_name,
            settings.ts_ms,
            settings.schema_ids,
            connector_style(options, {}),
            options[TOMBSTONES] and settings.tombstones,
            options[QUERIES],
            options[_BINARIES] != "bytes",
            {"key": SubjectNames(options[_KEY_SUBJECTS]), "value": SubjectNames(options[_VALUE_SUBJECTS])},
        )

    @cached_property
    def notation(self) -> AvroNotation:
        """The notation of Avro."""
        return AvroNotation(self.style, self.binary_text)

    # --- schemas

    def key_schema(self, table: TableSchema) -> ConnectSchema:
        """The schema of a table's keys, a struct."""
        columns = [table.columns[index] for index in table.primary_key]
        return connect_schema.row_schema(
            f"{self._prefix(table)}.Key", [(column.name, self.notation.type_of(column)) for column in columns]
        )

    def value_schema(self, table: TableSchema) -> ConnectSchema:
        """The schema of a table's values: the envelope of changes."""
        prefix = self._prefix(table)
        columns = [(column.name, self.notation.type_of(column)) for column in table.columns]
        return connect_schema.envelope(prefix, connect_schema.row_schema(f"{prefix}.Value", columns))

    def show(self, message: bytes) -> bytes:
        """A key or a value as the JSON of Connect, with bytes in base64."""
        schema = self._made[int.from_bytes(message[1:FRAME_BYTES], "big")]
        value, _ = read(schema, memoryview(message), FRAME_BYTES)
        return orjson.dumps(value, default=lambda data: base64.b64encode(data).decode())

    def schema_text(self, number: int) -> str:
        """The Avro schema with this id. Raises KeyError for an unknown id."""
        return avro_text(self._made[number])

    def _add_header(self, table: TableSchema, part: Part, schema: ConnectSchema) -> bytes:
        """The bytes before a record of ``schema``: magic byte and schema id."""
        names = self.subjects.get(part, SubjectNames.TOPIC)
        schema_id = self.ids.of_table(table, part, avro_text(schema), names)
        self._made[schema_id] = schema
        return _frame(schema_id)

    def _prefix(self, table: TableSchema) -> str:
        return connect_schema.prefix_of(self.server_name, table)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The primary key's columns as a record; None for a table without a primary key."""
        if not table.primary_key:
            return None
        return (self._add_header(table, "key", self.key_schema(table)), Slot.KEY)

    def messages(self, table: TableSchema) -> Messages:
        """The messages of each kind of change. A change of key has three:

        1. a delete, with the new key in a header
        2. its tombstone
        3. a create, with the old key in a header
        """
        if not table.primary_key:
            return ONE_MESSAGE_EACH
        frame = self._add_header(table, "key", self.key_schema(table))
        messages = WITH_TOMBSTONES if self.tombstones else DELETE_AND_CREATE
        *gone, created = messages[ChangeKind.KEY_CHANGE]
        moved = (replace(message, headers=((NEW_KEY, (frame, Slot.KEY_AFTER)),)) for message in gone)
        named = replace(created, headers=((OLD_KEY, (frame, Slot.KEY_BEFORE)),))
        return {**messages, ChangeKind.KEY_CHANGE: (*moved, named)}

    def value(self, table: TableSchema, op: Op) -> Template:
        """The envelope of a row change."""
        absent = ABSENT_IMAGE.get(op)
        return (
            self._add_header(table, "value", self.value_schema(table)),
            *((Slot.BEFORE,) if absent is Slot.BEFORE else (SECOND, Slot.BEFORE)),
            *((Slot.AFTER,) if absent is Slot.AFTER else (SECOND, Slot.AFTER)),
            _text(__version__) + _text("mysql") + _text(self.server_name),
            Slot.TS_MILLIS,
            Slot.SNAPSHOT,
            _text(table.database) + _NULL,  # sequence
            Slot.TS_MICROS,
            Slot.TS_NANOS,
            SECOND + _text(table.table),
            Slot.SERVER_ID,
            Slot.GTID,
            Slot.FILE,
            Slot.POSITION,
            Slot.ROW,
            _NULL,  # thread
            Slot.QUERY if self.queries else _NULL,
            _NULL + _text(op),  # transaction
            *(SECOND + encode_varint(self.ts_ms * times) for _, times in _TIMES),
        )

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:
        """The reader of envelopes, which uses the schema ids of records."""
        return RecordReader(change_of, load=RegisteredRecords(schemas or self.schema_text))

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """The record of a schema change, with the fields of the Debezium format."""
        schema = connect_schema.schema_change(self.server_name)
        value = {
            "source": self._source(statement, changes),
            "ts_ms": self.ts_ms,
            "kind": kind,
            "databaseName": statement.database,
            "ddl": statement.sql,
            "tableChanges": table_changes(changes),
        }
        return _frame(self.ids.of_statements("value", avro_text(schema))) + encode(schema, value)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes:
        """A record of op `t` in the envelope of the table's changes. Raises SchemaError for a table without columns."""
        if not table.columns:
            raise SchemaError(
                f"the record of TRUNCATE {table.database}.{table.table} at {statement.file}:{statement.position} is "
                "written by the schema of the table's rows, and its columns are not known there. Learn them with "
                f"`changefeed schema PIPELINE --relearn {table.database}.{table.table}`, or leave the table out."
            )
        schema = self.value_schema(table)
        value = {
            "source": self._source(statement, [(table.database, table.table, None)]),
            "op": "t",
            **{name: self.ts_ms * times for name, times in _TIMES},
        }
        return self._add_header(table, "value", schema) + encode(schema, value)

    def statement(
        self,
        statement: Statement,  # noqa: ARG002 - the protocol's signature
        tables: Sequence[tuple[str, str]],  # noqa: ARG002
        *,
        hide_sql: bool,  # noqa: ARG002
    ) -> bytes:
        """Raises SettingsError, because the schemas of tables' topics have no record of a statement."""
        raise SettingsError("format 'avro' has no records of statements: set `statements` to fail or skip")

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()

    def _source(self, statement: Statement, tables: Sequence[TableChange]) -> dict[str, object]:
        return {
            "version": __version__,
            "connector": "mysql",
            "name": self.server_name,
            **{name: statement.micros * times // 1000 for name, times in _TIMES},
            "snapshot": NO_SNAPSHOT,
            "db": tables[0][0] if tables else statement.database,
            "table": ",".join(table for _, table, _ in tables) or None,
            "server_id": statement.server_id,
            "gtid": statement.gtid or None,
            "file": statement.file,
            "pos": statement.position,
            "row": 0,
        }


def _frame(schema_id: int) -> bytes:
    return MAGIC + schema_id.to_bytes(4, "big")


def _text(text: str) -> bytes:
    return encode_bytes(text.encode())
