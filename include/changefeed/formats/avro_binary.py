"""Values in Avro's binary encoding: a reader, and a writer in plain Python, the reference for the kernel.

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from changefeed.formats.connect_types import ConnectSchema, Type
from changefeed.records.varint import encode_bytes, encode_varint, part, varint

_FLOATS = {Type.FLOAT32: struct.Struct("<f"), Type.FLOAT64: struct.Struct("<d")}
_LARGEST_SINGLE = (2 - 2**-23) * 2.0**127
FIRST, SECOND = b"\x00", b"\x02"
"""The numbers of the first and the second branch of a union."""


def is_null_first(schema: ConnectSchema) -> bool:
    """Whether null is the first branch of an optional schema's union. The first branch is the type of the default."""
    return schema.default is None


def encode(schema: ConnectSchema, value: object) -> bytes:
    """``value`` encoded by ``schema``: a struct is a mapping, an array a sequence, bytes are base64 or bytes.

    If the schema is a string, a value that is no text is written as JSON. Raises ValueError for None if the schema is
    not optional.
    """
    if not schema.optional:
        if value is None:
            raise ValueError(f"null was found for {schema.name or schema.type}, which is not optional")
        return _present(schema, value)
    null, other = (FIRST, SECOND) if is_null_first(schema) else (SECOND, FIRST)
    return null if value is None else other + _present(schema, value)


def _present(schema: ConnectSchema, value: Any) -> bytes:
    match schema.type:
        case Type.BOOLEAN:
            return bytes([bool(value)])
        case Type.INT16 | Type.INT32 | Type.INT64:
            return encode_varint((int(value) + 2**63) % 2**64 - 2**63)
        case Type.FLOAT32 | Type.FLOAT64:
            return _FLOATS[schema.type].pack(float(value))
        case Type.STRING:
            text = value if isinstance(value, str) else orjson.dumps(value).decode()
            return encode_bytes(text.encode("utf-8", "replace"))
        case Type.BYTES:
            return encode_bytes(value if isinstance(value, bytes) else base64.b64decode(value, validate=True))
        case Type.ARRAY:
            items = cast(Sequence[object], value)
            each = b"".join(encode(cast(ConnectSchema, schema.items), item) for item in items)
            return (encode_varint(len(items)) + each if items else b"") + b"\x00"
    fields = cast(Mapping[str, object], value)
    return b"".join(encode(of, fields.get(name)) for name, of in schema.fields)


def read(schema: ConnectSchema, data: memoryview, at: int = 0) -> tuple[Any, int]:
    """The value at ``at``, and its end. The inverse of `encode`; bytes are returned as bytes.

    Raises IndexError or struct.error for bytes that are cut off.
    """
    if schema.optional:
        branch, at = data[at : at + 1], at + 1
        if (bytes(branch) == FIRST) is is_null_first(schema):
            return None, at
    match schema.type:
        case Type.BOOLEAN:
            return data[at] != 0, at + 1
        case Type.INT16 | Type.INT32 | Type.INT64:
            return varint(data, at)
        case Type.FLOAT32 | Type.FLOAT64:
            form = _FLOATS[schema.type]
            number: float = form.unpack_from(data, at)[0]
            return (_shortest(number) if schema.type is Type.FLOAT32 else number), at + form.size
        case Type.STRING | Type.BYTES:
            value, at = part(data, at)
            return (str(value or b"", "utf-8") if schema.type is Type.STRING else value), at
        case Type.ARRAY:
            return _read_items(cast(ConnectSchema, schema.items), data, at)
    fields: dict[str, Any] = {}
    for name, of in schema.fields:
        fields[name], at = read(of, data, at)
    return fields, at


def _shortest(single: float) -> float:
    """The double with the fewest digits that parses as ``single``, as Java writes singles."""
    form = _FLOATS[Type.FLOAT32]
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    return next(
        float(text)
        for text in texts
        if form.pack(max(-_LARGEST_SINGLE, min(float(text), _LARGEST_SINGLE))) == form.pack(single)
    )


def _read_items(schema: ConnectSchema, data: memoryview, at: int) -> tuple[list[Any], int]:
    items = []
    count, at = varint(data, at)
    while count:
        for _ in range(count):
            item, at = read(schema, data, at)
            items.append(item)
        count, at = varint(data, at)
    return items, at
