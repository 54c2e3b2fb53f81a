"""Debezium's envelope as Avro in Confluent's framing: a zero byte, the schema's id in a registry, and Avro's binary.

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
from changefeed.formats.avro_binary import FIRST, SECOND, read, written
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
from changefeed.records.varint import written_part, written_varint

REGISTRY = text("registry", "")
"""The connection id of the schema registry; without it schemas are numbered, for messages that nobody keeps."""
_DECIMALS = choice(DECIMALS.name, "precise", "string")
"""As Debezium's, without doubles."""
_PRECISIONS = choice(TIMES.name, "adaptive_time_microseconds", "microseconds")
_BINARIES = choice(BINARIES.name, "bytes", "base64", "hex")
"""As Debezium's, without those whose values are other types, or otherwise spelled."""
_KEY_SUBJECTS = choice("key.subject.name.strategy", *SubjectNames)
_VALUE_SUBJECTS = choice("value.subject.name.strategy", *SubjectNames)
"""As Confluent's converter calls them."""
OPTIONS = (
    REGISTRY, PREFIX, _DECIMALS, _PRECISIONS, BIGINTS, _BINARIES, TOMBSTONES, QUERIES, _KEY_SUBJECTS, _VALUE_SUBJECTS,
)  # fmt: skip
DEFAULT_STYLE = connector_style(Options("avro", OPTIONS, {}), {})
"""Debezium's defaults."""

_NULL = FIRST
_TIMES = (("ts_ms", 1), ("ts_us", 1000), ("ts_ns", 1_000_000))
"""The fields of a time, and what its milliseconds are multiplied by."""


_RULES = RowRules(keyless="unique")
"""Debezium has a record under the unique key that stands in for a primary key."""


@dataclass(frozen=True)
class AvroFormat:
    """``server_name`` is the connector's `topic.prefix`; ``ts_ms`` when the window was frozen.

    ``ids`` gives the schemas of a table's keys and values their ids. Raises what ``ids`` raises.
    """

    server_name: str
    ts_ms: int
    ids: SchemaIds
    style: Style = DEFAULT_STYLE
    tombstones: bool = True
    queries: bool = False
    binary_text: bool = False
    subjects: Mapping[Part, SubjectNames] = field(default_factory=dict)
    """How subjects are named, where it is not by topic."""
    needs_definitions: bool = True
    row_rules: RowRules = _RULES
    _made: dict[int, ConnectSchema] = field(default_factory=dict, compare=False, repr=False)
    """The schemas that were given ids, for `shown`."""

    @classmethod
    def of(cls, settings: FormatSettings) -> AvroFormat:
        """The format as ``settings`` say; raises OptionError for an option that it does not take."""
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
        """Avro's."""
        return AvroNotation(self.style, self.binary_text)

    # --- schemas

    def key_schema(self, table: TableSchema) -> ConnectSchema:
        """The struct of a table's keys."""
        columns = [table.columns[index] for index in table.primary_key]
        return connect_schema.row_schema(
            f"{self._prefix(table)}.Key", [(column.name, self.notation.type_of(column)) for column in columns]
        )

    def value_schema(self, table: TableSchema) -> ConnectSchema:
        """The envelope of a table's changes."""
        prefix = self._prefix(table)
        columns = [(column.name, self.notation.type_of(column)) for column in table.columns]
        return connect_schema.envelope(prefix, connect_schema.row_schema(f"{prefix}.Value", columns))

    def shown(self, message: bytes) -> bytes:
        """The record as Connect's JSON has it: bytes in base64."""
        schema = self._made[int.from_bytes(message[1:FRAME_BYTES], "big")]
        value, _ = read(schema, memoryview(message), FRAME_BYTES)
        return orjson.dumps(value, default=lambda data: base64.b64encode(data).decode())

    def schema_text(self, number: int) -> str:
        """The Avro schema that was given this id. Raises KeyError for one that was given to none."""
        return avro_text(self._made[number])

    def _framed(self, table: TableSchema, part: Part, schema: ConnectSchema) -> bytes:
        """What stands before a record of ``schema``."""
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
        return (self._framed(table, "key", self.key_schema(table)), Slot.KEY)

    def messages(self, table: TableSchema) -> Messages:
        """A change of key is a delete that names the new one, its tombstone, and a create that names the old one."""
        if not table.primary_key:
            return ONE_MESSAGE_EACH
        frame = self._framed(table, "key", self.key_schema(table))
        messages = WITH_TOMBSTONES if self.tombstones else DELETE_AND_CREATE
        *gone, created = messages[ChangeKind.KEY_CHANGE]
        moved = (replace(message, headers=((NEW_KEY, (frame, Slot.KEY_AFTER)),)) for message in gone)
        named = replace(created, headers=((OLD_KEY, (frame, Slot.KEY_BEFORE)),))
        return {**messages, ChangeKind.KEY_CHANGE: (*moved, named)}

    def value(self, table: TableSchema, op: Op) -> Template:
        """The envelope of a row change."""
        absent = ABSENT_IMAGE.get(op)
        return (
            self._framed(table, "value", self.value_schema(table)),
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
            *(SECOND + written_varint(self.ts_ms * times) for _, times in _TIMES),
        )

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:
        """Its envelopes, by the schemas that records name."""
        return RecordReader(change_of, load=RegisteredRecords(schemas or self.schema_text))

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """As the Debezium format's, field by field."""
        schema = connect_schema.schema_change(self.server_name)
        value = {
            "source": self._source(statement, changes),
            "ts_ms": self.ts_ms,
            "kind": kind,
            "databaseName": statement.database,
            "ddl": statement.sql,
            "tableChanges": table_changes(changes),
        }
        return _frame(self.ids.of_statements("value", avro_text(schema))) + written(schema, value)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes:
        """Op `t`, in the envelope of the table's changes. Raises SchemaError where its columns are not known."""
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
        return self._framed(table, "value", schema) + written(schema, value)

    def statement(
        self,
        statement: Statement,  # noqa: ARG002 - the protocol's signature
        tables: Sequence[tuple[str, str]],  # noqa: ARG002
        *,
        hide_sql: bool,  # noqa: ARG002
    ) -> bytes:
        """Raises SettingsError: the schemas of tables' topics have no record for it."""
        raise SettingsError("format 'avro' has no records of statements: set `statements` to fail or skip")

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """None."""
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
    return written_part(text.encode())
