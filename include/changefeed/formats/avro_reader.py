"""A reader of Avro records with any schema, which returns values of JSON types.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import orjson

from changefeed.formats.reader import SchemaText
from changefeed.records.varint import part, varint

_VALUES_A_BYTE = 10
"""Limit of the number of values for each byte of a record. It is more than changefeed writes.

A schema may have arrays of nulls and nested empty records, so one byte could be any number of values."""
_MOST_DECIMAL = 1000
"""Limit of a decimal's bytes and of its scale. MySQL's decimals have at most 65 digits."""
_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


MAGIC = b"\x00"
FRAME_BYTES = 5
"""Size of the frame of a record: MAGIC, and the schema's id in four bytes."""


class RegisteredRecords:
    """Loads records in Confluent's framing, by their schema ids. It calls ``schemas`` once for each id.

    Raises ValueError for an invalid record and for an unknown schema.
    """

    def __init__(self, schemas: SchemaText) -> None:
        self._schemas = schemas
        self._readers: dict[int, AvroReader | None] = {}

    def __call__(self, record: bytes) -> Any:
        if len(record) < FRAME_BYTES or not record.startswith(MAGIC):
            raise ValueError("it has no frame of a schema registry")
        number = int.from_bytes(record[1:FRAME_BYTES], "big")
        if number not in self._readers:
            text = self._schemas(number)
            self._readers[number] = None if text is None else AvroReader(text)
        reader = self._readers[number]
        if reader is None:
            raise ValueError(f"the registry has no schema {number}")
        return reader.read(record[FRAME_BYTES:])


class AvroReader:
    """A reader of the records of one schema. Bytes are returned as base64, decimals as text with all their digits.

    Raises ValueError for an invalid schema.
    """

    def __init__(self, schema: str) -> None:
        self._named: dict[str, Any] = {}
        self._schema = orjson.loads(schema)
        self._length = len(schema)
        try:
            self._learn(self._schema, "")
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no schema of Avro: {error!r}") from None

    def read(self, data: bytes) -> object:
        """The record ``data``; raises ValueError for bytes that do not fit the schema."""
        reading = _Reading(self._named, memoryview(data), self._length + _VALUES_A_BYTE * len(data))
        try:
            value, end = reading.value(self._schema, 0)
        except (IndexError, KeyError, TypeError, struct.error, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no record of its schema: {error}") from None
        if end != len(data):
            raise ValueError(f"no record of its schema: {len(data) - end} bytes follow it")
        return value

    def _learn(self, schema: Any, space: str) -> None:
        """Collect the named types by their names with and without namespace."""
        if isinstance(schema, list):
            for branch in schema:
                self._learn(branch, space)
        elif isinstance(schema, dict):
            if "name" in schema:
                space = schema.get("namespace", schema["name"].rpartition(".")[0] or space)
                own = schema["name"].rpartition(".")[2]
                self._named |= {own: schema, f"{space}.{own}": schema}
            for field in schema.get("fields", ()):
                self._learn(field["type"], space)
            for inside in ("items", "values"):
                self._learn(schema.get(inside), space)


class _Reading:
    """One reading of a record ``data`` with at most ``most`` values."""

    def __init__(self, named: Mapping[str, Any], data: memoryview, most: int) -> None:
        self._named, self._data, self._left = named, data, most

    def value(self, schema: Any, at: int) -> tuple[Any, int]:
        """The value of ``schema`` at ``at``, and its end."""
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"no record of its schema: its {len(self._data)} bytes hold more values than that")
        if isinstance(schema, list):
            branch, at = varint(self._data, at)
            return self.value(schema[branch], at)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(kind, at)
        match kind:
            case "null":
                return None, at
            case "boolean":
                return self._data[at] != 0, at + 1
            case "int" | "long":
                return varint(self._data, at)
            case "float" | "double":
                form = _FLOATS[kind]
                return form.unpack_from(self._data, at)[0], at + form.size
            case "string":
                found, at = self._part(at)
                return found.decode(), at
            case "bytes":
                found, at = self._part(at)
                return _value_text(found, schema), at
            case "fixed":
                end = at + schema["size"]
                return _value_text(bytes(self._data[at:end]), schema), end
            case "enum":
                number, at = varint(self._data, at)
                return schema["symbols"][number], at
            case "array":
                return self._items(schema["items"], at)
            case "map":
                entry = {
                    "type": "record",
                    "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": schema["values"]}],
                }
                entries, at = self._items(entry, at)
                return {each["k"]: each["v"] for each in entries}, at
        record = schema if kind == "record" else self._named[kind]
        if record is not schema and record["type"] != "record":
            return self.value(record, at)
        fields: dict[str, Any] = {}
        for field in record["fields"]:
            fields[field["name"]], at = self.value(field["type"], at)
        return fields, at

    def _items(self, schema: Any, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = varint(self._data, at)
        while count:
            if count < 0:  # the size of the block in bytes follows
                _, at = varint(self._data, at)
            if abs(count) > self._left:
                raise ValueError(f"no record of its schema: an array of {abs(count)} items")
            for _ in range(abs(count)):
                item, at = self.value(schema, at)
                items.append(item)
            count, at = varint(self._data, at)
        return items, at

    def _part(self, at: int) -> tuple[bytes, int]:
        found, end = part(self._data, at)
        if found is None or end > len(self._data):
            raise ValueError(f"no record of its schema: it is cut off at byte {len(self._data)}")
        return found, end


def _value_text(data: bytes, schema: Any) -> str:
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        scale = schema.get("scale", 0)
        if len(data) > _MOST_DECIMAL or not 0 <= scale <= _MOST_DECIMAL:
            raise ValueError(f"no record of its schema: a decimal of {len(data)} bytes and scale {scale}")
        unscaled = int.from_bytes(data, "big", signed=True)
        return f"{Decimal(f'{unscaled}E-{scale}'):f}"  # no arithmetic, which rounds to 28 digits
    return base64.b64encode(data).decode()
