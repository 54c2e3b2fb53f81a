"""The format `cloudevents`: CloudEvents 1.0 in the structured JSON mode, with values of another format as data.

Sources: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md (attributes),
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md (their JSON), and
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md (the header)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from changefeed.errors import BadRecordError, OptionError, did_you_mean
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.flat import FlatFormat
from changefeed.formats.format import Format, FormatSettings, RowRules, TableChange, row_rules_of, transactions_of
from changefeed.formats.maxwell import MaxwellFormat
from changefeed.formats.notation import Notation, json_string
from changefeed.formats.options import Option, Options, text
from changefeed.formats.reader import Envelope, RecordReader, SchemaText, payload
from changefeed.formats.style import Style
from changefeed.formats.template import Messages, Op, RowMessage, Slot, Template
from changefeed.model.iso_time import utc_text
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import Header

_INNER: Mapping[str, Callable[[FormatSettings], Format]] = {
    "debezium": DebeziumFormat.of,
    "flat": FlatFormat.of,
    "maxwell": MaxwellFormat.of,
}
"""The formats whose values can be an event's data."""
_CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"
_EXTENSION = re.compile("[a-z0-9]+")
_VERBS: Mapping[Op, str] = {"c": "created", "u": "updated", "d": "deleted", "r": "read"}


@dataclass(frozen=True)
class InnerFormat:
    """The format of an event's data: a name, and that format's own options."""

    name: str
    options: Mapping[str, object]


def _inner(given: object) -> InnerFormat:
    name, options = given, {}
    if isinstance(given, dict):
        options = {key: value for key, value in given.items() if key != "name"}
        name = given.get("name")
    if not isinstance(name, str) or name not in _INNER:
        near = did_you_mean(name, _INNER) if isinstance(name, str) else ""
        raise ValueError(f"one of {', '.join(_INNER)}, alone or as `name` beside its options{near}")
    return InnerFormat(name, options)


DATA = Option("data", InnerFormat("debezium", {}), _inner)
SOURCE = text("source", "/changefeed/{pipeline}")
TYPE = text("type", "changefeed")
OPTIONS = (DATA, SOURCE, TYPE)


@dataclass(frozen=True)
class CloudEventsFormat:
    """The format of events with data in format ``data``. ``source`` is their source, ``type`` their type's prefix."""

    data: Format
    source: str
    type: str

    @classmethod
    def of(cls, settings: FormatSettings) -> CloudEventsFormat:
        """The format with ``settings``; raises OptionError for an invalid option, also of the inner format."""
        options = Options("cloudevents", OPTIONS, settings.options)
        inner = options[DATA]
        try:
            data = _INNER[inner.name](replace(settings, options=inner.options))
        except OptionError as error:
            raise OptionError(str(error), DATA.name, *error.path) from None
        if transactions_of(data) is not None:
            raise OptionError("events say nothing of their transaction", DATA.name, "provide.transaction.metadata")
        return cls(data, options[SOURCE].replace("{pipeline}", settings.server_name), options[TYPE])

    @property
    def style(self) -> Style:
        """The style of the data's format."""
        return self.data.style

    @property
    def row_rules(self) -> RowRules:
        """The row rules of the data's format."""
        return row_rules_of(self.data)

    @property
    def notation(self) -> Notation:
        """The notation of the data's format."""
        return self.data.notation

    @property
    def needs_definitions(self) -> bool:
        """Whether the data's format needs definitions."""
        return self.data.needs_definitions

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The key of the data's format."""
        return self.data.key(table)

    def messages(self, table: TableSchema) -> Messages:
        """The messages of the data's format. A message with a value also has the content type of events as header."""
        return {
            change: tuple(map(_add_content_type, messages)) for change, messages in self.data.messages(table).items()
        }

    def value(self, table: TableSchema, op: Op) -> Template:
        """An event with the value of the data's format as data."""
        return (
            b'{"specversion":"1.0","id":"',
            Slot.EVENT_ID,
            b'","source":%b,"type":%b,"subject":%b,"time":"'
            % (
                json_string(self.source),
                json_string(f"{self.type}.row.{_VERBS[op]}"),
                json_string(f"{table.database}.{table.table}"),
            ),
            Slot.TIME,
            b'","datacontenttype":"application/json","data":',
            *self.data.value(table, op),
            b"}",
        )

    def member_fault(self, name: str, value: object) -> str | None:
        """The reason why records cannot have an extension attribute ``name`` with ``value``; None if they can."""
        if not _EXTENSION.fullmatch(name):
            return "the name of an extension attribute of CloudEvents has small letters and digits only"
        if not isinstance(value, str | bool | int) or (isinstance(value, int) and not -(1 << 31) <= value < 1 << 31):
            return "an extension attribute of CloudEvents is a text, a boolean, or an integer of 32 bits"
        return None

    def reader(self, schemas: SchemaText | None = None) -> RecordReader | None:
        """The reader of the data of events; None if the data's format has no reader."""
        inner = self.data.reader(schemas)
        if inner is None:
            return None
        envelopes = inner.envelopes

        def read_data(value: bytes) -> Sequence[Envelope]:
            assert envelopes is not None
            try:
                return envelopes(orjson.dumps(orjson.loads(value)["data"]))
            except (ValueError, TypeError, KeyError) as error:
                raise BadRecordError(f"{value[:200]!r} is no CloudEvent with data ({error!r})") from error

        return RecordReader(
            lambda event: inner.read(payload(event["data"])),
            says_before=inner.says_before,
            has_keys=inner.has_keys,
            envelopes=read_data if envelopes is not None else None,
            exact=inner.exact,
        )

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """An event of type `….schema.changed`."""
        subject = ",".join(f"{database}.{table}" for database, table, _ in changes) or statement.database
        return self._event(statement, "schema.changed", subject, self.data.schema_change(statement, kind, changes))

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """An event of type `….table.truncated`; None if the data's format has no such record."""
        data, subject = self.data.truncate(statement, table), f"{table.database}.{table.table}"
        return None if data is None else self._event(statement, "table.truncated", subject, data)

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """An event of type `….statement`."""
        subject = ",".join(f"{database}.{table}" for database, table in tables) or statement.database
        return self._event(statement, "statement", subject, self.data.statement(statement, tables, hide_sql=hide_sql))

    def statement_headers(self, statement: Statement) -> Sequence[Header]:
        """The headers of the data's format, and the content type of events."""
        return [("content-type", _CONTENT_TYPE.encode()), *self.data.statement_headers(statement)]

    def _event(self, statement: Statement, kind: str, subject: str, data: bytes) -> bytes:
        return orjson.dumps(
            {
                "specversion": "1.0",
                "id": f"{statement.file}:{statement.position}/{kind}/{subject}",
                "source": self.source,
                "type": f"{self.type}.{kind}",
                **({"subject": subject} if subject else {}),
                "time": utc_text(statement.ts_seconds),
                "datacontenttype": "application/json",
                "data": orjson.Fragment(data),
            }
        )


def _add_content_type(message: RowMessage) -> RowMessage:
    if message.op is None:
        return message
    return replace(message, headers=(("content-type", (_CONTENT_TYPE.encode(),)), *message.headers))
