"""The format `flat`: rows with their columns at top level, as Debezium's transform ExtractNewRecordState writes them.

The options have the names, values and defaults of the transform.
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
"""The messages of a delete, by the value of `delete.tombstone.handling.mode`."""

_SOURCE_FIELDS = (
    "version", "connector", "name", "ts_ms", "ts_us", "ts_ns", "snapshot", "db", "table", "server_id", "gtid", "file",
    "pos", "row",
)  # fmt: skip
_FIELDS = ("op", "ts_ms", *(f"source.{name}" for name in _SOURCE_FIELDS))
"""The fields of Debezium's envelope that options can add."""


@dataclass(frozen=True)
class AddedField:
    """A field of the envelope that is added to each row or its headers: ``path`` is its name in the envelope, ``name``
    its name in the row."""

    path: str
    name: str


def _fields(name: str) -> Option[tuple[AddedField, ...]]:
    """The option called ``name``: a list of fields, or one text with commas. `FIELD:NAME` renames a field."""

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
"""The options of the connector that also affect flat records."""


@dataclass(frozen=True)
class _FlatNotation(ConnectNotation):
    """The notation of Connect's JSON, in which more fields may follow the columns of a row."""

    def of(self, slot: Slot) -> Notation:
        return ConnectNotation(closing=b"" if slot in (Slot.BEFORE, Slot.AFTER) else self.closing, style=self.style)


@dataclass(frozen=True)
class FlatFormat:
    """The format `flat`: ``envelope`` is the format of the envelopes to flatten, ``mode`` the handling of deletes."""

    envelope: DebeziumFormat
    mode: str = MODE.default
    fields: tuple[AddedField, ...] = ()
    headers: tuple[AddedField, ...] = ()
    needs_definitions: bool = False

    @classmethod
    def of(cls, settings: FormatSettings) -> FlatFormat:
        """The format with ``settings``; raises OptionError for an invalid option."""
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
        """The style of the envelope."""
        return self.envelope.style

    @property
    def row_rules(self) -> RowRules:
        """The row rules of the envelope."""
        return self.envelope.row_rules

    @cached_property
    def notation(self) -> Notation:
        """The notation of the envelope, in which more fields may follow the columns of a row."""
        return _FlatNotation(style=self.style)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The key of the envelope."""
        return self.envelope.key(table)

    def messages(self, table: TableSchema) -> Messages:
        """The messages of each kind of change. A change of key is a delete and a create, as in the envelope."""
        deletes = _DELETES[self.mode]
        changes = {**ONE_MESSAGE_EACH, ChangeKind.DELETE: deletes, ChangeKind.KEY_CHANGE: (*deletes, CREATED_ANEW)}
        envelopes = self.envelope.messages(table)
        return {
            change: tuple(self._with_headers(table, message, envelopes[change]) for message in messages)
            for change, messages in changes.items()
        }

    def _with_headers(self, table: TableSchema, message: RowMessage, envelopes: Sequence[RowMessage]) -> RowMessage:
        """``message`` with the headers of its envelope and the added headers."""
        own = next((envelope.headers for envelope in envelopes if envelope.key == message.key), ())
        added = ((field.name, self._field(field.path, table, message.op or "d")) for field in self.headers)
        return replace(message, headers=(*own, *added))

    def value(self, table: TableSchema, op: Op) -> Template:
        """The columns of the after image, or of the before image of a delete, and the added fields."""
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
        """The reader of rows without added fields. Records have only one image of a change."""
        added = {field.name for field in self.fields}
        op_field = next((field.name for field in self.fields if field.path == "op"), "")

        def read(value: Any) -> ReadChange:
            if value.get("__op") == "q" and "__sql" in value:
                return ReadChange("q")
            if "ddl" in value and "tableChanges" in value:
                return ReadChange("")
            row = {name: cell for name, cell in value.items() if name not in added and name != "__deleted"}
            is_deleted = value.get("__deleted") == "true"
            if is_deleted:
                return ReadChange("d", "", row, None)
            op = value.get(op_field, "w")  # records older than `op` in the settings do not have it
            if op not in ("c", "u", "r", "w"):
                raise ValueError(f"{op_field!r} is {op!r} of a row that is not deleted")
            return ReadChange(op, "", None, row)

        return RecordReader(read, says_before=False)

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """Debezium's record of a schema change, which the transform does not change."""
        return self.envelope.schema_change(statement, kind, changes)

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:  # noqa: ARG002
        """None, because the transform drops such records."""
        return None

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """The fields of the envelope's record, with the prefix `__`."""
        fields = {
            "__op": "q",
            "__source_ts_ms": statement.ts_seconds * 1000,
            "__database": statement.database,
            "__sql": None if hide_sql else statement.sql,
            "__tables": [f"{database}.{table}" for database, table in tables],
        }
        return orjson.dumps(fields)

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()


_NUMBERS = frozenset({"ts_ms", *(f"source.{name}" for name in ("ts_ms", "ts_us", "ts_ns", "server_id", "pos", "row"))})


def _inside(text: str) -> bytes:
    """``text`` escaped for a JSON string."""
    return json_string(text)[1:-1]
