"""Column values as SQL: the literal that stores exactly that value, in a session as `follower_session` sets it.

That session speaks utf8mb4, escapes with backslashes, is in UTC and takes zero and partial dates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.typed_values import Value, reader_of, unscaled
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column


def quoted_text(text: str) -> str:
    """``text`` as a string literal: as JSON has it, which the kernel copies from messages, or where it has a control
    character that MySQL has no such escape for, with only what has to be escaped."""
    if _CONTROL.search(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return orjson.dumps(text).decode()


_CONTROL = re.compile("[\\x00-\\x07\\x0b\\x0c\\x0e-\\x1f\\x7f]")


def literal(value: Value) -> str:
    """The literal of any value."""
    match value:
        case None:
            return "NULL"
        case str():
            return quoted_text(value)
        case int():
            return str(value)
        case bytes():
            return f"x'{value.hex()}'"
        case float():
            return _double(value)
        case Decimal():
            return format(value, "f")


def _double(value: float) -> str:
    """With an exponent: without one it is an exact decimal to the server, and -0.0 is none of those."""
    text = repr(value)
    return text if "e" in text else text + "e0"


JsonLiteral = Callable[[Any], str]
"""What a message's JSON has of a column, but for null -> its literal."""


def literal_of(column: Column, style: Style) -> JsonLiteral:
    """The literal of `reader_of`'s value, for columns of which it is near to what a message has without that detour.

    It raises as `reader_of`'s functions do.
    """
    data_type = column.data_type
    numbers = style[Kind.BIGINT_UNSIGNED] is Encoding.NUMBER
    if data_type in _INTEGERS and (numbers or not (data_type == "bigint" and column.unsigned)):
        return int.__repr__
    if data_type in _CHARACTERS:
        return quoted_text
    if data_type == "double":
        return lambda value: _double(float(value))
    if data_type == "decimal" and style[Kind.DECIMAL] is Encoding.STRING:
        return _decimal
    if data_type == "decimal" and style[Kind.DECIMAL] is Encoding.PRECISE:
        scale = column.scale or 0
        return lambda text: _with_point(unscaled(text), scale)
    if data_type in ("datetime", "timestamp") and style[_KINDS[data_type]] in (Encoding.ISO, Encoding.SQL):
        return _moment
    read = reader_of(column, style)
    if data_type == "enum" and style[Kind.ENUM] is Encoding.LABEL:
        known = {label: quoted_text(label) for label in column.labels if label}
        return lambda label: known.get(label) or literal(read(label))
    if data_type == "binary":  # the binlog leaves out zeros at the end, which count in a key
        length = column.length or 0
        return lambda value: _padded(read(value), length)
    return lambda value: literal(read(value))


def in_utc(column: Column, style: Style) -> JsonLiteral:
    """As `literal_of`, of TIMESTAMP the same moment in any time zone: MySQL from 8.0.19 on reads an offset."""
    plain = literal_of(column, style)
    if column.data_type != "timestamp":
        return plain
    return lambda value: text if (text := plain(value))[1:].startswith("0000") else f"{text[:-1]}+00:00{text[-1]}"


def _padded(value: Value, length: int) -> str:
    assert isinstance(value, bytes)
    return literal(value.ljust(length, b"\0"))


def _decimal(text: str) -> str:
    Decimal(text)  # it is no other SQL
    return text


def _with_point(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return "-" + text if number < 0 else text


def _moment(text: str) -> str:
    return quoted_text(text.removesuffix("Z").replace("T", " "))


_KINDS = {"datetime": Kind.DATETIME, "timestamp": Kind.TIMESTAMP}
_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_CHARACTERS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_TEXT = _CHARACTERS | {"enum", "set"}


def same(column: Column, value: Value) -> str:
    """The condition that ``column`` holds exactly ``value``: not one that its collation only takes for equal."""
    name = quoted(column.name)
    if value is None:
        return f"{name} IS NULL"
    if column.data_type in _TEXT and isinstance(value, str):
        return f"{name} = {quoted_text(value)} AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) = {_bytes(value)}"
    if column.data_type == "json":  # 1 = 1.0 and 0.0 = -0.0; as text each is what a message has of it
        return f"CAST({name} AS BINARY) = CAST(CAST({literal(value)} AS JSON) AS BINARY)"
    if isinstance(value, float) and value == 0:  # 0.0 = -0.0
        sign = "=" if math.copysign(1, value) < 0 else "<>"
        return f"{name} = 0e0 AND LEFT(CONCAT({name}), 1) {sign} '-'"
    if isinstance(value, bytes):
        if column.data_type == "binary":
            value = value.ljust(column.length or 0, b"\0")
        return f"CAST({name} AS BINARY) = {literal(value)}"
    return f"{name} = {literal(value)}"


def _bytes(text: str) -> str:
    return f"x'{text.encode().hex()}'"
