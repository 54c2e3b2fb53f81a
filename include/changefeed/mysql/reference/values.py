"""mysql-replication's Python values -> what JSON says of them, in the default `Style`."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
from typing import Any

from changefeed import column_types
from changefeed.errors import SchemaError
from changefeed.formats.style import Style

_MICROSECONDS = datetime.timedelta(microseconds=1)


def json_value(value: Any, column: Any) -> object:
    """``value`` of mysql-replication's ``column`` as a value that JSON knows."""
    if value is None:
        return None
    match value:
        case bool() | int():
            return value
        case float() if column.type == column_types.FLOAT.number:
            return _shortest_float(value)
        case float():
            return value
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return _moment(value, column)
        case datetime.date():
            return value.isoformat()
        case datetime.timedelta():
            return _time(value, getattr(column, "fsp", 0))
        case set():
            return ",".join(label for label in column.set_values if label in value)
        case str() if column.type == column_types.BIT.number:
            return int(value, 2)
        case str():
            return value
        case bytes() if column.type == column_types.JSON.number:
            return value.decode()
        case bytes() if column.type == column_types.GEOMETRY.number:
            (srid,) = struct.unpack_from("<I", value)
            return {"srid": srid, "wkb": base64.b64encode(value[4:]).decode()}
        case bytes():
            return base64.b64encode(value).decode()
        case dict() | list() if column.type == column_types.JSON.number:
            return json.dumps(_texts(value), ensure_ascii=False)
    raise SchemaError(f"mysql-replication gave a {type(value).__name__} for column {column.name!r}: not known here")


def check_style(style: Style) -> None:
    """Raises SchemaError for a style that only the default reader writes."""
    if not style.is_default():
        raise SchemaError(f"reader 'reference' writes values in the default style only, and {style} was wanted")


def _shortest_float(value: float) -> float:
    """The shortest double that reads back as this single-precision value."""
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _moment(value: datetime.datetime, column: Any) -> str:
    zone = "Z" if column.type in (column_types.TIMESTAMP.number, column_types.TIMESTAMP2.number) else ""
    return f"{value:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + _fraction(value.microsecond, getattr(column, "fsp", 0)) + zone


def _time(value: datetime.timedelta, digits: int) -> str:
    microseconds = abs(value) // _MICROSECONDS
    seconds, fraction = divmod(microseconds, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{hour:02}:{minute:02}:{second:02}{_fraction(fraction, digits)}"


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06}"[: digits + 1] if digits else ""


def _texts(value: Any) -> Any:
    """mysql-replication leaves JSON's strings as bytes."""
    match value:
        case dict():
            return {_texts(key): _texts(inner) for key, inner in value.items()}
        case list():
            return [_texts(inner) for inner in value]
        case bytes():
            return value.decode()
        case decimal.Decimal():
            return float(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return str(value)
    return value
