"""A Connect schema spelled as Avro, as Confluent's AvroConverter does, so that readers of Debezium's records read ours.

What Avro has no word for stands in properties that begin with `connect.`. Names that Avro does not take are changed
as Debezium's `field.name.adjustment.mode` and `schema.name.adjustment.mode` `avro` change them.

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
    """A column's name as Avro takes it."""
    name = _NOT_OF_A_NAME.sub("_", name)
    return f"_{name}" if name[:1].isdigit() else name


def full_name(name: str) -> str:
    """A schema's name, whose parts end with dots, as Avro takes it."""
    return ".".join(field_name(part) for part in name.split("."))


def avro_text(schema: ConnectSchema) -> str:
    """``schema`` as the text that a registry gets: the same text for the same schema."""
    return orjson.dumps(avro(schema)).decode()


def avro(schema: ConnectSchema) -> Any:
    """``schema`` as Avro's JSON."""
    return _spelled(schema, set())


def _spelled(schema: ConnectSchema, named: set[str]) -> Any:
    """``schema``; those whose names are in ``named`` were spelled before, and are only named."""
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
        return {"type": "array", "items": _spelled(schema.items, named), **_properties(schema)}
    primitive, properties = _PRIMITIVES[schema.type], _properties(schema)
    return {"type": primitive, **properties} if properties else primitive


def _field(name: str, schema: ConnectSchema, named: set[str]) -> dict[str, Any]:
    field = {"name": field_name(name), "type": _spelled(schema, named)}
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
    """Bytes are text to Avro's JSON: a character of Latin-1 each."""
    return schema.default.decode("latin-1") if isinstance(schema.default, bytes) else schema.default
