"""Connect's schemas and rows in the JSON of its JSON converter, which writes a schema with each message.

Source: https://kafka.apache.org/43/javadoc/org/apache/kafka/connect/json/package-summary.html
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import orjson

from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.notation import ColumnText, JsonNotation, Notation, json_string
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import Slot
from changefeed.model.table_schema import Column


def json_schema(schema: ConnectSchema) -> dict[str, object]:
    """The JSON of ``schema``, as the converter writes it into `schema`."""
    spelled: dict[str, object] = {"type": str(schema.type)}
    if schema.items is not None:
        spelled["items"] = json_schema(schema.items)
    if schema.fields:
        spelled["fields"] = [{**json_schema(of), "field": name} for name, of in schema.fields]
    spelled["optional"] = schema.optional
    for name in ("name", "version", "doc"):
        if (value := getattr(schema, name)) is not None:
            spelled[name] = value
    if schema.parameters:
        spelled["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        default = schema.default
        spelled["default"] = base64.b64encode(default).decode() if isinstance(default, bytes) else default
    return spelled


def schema_literal(schema: ConnectSchema) -> bytes:
    """The text before the payload of a message with ``schema``. The payload and `}` follow."""
    return b'{"schema":' + orjson.dumps(json_schema(schema)) + b',"payload":'


@dataclass(frozen=True)
class ConnectNotation(JsonNotation):
    """The JSON notation of Connect: an invalid date is null, or 1970 in a NOT NULL column."""

    style: Style = field(default_factory=Style, hash=False)

    def column(self, column: Column) -> ColumnText:
        """`"name":` before a value, then the value, null, or 1970."""
        name = json_string(column.name) + b":"
        return ColumnText(name, name + (self._zero(column) if column.nullable is False else b"null"))

    def of(self, slot: Slot) -> Notation:  # noqa: ARG002 - all alike
        """This notation for all slots."""
        return self

    def _zero(self, column: Column) -> bytes:
        """The text for NULL in a NOT NULL column. Such a NULL is an invalid date."""
        match column.data_type:
            case "timestamp" if self.style[Kind.TIMESTAMP] is Encoding.ZONED:
                return b'"1970-01-01T00:00:00Z"'
            case "date" if self.style[Kind.DATE] is Encoding.OFFSET:
                return b'"1970-01-01Z"'
            case "datetime" if self.style[Kind.DATETIME] is Encoding.OFFSET:
                return b'"1970-01-01T00:00:00Z"'
            case "date" | "datetime" | "timestamp":
                return b"0"
        return b"null"
