"""Avro records by the text of their schema, whoever registered it, as values that JSON knows.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from typing import Any

import orjson

from changefeed.formats.reader import SchemaText
from changefeed.records.varint import part, varint

_FLOATS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}


MAGIC = b"\x00"
FRAME_BYTES = 5
"""Of a record whose schema is in a registry: MAGIC, and the schema's id in four bytes."""


class RegisteredRecords:
    """Loads records in Confluent's framing, by the schema that each of them names; each of ``schemas`` is asked once.

    Raises ValueError for a record that is none, or whose schema is not known.
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
    """Reads records of one schema. Bytes are base64, decimals text with all their digits.

    Raises ValueError for a schema that is none.
    """

    def __init__(self, schema: str) -> None:
        self._named: dict[str, Any] = {}
        self._schema = orjson.loads(schema)
        self._learn(self._schema, "")

    def read(self, data: bytes) -> object:
        """The record that ``data`` is; raises ValueError for bytes that are none of this schema."""
        try:
            value, end = self._read(self._schema, memoryview(data), 0)
        except (IndexError, KeyError, struct.error, UnicodeDecodeError, RecursionError) as error:
            raise ValueError(f"no record of its schema: {error}") from None
        if end != len(data):
            raise ValueError(f"no record of its schema: {len(data) - end} bytes are left behind it")
        return value

    def _learn(self, schema: Any, space: str) -> None:
        """Take note of the named types, and give each reference to one its full name."""
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

    def _read(self, schema: Any, data: memoryview, at: int) -> tuple[Any, int]:
        if isinstance(schema, list):
            branch, at = varint(data, at)
            return self._read(schema[branch], data, at)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self._read(kind, data, at)
        match kind:
            case "null":
                return None, at
            case "boolean":
                return data[at] != 0, at + 1
            case "int" | "long":
                return varint(data, at)
            case "float" | "double":
                form = _FLOATS[kind]
                return form.unpack_from(data, at)[0], at + form.size
            case "string":
                found, at = self._part(data, at)
                return found.decode(), at
            case "bytes":
                found, at = self._part(data, at)
                return _shown(found, schema), at
            case "fixed":
                end = at + schema["size"]
                return _shown(bytes(data[at:end]), schema), end
            case "enum":
                number, at = varint(data, at)
                return schema["symbols"][number], at
            case "array":
                return self._items(schema["items"], data, at)
            case "map":
                entry = {
                    "type": "record",
                    "fields": [{"name": "k", "type": "string"}, {"name": "v", "type": schema["values"]}],
                }
                entries, at = self._items(entry, data, at)
                return {each["k"]: each["v"] for each in entries}, at
        record = schema if kind == "record" else self._named[kind]
        if record is not schema and record["type"] != "record":
            return self._read(record, data, at)
        fields: dict[str, Any] = {}
        for field in record["fields"]:
            fields[field["name"]], at = self._read(field["type"], data, at)
        return fields, at

    def _items(self, schema: Any, data: memoryview, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        count, at = varint(data, at)
        while count:
            if count < 0:  # the block's size in bytes follows, for readers who skip it
                _, at = varint(data, at)
            if abs(count) > len(data):
                raise ValueError(f"no record of its schema: an array of {abs(count)} items")
            for _ in range(abs(count)):
                item, at = self._read(schema, data, at)
                items.append(item)
            count, at = varint(data, at)
        return items, at

    @staticmethod
    def _part(data: memoryview, at: int) -> tuple[bytes, int]:
        found, end = part(data, at)
        if found is None or end > len(data):
            raise ValueError(f"no record of its schema: it is cut off at byte {len(data)}")
        return found, end


def _shown(data: bytes, schema: Any) -> str:
    if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
        unscaled = int.from_bytes(data, "big", signed=True)
        return f"{Decimal(unscaled).scaleb(-schema.get('scale', 0)):f}"
    return base64.b64encode(data).decode()
