"""Converts mysql-replication's Python values into JSON values, in a plain `Style`."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import struct
from typing import Any

from pymysqlreplication.constants import NONE_SOURCE

from changefeed.errors import SchemaError
from changefeed.formats.style import Encoding, Style
from changefeed.model import column_types
from changefeed.model.charset_codes import misread_by_python

_MICROSECONDS = datetime.timedelta(microseconds=1)
_EPOCH = datetime.datetime(1970, 1, 1)
_YEAR_ZERO = 1900
"""The library's value for YEAR 0. The first other YEAR is 1901."""


class MisreadValue(Exception):
    """mysql-replication is known to read the value wrongly. The reader adds coordinates."""


def json_value(value: Any, none_source: str | None, column: Any, bits: Encoding) -> object:
    """``value`` of mysql-replication's ``column`` as a JSON value. ``bits`` is the encoding of BIT columns.

    ``none_source`` is the library's reason for None. Raises MisreadValue for a value that it reads wrongly.
    """
    if value is None:
        return _nothing(none_source, column)
    if column.type == column_types.JSON.number:
        return json.dumps(_plain(value, column), ensure_ascii=False, separators=(",", ":"))
    match value:
        case bool() | int() if column.type == column_types.YEAR.number:
            return 0 if value == _YEAR_ZERO else value
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
            return _time(value, column)
        case set():
            return ",".join(label for label in column.set_values if label in value)
        case str() if column.type == column_types.BIT.number:
            return _bits(value, column) if bits is Encoding.CONNECT else int(value, 2)
        case str() if column.character_set_name != "binary":
            return _text(value, column)
        case "":  # Python decodes empty bytes even with an unknown codec
            return json_value(b"", none_source, column, bits)
        case bytes() if column.type == column_types.GEOMETRY.number:
            (srid,) = struct.unpack_from("<I", value)
            return {"srid": srid, "wkb": base64.b64encode(value[4:]).decode()}
        case bytes() if column.type == column_types.STRING.number:
            return base64.b64encode(value.ljust(column.max_length, b"\0")).decode()  # the binlog omits zeros at the end
        case bytes():
            return base64.b64encode(value).decode()
    raise MisreadValue(f"mysql-replication gave a {type(value).__name__} for column {column.name!r}")


def _nothing(source: str | None, column: Any) -> str | None:
    match source:
        case None | NONE_SOURCE.NULL:
            return None
        case NONE_SOURCE.EMPTY_SET:
            return ""
        case NONE_SOURCE.COLS_BITMAP:
            raise MisreadValue(f"the row does not have column {column.name!r}: expected binlog_row_image=FULL")
    raise MisreadValue(f"column {column.name!r} has a date that Python does not know, such as 0000-00-00 ({source})")


def check_style(style: Style) -> None:
    """Raises SchemaError for a style that only the default reader supports."""
    if not style.is_plain:
        raise SchemaError(f"reader 'reference' writes plain values only, not {style}")


def _bits(value: str, column: Any) -> object:
    """Bits as Debezium writes them: a boolean, or bytes, the lowest byte first."""
    if column.bits == 1:
        return value == "1"
    return base64.b64encode(int(value, 2).to_bytes(column.bytes, "little")).decode()


def _text(value: str, column: Any) -> str:
    charset = (column.character_set_name or "").replace("_", "")  # the library's name for koi8u is koi8_u
    if not misread_by_python(charset).isdisjoint(value):
        raise MisreadValue(
            f"column {column.name!r} has a character that differs between Python's and MySQL's {charset}"
        )
    return value


def _shortest_float(value: float) -> float:
    """The shortest double that reads back as this single-precision value."""
    for digits in range(6, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == struct.pack("<f", value):
            return short
    return value


def _moment(value: datetime.datetime, column: Any) -> str:
    is_timestamp = column.type in (column_types.TIMESTAMP.number, column_types.TIMESTAMP2.number)
    text = f"{value:%Y-%m-%dT%H:%M:%S}".rjust(19, "0")
    if is_timestamp and value == _EPOCH:
        text = "0000-00-00T00:00:00"  # 0 is the zero date: the first TIMESTAMP is a second later
    return text + _fraction(value.microsecond, getattr(column, "fsp", 0)) + ("Z" if is_timestamp else "")


def _time(value: datetime.timedelta, column: Any) -> str:
    microseconds = abs(value) // _MICROSECONDS
    seconds, fraction = divmod(microseconds, 1_000_000)
    if fraction and value < datetime.timedelta(0):
        raise MisreadValue(f"column {column.name!r} has a negative time with a fraction")
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    sign = "-" if value < datetime.timedelta(0) else ""
    return f"{sign}{hour:02}:{minute:02}:{second:02}{_fraction(fraction, getattr(column, 'fsp', 0))}"


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06}"[: digits + 1] if digits else ""


def _plain(value: Any, column: Any) -> Any:
    """A JSON document's ``value`` with text instead of bytes. Raises MisreadValue for opaque values."""
    match value:
        case dict():
            return {_plain(key, column): _plain(inner, column) for key, inner in value.items()}
        case list():
            return [_plain(inner, column) for inner in value]
        case bytes():
            return value.decode()
        case str():  # the library returns texts as bytes
            raise MisreadValue(f"column {column.name!r} has bytes in its JSON")
        case None | bool() | int() | float():
            return value
    raise MisreadValue(f"column {column.name!r} has a {type(value).__name__} in its JSON, whose text is MySQL's own")
