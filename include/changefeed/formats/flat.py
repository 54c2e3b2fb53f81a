"""Rows with their columns at top level, as Debezium's transform ExtractNewRecordState makes them of its envelope.

Its options have the names, values and defaults that they have there.
Source: https://debezium.io/documentation/reference/stable/transformations/event-flattening.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import orjson

from changefeed import __version__
from changefeed.errors import did_you_mean
from changefeed.formats import debezium_options
from changefeed.formats.connect_json import ConnectNotation
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.format import FormatSettings, RowRules, TableChange
from changefeed.formats.notation import Notation, json_string
from changefeed.formats.options import Option, Options, choice
from changefeed.formats.reader import ReadChange, RecordReader, SchemaText
from changefeed.formats.style import Style
from changefeed.formats.template import (
    CREATED_ANEW,
    DELETED,
    ONE_MESSAGE_EACH,
    TOMBSTONE,
    ChangeKind,
    Messages,
    Op,
    RowMessage,
    Slot,
    Template,
)
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header

_DELETES: Mapping[str, tuple[RowMessage, ...]] = {
    "tombstone": (TOMBSTONE,),
    "drop": (),
    "rewrite": (DELETED,),
    "rewrite-with-tombstone": (DELETED, TOMBSTONE),
    "delete-to-tombstone": (TOMBSTONE,),
}
"""The messages that a delete becomes, by the mode of its option."""

_SOURCE_FIELDS = (
    "version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "table", "server_id", "gtid", "file",
    "pos", "row",
)  # fmt: skip
_FIELDS = ("op", "ts_ms", *(f"source.{name}" for name in _SOURCE_FIELDS))
"""The fields of Debezium's envelope that can be added."""


@dataclass(frozen=True)
class AddedField:
    """A field of the envelope that each row or record header gets: ``path`` is its name there, ``name`` here."""

    path: str
    name: str


def _fields(name: str) -> Option[tuple[AddedField, ...]]:
    """The option called ``name``: a list of fields, or one text with commas; `FIELD:NAME` gives a field that name."""

    def read(given: object) -> tuple[AddedField, ...]:
        texts = given.split(",") if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("a list of fields such as [op, table, source.ts_ms]")
        return tuple(map(_field_of, filter(None, map(str.strip, texts))))

    return Option(name, (), read)


def _field_of(text: str) -> AddedField:
    path, _, name = text.partition(":")
    field = path if path in _FIELDS else f"source.{path}"
    if field not in _FIELDS:
        near = did_you_mean(path, [*_FIELDS, *_SOURCE_FIELDS])
        raise ValueError(f"fields of Debezium's envelope, which are {', '.join(_FIELDS)}{near}")
    return AddedField(field, name or path.replace(".", "_"))


def _prefix(name: str) -> Option[str]:
    def read(given: object) -> str:
        if not isinstance(given, str):
            raise ValueError("a text, which may be empty")
        return given

    return Option(name, "__", read)


MODE = choice("delete.tombstone.handling.mode", *_DELETES)
FIELDS, FIELDS_PREFIX = _fields("add.fields"), _prefix("add.fields.prefix")
HEADERS, HEADERS_PREFIX = _fields("add.headers"), _prefix("add.headers.prefix")
OPTIONS = (MODE, FIELDS, FIELDS_PREFIX, HEADERS, HEADERS_PREFIX)
_OF_CONNECTOR = (
    debezium_options.PREFIX, debezium_options.DECIMALS, debezium_options.TIMES, debezium_options.BIGINTS,
    debezium_options.BINARIES, debezium_options.SKIPPED, debezium_options.UNCHANGED, debezium_options.KEYS,
)  # fmt: skip
"""The connector's options that a record still shows when it is flat."""


@dataclass(frozen=True)
class _FlatNotation(ConnectNotation):
    """More fields may follow the columns of a row."""

    def of(self, slot: Slot) -> Notation:
        return ConnectNotation(closing=b"" if slot in (Slot.BEFORE, Slot.AFTER) else self.closing, style=self.style)


@dataclass(frozen=True)
class FlatFormat:
    """``envelope`` is the format whose envelopes are made flat; ``mode`` is that of deletes."""

    envelope: DebeziumFormat
    mode: str = MODE.default
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> FlatFormat:
        """The format as ``settings`` say; raises OptionError for options that it does not have."""
        options = Options("flat", (*OPTIONS, *_OF_CONNECTOR), settings.options)
        mode = options[MODE]
        if mode == "rewrite-with-tombstone" and not settings.tombstones:
            mode = "rewrite"
        fields, headers = (
            tuple(replace(field, name=options[prefix] + field.name) for field in options[option])
            for option, prefix in ((FIELDS, FIELDS_PREFIX), (HEADERS, HEADERS_PREFIX))
        )
        given = {
            option.name: settings.options[option.name] for option in _OF_CONNECTOR if option.name in settings.options
        }
        return cls(DebeziumFormat.of(replace(settings, options=given)), mode, fields, headers)

    @property
    def style(self) -> Style:
        """The envelope's."""
        return self.envelope.style

    @property
    def row_rules(self) -> RowRules:
        """The envelope's."""
        return self.envelope.row_rules

    @cached_property
    def notation(self) -> Notation:
        """The envelope's, with rows that more fields may follow."""
        return _FlatNotation(style=self.style)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The envelope's."""
        return self.envelope.key(table)

    def messages(self, table: TableSchema) -> Messages:
        """A change of key is a delete and a create, as in the envelope."""
        deletes = _DELETES[self.mode]
        changes = {**ONE_MESSAGE_EACH, ChangeKind.DELETE: deletes, ChangeKind.KEY_CHANGE: (*deletes, CREATED_ANEW)}
        envelopes = self.envelope.messages(table)
        return {
            change: tuple(self._with_headers(table, message, envelopes[change]) for message in messages)
            for change, messages in changes.items()
        }

    def _with_headers(self, table: TableSchema, message: RowMessage, envelopes: Sequence[RowMessage]) -> RowMessage:
        """``message`` with the headers of the envelope that it is made of, and those that are added."""
        own = next((envelope.headers for envelope in envelopes if envelope.key == message.key), ())
        added = ((field.name, self._field(field.path, table, message.op or "d")) for field in self.headers)
        return replace(message, headers=(*own, *added))

    def value(self, table: TableSchema, op: Op) -> Template:
        """The after image's columns, or those of the row that was deleted, and the fields that are added."""
        added: list[tuple[str, Template]] = []
        if self.mode.startswith("rewrite") or op == "d":
            added.append(("__deleted", (b'"true"' if op == "d" else b'"false"',)))
        for field in self.fields:
            value = self._field(field.path, table, op)
            if field.path == "source.gtid":
                value = (Slot.GTID,)
            elif field.path == "source.snapshot" and op != "r":
                value = (b"null",)
            elif field.path not in _NUMBERS:
                value = (b'"', *value, b'"')
            added.append((field.name, value))
        template: Template = (Slot.BEFORE if op == "d" else Slot.AFTER,)
        for number, (name, value) in enumerate(added):
            template += (b"," if number else Slot.SEPARATOR, json_string(name) + b":", *value)
        return (*template, b"}")

    def _field(self, path: str, table: TableSchema, op: Op) -> Template:
        """The field's value without the quotes of JSON."""
        fields: Mapping[str, Template] = {
            "op": (op.encode(),),
            "ts_ms": (b"%d" % self.envelope.ts_ms,),
            "source.version": (__version__.encode(),),
            "source.connector": (b"mysql",),
            "source.name": (_inside(self.envelope.prefix),),
            "source.ts_ms": (Slot.TS_MILLIS,),
            "source.ts_us": (Slot.TS_MICROS,),
            "source.ts_ns": (Slot.TS_NANOS,),
            "source.snapshot": (Slot.SNAPSHOT,) if op == "r" else (),
            "source.db": (_inside(table.database),),
            "source.table": (_inside(table.table),),
            "source.server_id": (Slot.SERVER_ID,),
            "source.gtid": (Slot.GTID_TEXT,),
            "source.file": (Slot.FILE,),
            "source.pos": (Slot.POSITION,),
            "source.row": (Slot.ROW,),
        }
        return fields[path]

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """Rows without what was added; of a change they say only what is there after it."""
        added = {field.name for field in self.fields}

        def read(value: Any) -> ReadChange:
            if value.get("__op") == "q" and "__sql" in value:
                return ReadChange("q")
            if "ddl" in value and "tableChanges" in value:
                return ReadChange("")
            row = {name: cell for name, cell in value.items() if name not in added and name != "__deleted"}
            is_deleted = value.get("__deleted") == "true"
            return ReadChange("d", "", row, None) if is_deleted else ReadChange("c", "", None, row)

        return RecordReader(read, says_before=False)

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """Debezium's record of a schema change, which the transform lets pass."""
        return self.envelope.schema_change(statement, kind, changes)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None: the transform leaves such records out."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """What the envelope's record says, in fields that begin as added ones do."""
        fields = {
            "__op": "q",
            "__source_ts_ms": statement.ts_seconds * 1000,
            "__database": statement.database,
            "__sql": None if hide_sql else statement.sql,
            "__tables": [f"{database}.{table}" for database, table in tables],
        }
        return orjson.dumps(fields)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """None."""
        return ()


_NUMBERS = frozenset({"ts_ms", *(f"source.{name}" for name in ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "row"))})


def _inside(text: str) -> bytes:
    """``text`` as it stands in a JSON string."""
    return json_string(text)[1:-1]
