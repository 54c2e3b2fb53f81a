"""Writes column values as SQL literals that store exactly that value in a session of `follower_session`.

Such a session uses utf8mb4, backslash escapes and UTC, and accepts zero and partial dates.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.typed_values import Value, read_unscaled, reader_of
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column


def quoted_text(text: str) -> str:
    """``text`` as a string literal.

    It is the JSON string, which the kernel copies from messages. If the text has control characters whose JSON escapes
    MySQL does not have, it is in single quotes.
    """
    if _CONTROL.search(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return orjson.dumps(text).decode()


_CONTROL = re.compile("[\\x00-\\x07\\x0b\\x0c\\x0e-\\x1f\\x7f]")


def literal(value: Value) -> str:
    """The SQL literal of ``value``."""
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
    """The literal with an exponent. Without an exponent, the server reads an exact decimal, which cannot be -0.0."""
    text = repr(value)
    return text if "e" in text else text + "e0"


JsonLiteral = Callable[[Any], str]
"""Returns the SQL literal of a column's value in a message's JSON, which must not be null."""


def literal_of(column: Column, style: Style) -> JsonLiteral:
    """The function that converts a column's value in messages to its SQL literal.

    If messages and SQL have similar forms, it converts directly, without `reader_of`. It raises the same errors as the
    functions of `reader_of`.
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
        return lambda text: _with_point(read_unscaled(text), scale)
    if data_type in ("datetime", "timestamp") and style[_KINDS[data_type]] in (Encoding.ISO, Encoding.SQL):
        return _moment
    read = reader_of(column, style)
    if data_type == "enum" and style[Kind.ENUM] is Encoding.LABEL:
        known = {label: quoted_text(label) for label in column.labels if label}
        return lambda label: known.get(label) or literal(read(label))
    if data_type == "binary":  # the binlog leaves out trailing zero bytes, and a key needs them
        length = column.length or 0
        return lambda value: _pad(read(value), length)
    return lambda value: literal(read(value))


def literal_in_utc(column: Column, style: Style) -> JsonLiteral:
    """`literal_of`, but a TIMESTAMP has an offset (MySQL 8.0.19 and later), so it is correct in any time zone."""
    plain = literal_of(column, style)
    if column.data_type != "timestamp":
        return plain
    return lambda value: text if (text := plain(value))[1:].startswith("0000") else f"{text[:-1]}+00:00{text[-1]}"


def _pad(value: Value, length: int) -> str:
    assert isinstance(value, bytes)
    return literal(value.ljust(length, b"\0"))


def _decimal(text: str) -> str:
    Decimal(text)  # raises if the text is not a number: it becomes SQL
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


def value_condition(column: Column, value: Value) -> str:
    """The SQL condition that ``column`` has exactly ``value``, not only a value that its collation treats as equal."""
    name = quote_name(column.name)
    if value is None:
        return f"{name} IS NULL"
    if column.data_type in _TEXT and isinstance(value, str):
        return f"{name} = {quoted_text(value)} AND CAST(CONVERT({name} USING utf8mb4) AS BINARY) = {_bytes(value)}"
    if column.data_type == "json":  # as JSON, 1 = 1.0 and 0.0 = -0.0; as text, they differ
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
