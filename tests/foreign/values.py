"""A column's values from SELECT and from records, converted to one form that can be compared."""

from __future__ import annotations

import base64
import json
import re
import struct
from decimal import Decimal
from typing import Any

from changefeed.model.table_schema import Column

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"})
BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
AS_TEXT = frozenset({"date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"})
GEOMETRIES = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geomcollection", "geometrycollection"),
    }
)
KNOWN = INTEGERS | TEXTS | BYTES | AS_TEXT | GEOMETRIES | {"decimal", "float", "double", "bit", "json", "vector"}


def selected(column: Column) -> str:
    """The expression that selects a column for `of_select`, in a session in UTC."""
    name = "`" + column.name.replace("`", "``") + "`"
    match column.data_type:
        case "bit":
            return f"{name}+0"
        case "float" | "double":
            return f"CAST({name} AS DOUBLE)"
        case data_type if data_type in TEXTS:
            return f"CONVERT({name} USING utf8mb4)"
        case data_type if data_type in BYTES or data_type in GEOMETRIES or data_type == "vector":
            return f"HEX({name})"
        case data_type if data_type in AS_TEXT or data_type in ("decimal", "json"):
            return f"CAST({name} AS CHAR)"
    return name


def of_select(column: Column, value: Any) -> Any:
    """The comparable value of a SELECT result."""
    if value is None:
        return None
    match column.data_type:
        case "datetime":
            return str(value).replace(" ", "T")
        case "timestamp":
            return str(value).replace(" ", "T") + "Z"
    return _of_both(column, value)


def of_record(column: Column, value: Any) -> Any:
    """The comparable value of a record."""
    if value is None:
        return None
    match column.data_type:
        case "vector":
            return struct.pack(f"<{len(value)}f", *value).hex().upper()
        case data_type if data_type in GEOMETRIES:
            return struct.pack("<I", value["srid"]).hex().upper() + _hex(value["wkb"])
        case data_type if data_type in BYTES:
            return _hex(value)
    return _of_both(column, value)


def _of_both(column: Column, value: Any) -> Any:
    match column.data_type:
        case "year":
            return int(value) % 100  # MariaDB's YEAR(2) is selected with two digits, and is nothing else in schemas
        case "decimal":
            return Decimal(value)
        case "float":
            return _single(value)
        case "double":
            return float(value)
        case "json":
            return _document(value)
        case data_type if data_type in INTEGERS or data_type == "bit":
            return int(value)
    return _text(value)


def _text(value: Any) -> str:
    """Undefined bytes of a charset are ? in a SELECT, and U+FFFD in records, one for each byte."""
    return re.sub("[?\ufffd]+", "?", str(value))


def _hex(text: str) -> str:
    return base64.b64decode(text, validate=True).hex().upper()


def _single(value: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def _document(text: Any) -> str:
    return json.dumps(json.loads(text), sort_keys=True)
