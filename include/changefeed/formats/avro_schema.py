"""Connect schemas as Avro, converted as Confluent's AvroConverter does.

So consumers that read Debezium's records can read changefeed's. Properties that Avro cannot express have names that
begin with `connect.`. Names that Avro does not allow are changed as by Debezium's `field.name.adjustment.mode` and
`schema.name.adjustment.mode` with value `avro`.

Sources: https://avro.apache.org/docs/1.12.0/specification/#schema-declaration,
https://docs.confluent.io/platform/current/schema-registry/fundamentals/data-contracts.html
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from changefeed.formats import connect_types
from changefeed.formats.connect_types import ConnectSchema, Type

_PRIMITIVES: dict[Type, str] = {
    Type.BOOLEAN: "boolean",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_NOT_OF_A_NAME = re.compile(r"[^A-Za-z0-9_]")


def field_name(name: str) -> str:
    """A column's name in which characters that Avro does not allow are replaced."""
    name = _NOT_OF_A_NAME.sub("_", name)
    return f"_{name}" if name[:1].isdigit() else name


def full_name(name: str) -> str:
    """A schema's name, with dots, in which characters that Avro does not allow are replaced."""
    return ".".join(field_name(part) for part in name.split("."))


def avro_text(schema: ConnectSchema) -> str:
    """The text of ``schema`` for a registry; equal schemas have equal texts."""
    return orjson.dumps(avro(schema)).decode()


def avro(schema: ConnectSchema) -> Any:
    """``schema`` as Avro's JSON."""
    return _spell(schema, set())


def _spell(schema: ConnectSchema, named: set[str]) -> Any:
    """The Avro JSON of ``schema``; types in ``named`` are written as references."""
    spelled = _without_null(schema, named)
    if not schema.optional:
        return spelled
    return ["null", spelled] if schema.default is None else [spelled, "null"]


def _without_null(schema: ConnectSchema, named: set[str]) -> Any:
    if schema.type is Type.STRUCT:
        name = full_name(schema.name or "")
        if name in named:
            return name
        named.add(name)
        space, _, own = name.rpartition(".")
        fields = [_field(field, of, named) for field, of in schema.fields]
        return {"type": "record", "name": own, "namespace": space, "fields": fields, **_properties(schema)}
    if schema.items is not None:
        return {"type": "array", "items": _spell(schema.items, named), **_properties(schema)}
    primitive, properties = _PRIMITIVES[schema.type], _properties(schema)
    return {"type": primitive, **properties} if properties else primitive


def _field(name: str, schema: ConnectSchema, named: set[str]) -> dict[str, Any]:
    field = {"name": field_name(name), "type": _spell(schema, named)}
    if schema.default is not None:
        field["default"] = _default(schema)
    elif schema.optional:
        field["default"] = None
    return field


def _properties(schema: ConnectSchema) -> dict[str, Any]:
    parameters = dict(schema.parameters)
    properties: dict[str, Any] = {}
    if schema.name == connect_types.DECIMAL:
        properties["scale"] = int(parameters["scale"])
        properties["precision"] = int(parameters["connect.decimal.precision"])
    if schema.doc is not None:
        properties["connect.doc"] = schema.doc
    if schema.version is not None:
        properties["connect.version"] = schema.version
    if parameters:
        properties["connect.parameters"] = parameters
    if schema.default is not None:
        properties["connect.default"] = _default(schema)
    if schema.name is not None:
        properties["connect.name"] = full_name(schema.name) if schema.type is Type.STRUCT else schema.name
    if schema.type is Type.INT16:
        properties["connect.type"] = str(schema.type)
    if schema.name == connect_types.DECIMAL:
        properties["logicalType"] = "decimal"
    return properties


def _default(schema: ConnectSchema) -> object:
    """The default in Avro's JSON, in which each byte is one Latin-1 character."""
    return schema.default.decode("latin-1") if isinstance(schema.default, bytes) else schema.default
