"""The defaults of columns in Connect schemas, by Debezium's rules.

A default that is an expression is left out. For CURRENT_TIMESTAMP, a NOT NULL column gets 1970 as default.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal

from changefeed.formats import connect_types
from changefeed.formats.connect_types import ConnectSchema, Type
from changefeed.formats.style import Encoding
from changefeed.model.table_schema import Column, Default

EPOCH_TEXT = "1970-01-01T00:00:00Z"
_MOMENT = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_DAYS_BEFORE_1970 = date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
_LARGEST = 2**63 - 1

_TIMES = {connect_types.MICRO_TIME: 1_000_000, connect_types.NANO_TIME: 10**9, connect_types.CONNECT_TIME: 1000}
_MOMENTS = {
    connect_types.TIMESTAMP: 1000,
    connect_types.CONNECT_TIMESTAMP: 1000,
    connect_types.MICRO_TIMESTAMP: 1_000_000,
    connect_types.NANO_TIMESTAMP: 10**9,
}
"""The number of units of each schema in a second."""

_TEXTS: Mapping[Encoding, Callable[[bytes], str]] = {
    Encoding.BASE64: lambda data: base64.b64encode(data).decode(),
    Encoding.BASE64_URL: lambda data: base64.urlsafe_b64encode(data).decode(),
    Encoding.HEX: bytes.hex,
}

Value = int | float | str | bytes


def with_default(schema: ConnectSchema, column: Column) -> ConnectSchema:
    """The schema of ``column`` with the column's default, if that is a constant."""
    default = column.default
    if default is None or default.text is None or column.generated:
        return schema
    value = _of_expression(schema, column, default) if default.is_sql else _READERS[schema.type](schema, default.text)
    return replace(schema, default=value)


def bytes_as_text(schema: ConnectSchema, encoding: Encoding) -> ConnectSchema:
    """``schema`` with text in ``encoding`` instead of bytes, also in its default. Other types are unchanged."""
    if schema.type is not Type.BYTES or schema.name is not None:
        return schema
    default = schema.default
    if isinstance(default, bytes):
        default = _TEXTS[encoding](default)
    return replace(schema, type=Type.STRING, default=default)


def _of_expression(schema: ConnectSchema, column: Column, default: Default) -> Value | None:
    if not str(default.text).startswith("CURRENT_TIMESTAMP"):
        return None
    if column.data_type == "timestamp":
        return None if schema.optional else (EPOCH_TEXT if schema.type is Type.STRING else 0)
    if schema.name == connect_types.ISO_TIMESTAMP:
        return None if schema.optional else EPOCH_TEXT
    return 0 if schema.type is Type.INT64 else None


def _boolean(_schema: ConnectSchema, text: str) -> Value:
    return _bits(text) != 0


def _integer(schema: ConnectSchema, text: str) -> Value | None:
    if schema.name in (connect_types.DATE, connect_types.CONNECT_DATE):
        return _days(text)
    if schema.name in _TIMES:
        micros = _time_micros(text)
        of_day = micros is not None and 0 <= micros <= _DAY_MICROS
        return _in_units(micros, _TIMES[schema.name]) if of_day or schema.type is Type.INT64 else None
    if schema.name in _MOMENTS:
        micros = _moment_micros(text)
        if micros is None:
            return None if schema.optional else 0
        return _in_units(micros, _MOMENTS[schema.name])
    return min(int(Decimal(text)), _LARGEST)


def _double(_schema: ConnectSchema, text: str) -> Value:
    return float(text)


def _string(schema: ConnectSchema, text: str) -> Value | None:
    if schema.name == connect_types.ISO_DATE:
        return None if _days(text) is None else text[:10] + "Z"
    if schema.name == connect_types.ISO_TIME:
        micros = _time_micros(text)
        return _trim_zeros(text) + "Z" if micros is not None and 0 <= micros <= _DAY_MICROS else None
    if schema.name not in (connect_types.ZONED_TIMESTAMP, connect_types.ISO_TIMESTAMP):
        return text
    if _moment_micros(text) is None:
        return None if schema.optional else EPOCH_TEXT
    return (_trim_zeros(text) if schema.name == connect_types.ISO_TIMESTAMP else text).replace(" ", "T") + "Z"


def _bytes(schema: ConnectSchema, text: str) -> Value:
    parameters = dict(schema.parameters)
    if schema.name == connect_types.DECIMAL:
        return unscaled_bytes(Decimal(text), int(parameters["scale"]))
    if schema.name == connect_types.BITS:
        return _bits(text).to_bytes((int(parameters["length"]) + 7) // 8, "little")
    return bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode()


def _nothing(_schema: ConnectSchema, _text: str) -> Value | None:
    return None


_READERS: dict[Type, Callable[[ConnectSchema, str], Value | None]] = {
    Type.BOOLEAN: _boolean,
    Type.INT16: _integer,
    Type.INT32: _integer,
    Type.INT64: _integer,
    Type.FLOAT32: _double,
    Type.FLOAT64: _double,
    Type.STRING: _string,
    Type.BYTES: _bytes,
    Type.ARRAY: _nothing,
    Type.STRUCT: _nothing,
}


def unscaled_bytes(number: Decimal, scale: int) -> bytes:
    """The bytes of Connect's Decimal: the number without its point, in the shortest big-endian two's complement."""
    sign, digits, exponent = number.as_tuple()
    power: int = 10 ** (int(exponent) + scale)
    integer = int("".join(map(str, digits))) * (-power if sign else power)
    return integer.to_bytes(((integer if integer >= 0 else ~integer).bit_length() + 8) // 8, "big", signed=True)


def _trim_zeros(text: str) -> str:
    """``text`` without zeros at the end of its fraction."""
    integer, _, fraction = text.partition(".")
    return integer + (f".{digits}" if (digits := fraction.rstrip("0")) else "")


def _in_units(micros: int | None, units: int) -> int | None:
    return None if micros is None else micros * units // 1_000_000


def _bits(text: str) -> int:
    return int(text[2:-1] or "0", 2) if text.startswith("b'") else int(text)


def _days(text: str) -> int | None:
    micros = _moment_micros(text)
    return None if micros is None else micros // _DAY_MICROS


def _moment_micros(text: str) -> int | None:
    """Microseconds since 1970; None for an invalid date."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    try:
        days = date(year, month, day).toordinal() - _DAYS_BEFORE_1970
    except ValueError:
        return None
    return days * _DAY_MICROS + _clock_micros(hour, minute, second, match[7])


def _time_micros(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    micros = _clock_micros(int(match[2]), int(match[3]), int(match[4]), match[5])
    return -micros if match[1] else micros


def _clock_micros(hour: int, minute: int, second: int, fraction: str | None) -> int:
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int((fraction or "").ljust(6, "0"))
