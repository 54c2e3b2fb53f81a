"""Kafka Connect's schemas of tables, as in Debezium's MySQL connector.

The same schema is written as JSON with each message, or as Avro in a registry.

Sources: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-data-types,
https://kafka.apache.org/43/javadoc/org/apache/kafka/connect/data/Schema.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from changefeed.formats.connect_types import (
    BITS,
    CONNECT_DATE,
    CONNECT_TIME,
    CONNECT_TIMESTAMP,
    DATE,
    DECIMAL,
    ENUM,
    ENUM_SET,
    FLOAT_VECTOR,
    GEOMETRY,
    ISO_DATE,
    ISO_TIME,
    ISO_TIMESTAMP,
    JSON,
    MICRO_TIME,
    MICRO_TIMESTAMP,
    NANO_TIME,
    NANO_TIMESTAMP,
    POINT,
    TIMESTAMP,
    YEAR,
    ZONED_TIMESTAMP,
    ConnectSchema,
    Type,
)
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.table_schema import Column, TableSchema

_NOT_OF_A_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
"""Characters that a topic's name cannot have. Java counts a character beyond U+FFFF as two."""
_LONGEST_TOPIC = 249
_STRING = ConnectSchema(Type.STRING)
_INT64 = ConnectSchema(Type.INT64)
_MAYBE_STRING = ConnectSchema(Type.STRING, optional=True)
_MAYBE_INT64 = ConnectSchema(Type.INT64, optional=True)

_WIDER = {"tinyint": Type.INT16, "smallint": Type.INT32, "mediumint": Type.INT32, "int": Type.INT64}
_SIGNED = {"tinyint": Type.INT16, "smallint": Type.INT16, "mediumint": Type.INT32, "int": Type.INT32}
"""The types of integers except BIGINT, unsigned and signed."""

_BLOBS = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_GEOMETRIES = frozenset(
    {"geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"}
    | {"geomcollection", "geometrycollection"}
)


_BIGINTS = {
    Encoding.STRING: _STRING,
    Encoding.PRECISE: ConnectSchema(
        Type.BYTES, name=DECIMAL, version=1, parameters=(("scale", "0"), ("connect.decimal.precision", "20"))
    ),
}
"""The schema of BIGINT UNSIGNED by encoding. With other encodings it is the schema of BIGINT."""


def value_schema(column: Column, style: Style) -> ConnectSchema:
    """The schema of a column's values in ``style``, without a default."""
    return replace(_type_of(column, style), optional=column.nullable is not False)


def _type_of(column: Column, style: Style) -> ConnectSchema:
    data_type = column.data_type
    if data_type in _SIGNED:
        return ConnectSchema((_WIDER if column.unsigned else _SIGNED)[data_type])
    match data_type:
        case "bigint":
            return _BIGINTS.get(style[Kind.BIGINT_UNSIGNED], _INT64) if column.unsigned else _INT64
        case "decimal":
            return _decimal(column, style)
        case "float":
            return ConnectSchema(Type.FLOAT64 if column.scale is not None else Type.FLOAT32)
        case "double":
            return ConnectSchema(Type.FLOAT64)
        case "bit":
            if (column.length or 1) == 1:
                return ConnectSchema(Type.BOOLEAN)
            return ConnectSchema(Type.BYTES, name=BITS, version=1, parameters=(("length", str(column.length)),))
        case "enum" | "set":
            return _label_schema(column)
        case "json":
            return ConnectSchema(Type.STRING, name=JSON, version=1)
        case "year":
            return ConnectSchema(Type.INT32, name=YEAR, version=1)
        case "date" | "time" | "datetime" | "timestamp":
            return _temporal(column, style)
        case "point":
            return _POINT
        case "vector":
            return ConnectSchema(Type.ARRAY, name=FLOAT_VECTOR, version=1, items=ConnectSchema(Type.FLOAT32))
    if data_type in _GEOMETRIES:
        return _GEOMETRY
    is_bytes = data_type in _BLOBS and style[Kind.BINARY] is Encoding.BASE64
    return ConnectSchema(Type.BYTES) if is_bytes else _STRING


def _decimal(column: Column, style: Style) -> ConnectSchema:
    match style[Kind.DECIMAL]:
        case Encoding.PRECISE:
            digits = (("scale", str(column.scale or 0)), ("connect.decimal.precision", str(column.precision or 10)))
            return ConnectSchema(Type.BYTES, name=DECIMAL, version=1, parameters=digits)
        case Encoding.DOUBLE:
            return ConnectSchema(Type.FLOAT64)
    return _STRING


def _label_schema(column: Column) -> ConnectSchema:
    if not column.labels:  # labels are unknown: values are numbers
        return ConnectSchema(Type.INT32 if column.data_type == "enum" else Type.INT64)
    allowed = ",".join(label.replace(",", "\\,") for label in column.labels)
    name = ENUM if column.data_type == "enum" else ENUM_SET
    return ConnectSchema(Type.STRING, name=name, version=1, parameters=(("allowed", allowed),))


_KINDS = {"date": Kind.DATE, "time": Kind.TIME, "datetime": Kind.DATETIME, "timestamp": Kind.TIMESTAMP}


_TEMPORALS = {
    Kind.DATE: {Encoding.OFFSET: (Type.STRING, ISO_DATE)},
    Kind.TIME: {
        Encoding.NANOS: (Type.INT64, NANO_TIME),
        Encoding.OF_DAY: (Type.INT32, CONNECT_TIME),
        Encoding.OFFSET: (Type.STRING, ISO_TIME),
    },
    Kind.DATETIME: {
        Encoding.MILLIS: (Type.INT64, CONNECT_TIMESTAMP),
        Encoding.NANOS: (Type.INT64, NANO_TIMESTAMP),
        Encoding.OFFSET: (Type.STRING, ISO_TIMESTAMP),
    },
}
"""Type and name of schemas by encoding."""


def _temporal(column: Column, style: Style) -> ConnectSchema:
    kind = _KINDS[column.data_type]
    if style[kind] in (Encoding.ISO, Encoding.ZONED):
        zoned = kind is Kind.TIMESTAMP
        return ConnectSchema(Type.STRING, name=ZONED_TIMESTAMP, version=1) if zoned else _STRING
    if style[kind] in _TEMPORALS.get(kind, {}):
        type, name = _TEMPORALS[kind][style[kind]]
        return ConnectSchema(type, name=name, version=1)
    match kind:
        case Kind.DATE:
            # also with Connect's types: a writer of days does not distinguish the two
            name = CONNECT_DATE if style[Kind.TIME] is Encoding.OF_DAY else DATE
            return ConnectSchema(Type.INT32, name=name, version=1)
        case Kind.TIME:
            return ConnectSchema(Type.INT64, name=MICRO_TIME, version=1)
    millis = (column.datetime_precision or 0) <= 3 and style[kind] is not Encoding.MICROS
    return ConnectSchema(Type.INT64, name=TIMESTAMP if millis else MICRO_TIMESTAMP, version=1)


_SRID = ConnectSchema(Type.INT32, optional=True)
_GEOMETRY = ConnectSchema(
    Type.STRUCT,
    name=GEOMETRY,
    version=1,
    doc="Geometry",
    fields=(("wkb", ConnectSchema(Type.BYTES)), ("srid", _SRID)),
)
_POINT = ConnectSchema(
    Type.STRUCT,
    name=POINT,
    version=1,
    doc="Geometry (POINT)",
    fields=(
        ("x", ConnectSchema(Type.FLOAT64)),
        ("y", ConnectSchema(Type.FLOAT64)),
        ("wkb", ConnectSchema(Type.BYTES, optional=True)),
        ("srid", _SRID),
    ),
)

SNAPSHOTS = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last", "false", "incremental")

SOURCE = ConnectSchema(
    Type.STRUCT,
    name="io.debezium.connector.mysql.Source",
    version=1,
    fields=(
        ("version", _STRING),
        ("connector", _STRING),
        ("name", _STRING),
        ("ts_ms", _INT64),
        (
            "snapshot",
            ConnectSchema(
                Type.STRING,
                optional=True,
                name=ENUM,
                version=1,
                parameters=(("allowed", ",".join(SNAPSHOTS)),),
                default="false",
            ),
        ),
        ("db", _STRING),
        ("sequence", _MAYBE_STRING),
        ("ts_us", _MAYBE_INT64),
        ("ts_ns", _MAYBE_INT64),
        ("table", _MAYBE_STRING),
        ("server_id", _INT64),
        ("gtid", _MAYBE_STRING),
        ("file", _STRING),
        ("pos", _INT64),
        ("row", ConnectSchema(Type.INT32)),
        ("thread", _MAYBE_INT64),
        ("query", _MAYBE_STRING),
    ),
)
"""The schema of `source`, the origin of a change."""

TRANSACTION = ConnectSchema(
    Type.STRUCT,
    optional=True,
    name="event.block",
    version=1,
    fields=(("id", _STRING), ("total_order", _INT64), ("data_collection_order", _INT64)),
)
"""The schema of `transaction`, the position of a change in its transaction."""


TRANSACTION_KEY = ConnectSchema(
    Type.STRUCT, name="io.debezium.connector.common.TransactionMetadataKey", version=1, fields=(("id", _STRING),)
)
TRANSACTION_VALUE = ConnectSchema(
    Type.STRUCT,
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
    fields=(
        ("status", _STRING),
        ("id", _STRING),
        ("event_count", _MAYBE_INT64),
        (
            "data_collections",
            ConnectSchema(
                Type.ARRAY,
                optional=True,
                items=ConnectSchema(
                    Type.STRUCT,
                    optional=True,
                    name="event.collection",
                    version=1,
                    fields=(("data_collection", _STRING), ("event_count", _INT64)),
                ),
            ),
        ),
        ("ts_ms", _INT64),
    ),
)
"""The schema of the values in the transaction topic."""


def row_schema(name: str, columns: Sequence[tuple[str, ConnectSchema]]) -> ConnectSchema:
    """The struct of a row or a key with these columns."""
    return ConnectSchema(Type.STRUCT, name=name, fields=tuple(columns))


def envelope(prefix: str, row: ConnectSchema) -> ConnectSchema:
    """The envelope of a table's changes; ``prefix`` is `SERVER.DATABASE.TABLE`, ``row`` the struct of its rows."""
    image = replace(row, optional=True)
    return ConnectSchema(
        Type.STRUCT,
        name=f"{prefix}.Envelope",
        version=2,
        fields=(
            ("before", image),
            ("after", image),
            ("source", SOURCE),
            ("transaction", TRANSACTION),
            ("op", _STRING),
            ("ts_ms", _MAYBE_INT64),
            ("ts_us", _MAYBE_INT64),
            ("ts_ns", _MAYBE_INT64),
        ),
    )


def prefix_of(server_name: str, table: TableSchema) -> str:
    """The prefix of the names of a table's schemas: Debezium's topic name, without characters that Kafka forbids."""
    name = f"{server_name}.{table.database}.{table.table}"
    return _NOT_OF_A_TOPIC.sub(lambda found: "__" if found[0] > "\uffff" else "_", name)[:_LONGEST_TOPIC]


def schema_change(name: str) -> ConnectSchema:
    """The schema of the record that `schema_change` of the Debezium format writes."""
    names = ConnectSchema(Type.ARRAY, optional=True, items=_STRING)
    column = ConnectSchema(
        Type.STRUCT,
        name=f"{name}.Column",
        fields=(
            ("name", _STRING),
            ("position", ConnectSchema(Type.INT32)),
            ("typeName", _STRING),
            ("collationName", _MAYBE_STRING),
            ("enumValues", names),
            ("srid", _MAYBE_INT64),
        ),
    )
    table = ConnectSchema(
        Type.STRUCT,
        optional=True,
        name=f"{name}.Table",
        fields=(("primaryKeyColumnNames", names), ("columns", ConnectSchema(Type.ARRAY, items=column))),
    )
    change = ConnectSchema(
        Type.STRUCT, name=f"{name}.Change", fields=(("type", _STRING), ("id", _STRING), ("table", table))
    )
    return ConnectSchema(
        Type.STRUCT,
        name=f"{name}.SchemaChange",
        fields=(
            ("source", SOURCE),
            ("ts_ms", _INT64),
            ("kind", _STRING),
            ("databaseName", _MAYBE_STRING),
            ("ddl", _STRING),
            ("tableChanges", ConnectSchema(Type.ARRAY, items=change)),
        ),
    )
