"""Kafka Connect's schemas, which also describe the types of binary notations.

Source: https://kafka.apache.org/43/javadoc/org/apache/kafka/connect/data/Schema.html
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Type(StrEnum):
    """Connect's types, by their names in JSON."""

    BOOLEAN = "boolean"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    STRUCT = "struct"


@dataclass(frozen=True)
class ConnectSchema:
    """A type with its properties.

    - ``name``, ``version``: of a logical type or a struct
    - ``default``: a number, a boolean, a text or bytes; None if there is none
    - ``items``: the schema of the items of an array
    - ``fields``: the fields of a struct, as pairs of a name and a schema
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: int | float | str | bytes | None = None
    items: ConnectSchema | None = None
    fields: tuple[tuple[str, ConnectSchema], ...] = ()


DECIMAL = "org.apache.kafka.connect.data.Decimal"
BITS = "io.debezium.data.Bits"
ENUM = "io.debezium.data.Enum"
ENUM_SET = "io.debezium.data.EnumSet"
JSON = "io.debezium.data.Json"
YEAR = "io.debezium.time.Year"
DATE = "io.debezium.time.Date"
ISO_DATE = "io.debezium.time.IsoDate"
CONNECT_DATE = "org.apache.kafka.connect.data.Date"
MICRO_TIME = "io.debezium.time.MicroTime"
NANO_TIME = "io.debezium.time.NanoTime"
ISO_TIME = "io.debezium.time.IsoTime"
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
TIMESTAMP = "io.debezium.time.Timestamp"
MICRO_TIMESTAMP = "io.debezium.time.MicroTimestamp"
NANO_TIMESTAMP = "io.debezium.time.NanoTimestamp"
ISO_TIMESTAMP = "io.debezium.time.IsoTimestamp"
CONNECT_TIMESTAMP = "org.apache.kafka.connect.data.Timestamp"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
GEOMETRY = "io.debezium.data.geometry.Geometry"
POINT = "io.debezium.data.geometry.Point"
FLOAT_VECTOR = "io.debezium.data.FloatVector"
