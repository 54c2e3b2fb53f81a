"""Sample rows: a value of its type, in a format's style, for each column of a table.

The values depend only on the columns, so sample messages show no data of the table.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import orjson

from changefeed.formats.render import Image
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.table_schema import Column, TableSchema

TEXT = "text"
MOMENT = datetime(2026, 1, 31, 12, 30, 45, 500_000, UTC)
"""The moment from which all dates and times are written, as precisely as the column's type allows."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DOCUMENT = {"key": "value"}


def sample_row(table: TableSchema, style: Style) -> Image:
    """The sample row image of ``table``."""
    return {column.name: _value(column, style) for column in table.columns}


def _value(column: Column, style: Style) -> object:
    if column.data_type == "bigint" and column.unsigned:
        return _BIGINTS[style[Kind.BIGINT_UNSIGNED]]
    make = _MAKERS.get(column.data_type)
    return TEXT[: column.length] if make is None else make(column, style)


_BIGINTS: Mapping[Encoding, object] = {
    Encoding.NUMBER: 1,
    Encoding.LONG: 1,
    Encoding.STRING: "1",
    Encoding.PRECISE: base64.b64encode(b"\x01").decode(),
}


def _decimal(column: Column, style: Style) -> object:
    precision, scale = column.precision or 10, column.scale or 0
    number = Decimal(1 if precision > scale else 0) + (Decimal("0.5") if scale else 0)
    digits = f"{number:.{scale}f}"
    match style[Kind.DECIMAL]:
        case Encoding.DOUBLE:
            return orjson.Fragment(digits)  # all digits, as the kernel writes it
        case Encoding.PRECISE:
            unscaled = int(number.scaleb(scale))
            return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big")).decode()
    return digits


def _fraction(column: Column) -> str:
    digits = column.datetime_precision or 0
    return f".{MOMENT.microsecond:06d}"[: digits + 1] if digits else ""


def _since(column: Column, time: timedelta, encoding: Encoding) -> int:
    """Milliseconds or microseconds, as EPOCH chooses by the column's precision."""
    rounded = time if column.datetime_precision else time - timedelta(microseconds=MOMENT.microsecond)
    is_fine = encoding is Encoding.MICROS or (column.datetime_precision or 0) > 3
    return rounded // timedelta(microseconds=1 if is_fine else 1000)


def _date(_: Column, style: Style) -> object:
    match style[Kind.DATE]:
        case Encoding.EPOCH:
            return (MOMENT.date() - date(1970, 1, 1)).days
        case Encoding.PARTS:
            return {"year": MOMENT.year, "month": MOMENT.month, "day": MOMENT.day}
    return f"{MOMENT:%Y-%m-%d}"


def _time(column: Column, style: Style) -> object:
    encoding = style[Kind.TIME]
    if encoding in (Encoding.EPOCH, Encoding.MICROS):
        return _since(column, MOMENT - MOMENT.replace(hour=0, minute=0, second=0, microsecond=0), encoding)
    return f"{MOMENT:%H:%M:%S}{_fraction(column)}"


def _datetime(column: Column, style: Style) -> object:
    encoding = style[Kind.DATETIME]
    match encoding:
        case Encoding.EPOCH | Encoding.MICROS:
            return _since(column, MOMENT - _EPOCH, encoding)
        case Encoding.PARTS:
            subsecond = MOMENT.microsecond if column.datetime_precision else 0
            time = {"hour": MOMENT.hour, "minute": MOMENT.minute, "second": MOMENT.second, "subsecond": subsecond}
            return {"year": MOMENT.year, "month": MOMENT.month, "day": MOMENT.day, **time}
    return f"{MOMENT:%Y-%m-%d}{' ' if encoding is Encoding.SQL else 'T'}{MOMENT:%H:%M:%S}{_fraction(column)}"


def _timestamp(column: Column, style: Style) -> object:
    encoding = style[Kind.TIMESTAMP]
    match encoding:
        case Encoding.EPOCH:
            return _since(column, MOMENT - _EPOCH, encoding)
        case Encoding.PARTS:
            subsecond = MOMENT.microsecond if column.datetime_precision else 0
            return {"unix_time": int(MOMENT.timestamp()), "subsecond": subsecond}
        case Encoding.SQL:
            return f"{MOMENT:%Y-%m-%d %H:%M:%S}{_fraction(column)}"
    return f"{MOMENT:%Y-%m-%dT%H:%M:%S}{_fraction(column)}Z"


def _bit(column: Column, style: Style) -> object:
    bits = column.length or 1
    if style[Kind.BIT] is Encoding.NUMBER:
        return 1
    return True if bits == 1 else base64.b64encode((1).to_bytes((bits + 7) // 8, "little")).decode()


def _enum(column: Column, style: Style) -> object:
    return column.labels[0] if column.labels and style[Kind.ENUM] is Encoding.LABEL else 1


def _set(column: Column, style: Style) -> object:
    if not column.labels:
        return 1
    return column.labels[0] if style[Kind.SET] is Encoding.COMMAS else [column.labels[0]]


def _encode(data: bytes, encoding: Encoding) -> object:
    match encoding:
        case Encoding.HEX:
            return data.hex()
        case Encoding.NUMBERS:
            return list(data)
    return base64.b64encode(data).decode()


def _bytes(column: Column, style: Style) -> object:
    length = column.length if column.length is not None else len(TEXT)
    data = TEXT.encode()[:length]
    return _encode(data.ljust(length, b"\0") if column.data_type == "binary" else data, style[Kind.BINARY])


def _ring(*points: tuple[float, float]) -> bytes:
    return struct.pack("<I", len(points)) + b"".join(struct.pack("<2d", *point) for point in points)


def _shape(number: int, body: bytes) -> bytes:
    return struct.pack("<BI", 1, number) + body


_POINT = _shape(1, struct.pack("<2d", 1, 2))
_LINE = _shape(2, _ring((1, 2), (3, 4)))
_POLYGON = _shape(3, struct.pack("<I", 1) + _ring((0, 0), (1, 0), (1, 1), (0, 0)))
_COUNT = struct.pack("<I", 1)
_SHAPES = {
    "linestring": _LINE,
    "polygon": _POLYGON,
    "multipoint": _shape(4, _COUNT + _POINT),
    "multilinestring": _shape(5, _COUNT + _LINE),
    "multipolygon": _shape(6, _COUNT + _POLYGON),
    "geomcollection": _shape(7, _COUNT + _POINT),
    "geometrycollection": _shape(7, _COUNT + _POINT),
}
"""The well-known binary of one shape of each type. GEOMETRY is a point."""


def _geometry(column: Column, style: Style) -> object:
    wkb, srid, encoding = _SHAPES.get(column.data_type, _POINT), column.srid or 0, style[Kind.GEOMETRY]
    if encoding is Encoding.NUMBERS:
        return list(struct.pack("<I", srid) + wkb)
    if encoding is not Encoding.CONNECT:
        return {"srid": srid, "wkb": _encode(wkb, encoding)}
    point = {"x": 1.0, "y": 2.0} if column.data_type == "point" else {}
    return {**point, "wkb": base64.b64encode(wkb).decode(), "srid": srid or None}


def _json(_: Column, style: Style) -> object:
    return orjson.dumps(_DOCUMENT).decode() if style[Kind.JSON] is Encoding.TEXT else _DOCUMENT


_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_MAKERS: Mapping[str, Callable[[Column, Style], object]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), lambda _column, _style: 1),
    **dict.fromkeys(("float", "double"), lambda _column, _style: 1.5),
    **dict.fromkeys(_BYTES, _bytes),
    **dict.fromkeys(("geometry", "point", *_SHAPES), _geometry),
    "decimal": _decimal,
    "bit": _bit,
    "date": _date,
    "time": _time,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "year": lambda _column, _style: MOMENT.year,
    "enum": _enum,
    "set": _set,
    "json": _json,
    "vector": lambda column, _style: [0.5] * (column.length or 1),
    "uuid": lambda _column, _style: "00000000-0000-0000-0000-000000000001",
    "inet4": lambda _column, _style: "192.0.2.1",
    "inet6": lambda _column, _style: "2001:db8::1",
}
"""Functions that create values, by data type. Values of other types are text."""
