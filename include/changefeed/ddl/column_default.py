"""DEFAULT clauses: the text of a default, and the value that the server lists for it.

Sources: https://dev.mysql.com/doc/refman/9.7/en/data-type-defaults.html,
https://mariadb.com/kb/en/create-table/#default-column-option; the listed values were observed on MySQL 9.7 and MariaDB
11.4.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from ipaddress import IPv4Address, IPv6Address
from itertools import takewhile

from changefeed.ddl.cursor import Cursor
from changefeed.ddl.expression_spelling import expression_spelling
from changefeed.ddl.scanner import TokenKind
from changefeed.model.charset_codes import charset_of_name, decode_text
from changefeed.model.table_schema import NO_DEFAULT, Column, Default, current_time


def expression_default(sql: str) -> Default:
    """The default of the expression ``sql``, in the spelling of `expression_spelling`."""
    return Default(expression_spelling(sql), is_sql=True)


Value = str | bytes | Decimal | None
_MOST_DIGITS = 1000
"""Limit of the digits before and after the point. No column type has more, and the full text could have gigabytes."""


@dataclass(frozen=True)
class WrittenDefault:
    """The text after DEFAULT: ``sql`` as written, and ``value`` if it is a literal (None for NULL)."""

    sql: str
    is_literal: bool = False
    value: Value = None


def read_default(cursor: Cursor) -> WrittenDefault:
    """The default whose text after DEFAULT is at ``cursor``."""
    address, start = cursor.address(), cursor.token.start
    cursor.expression()
    end, sql = cursor.address(), cursor.sql[start : cursor.ahead(-1).end]
    cursor.go_back(address)
    parenthesized = cursor.is_symbol("(")
    if parenthesized and cursor.server.is_mariadb:  # MySQL reads a literal in parentheses as an expression
        cursor.advance()
    try:
        value = _literal(cursor)
        is_literal = (not parenthesized or cursor.symbol(")")) and cursor.address() == end
    except ValueError:
        value, is_literal = None, False
    cursor.go_back(end)
    return WrittenDefault(sql, is_literal, value if is_literal else None)


def _literal(cursor: Cursor) -> Value:
    """The literal at ``cursor``. Raises ValueError if there is none."""
    sign = Decimal(-1) if cursor.symbol("-") else Decimal(1)
    cursor.symbol("+")
    if cursor.one_of("NULL"):
        return None
    if cursor.one_of("TRUE"):
        return Decimal(1)
    if cursor.one_of("FALSE"):
        return Decimal(0)
    introducer = cursor.token.keyword[1:].lower() if cursor.token.keyword.startswith("_") else ""
    is_prefix = cursor.token.keyword in ("N", "DATE", "TIME", "TIMESTAMP") or cursor.token.keyword.startswith("_")
    if is_prefix and (cursor.ahead(1).kind in (TokenKind.STRING, TokenKind.NUMBER) or _is_digits(cursor, 1)):
        cursor.advance()
    token = cursor.token
    if token.kind is TokenKind.NUMBER:
        cursor.advance()
        if token.text[:2] in ("0x", "0b"):
            return _introduced_text(_bytes(token.text[2:], 16 if token.text[1] == "x" else 2), introducer)
        number = Decimal(token.text)
        if abs(number.adjusted()) > _MOST_DIGITS:
            raise OverflowError(f"{token.text[:30]!r} is a number too large for any column")
        return sign * number
    if _is_digits(cursor, 0):
        cursor.advance()
        return _introduced_text(_bytes(cursor.advance().text, 16 if token.keyword == "X" else 2), introducer)
    text = ""
    if not cursor.is_kind(TokenKind.STRING):
        raise ValueError(cursor.token.text)
    while cursor.is_kind(TokenKind.STRING):
        text += cursor.advance().text
    return text


def _introduced_text(digits: bytes, charset: str) -> str | bytes:
    """The text of bytes after an introducer such as `_ujis`. Without an introducer, the bytes."""
    return decode_text(digits, charset) if charset and charset != "binary" else digits


def _is_digits(cursor: Cursor, distance: int) -> bool:
    """Whether X'41' or B'1000001' follows."""
    is_mark = cursor.ahead(distance).keyword in ("X", "B")
    return is_mark and cursor.ahead(distance + 1).kind is TokenKind.STRING


def _bytes(digits: str, base: int) -> bytes:
    bits = len(digits) * (4 if base == 16 else 1)
    return (int(digits, base) if digits else 0).to_bytes((bits + 7) // 8, "big")


_CURRENT = re.compile(
    r"\(?\s*+(?:CURRENT_TIMESTAMP|NOW|LOCALTIME|LOCALTIMESTAMP)\b\s*+(?:\(\s*+(\d?)\s*+\)\s*+)?\)?", re.IGNORECASE
)


_WITHOUT_DEFAULT = frozenset(
    {"tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob", "json", "geometry"}
)
"""Types whose columns cannot have a literal as default in MySQL."""


def listed_default(written: WrittenDefault, column: Column, *, is_mariadb: bool) -> Default:
    """The default of ``column`` as the server lists it. If changefeed cannot evaluate the default, its SQL."""
    if written.is_literal and written.value is None:
        return NO_DEFAULT
    if not written.is_literal:
        current = _CURRENT.fullmatch(written.sql)
        if current and written.sql.startswith("(") and not is_mariadb:
            return expression_default(f"now({current[1] or ''})")  # MySQL reads it as an expression
        if current:
            return current_time(int(current[1] or 0))
        return expression_default(written.sql)
    if not is_mariadb and column.data_type in _WITHOUT_DEFAULT:
        return NO_DEFAULT  # a server without strict mode ignores the clause
    try:
        text = _listed_value(written.value, column)
    except (ValueError, InvalidOperation, LookupError):
        text = None
    return expression_default(written.sql) if text is None else Default(text)


def _listed_value(value: Value, column: Column) -> str | None:
    """The value as the column stores it. If it is not known: None, or ValueError or InvalidOperation is raised."""
    if isinstance(value, bytes) and column.collation is not None:
        value = decode_text(value, charset_of_name(column.collation))
    match column.data_type:
        case "tinyint" | "smallint" | "mediumint" | "int" | "bigint":
            number = _number(value).quantize(Decimal(1), ROUND_HALF_UP)
            return _pad(f"{int(number)}", column.length or 0, column)
        case "decimal":
            return _fixed_text(_number(value), column)
        case "float" | "double":
            return (
                _fixed_text(_number(value), column) if column.scale is not None else _float_text(_number(value), column)
            )
        case "bit":
            number = _number(int.from_bytes(value, "big") if isinstance(value, bytes) else value)
            return f"b'{int(number):b}'"
        case "year":
            return _year(value)
        case "date":
            return "0000-00-00" if value == Decimal(0) else _date_of_moment(_digits(value))
        case "time":
            return _time("0:0" if value == Decimal(0) else _clock(value), column)
        case "datetime" | "timestamp":
            return _datetime("0000-00-00" if value == Decimal(0) else _digits(value), column)
        case "enum":
            return _labels([_text(value)], column)
        case "set":
            return _labels(_text(value).split(",") if value else [], column)
        case "binary":
            return _hex(_value_bytes(value).ljust(column.length or 0, b"\0"))  # padded, as in a row
        case "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob":
            return _hex(_value_bytes(value))
        case "char":
            return _text(value).rstrip(" ")
        case "geometry" | "point" | "json" | "vector":
            return None
        case "inet6":
            return _inet6(_text(value))
    return _text(value)


def _number(value: Value | int) -> Decimal:
    if isinstance(value, bytes):
        return Decimal(int.from_bytes(value, "big"))
    return Decimal(value.strip() if isinstance(value, str) else value or 0)


def _text(value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode("ascii")
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value or ""


def _digits(value: Value) -> str:
    """The text of a date or moment. The number 20200102 is '2020-01-02', 20200102030405 is '2020-01-02 03:04:05'."""
    text = _text(value)
    if isinstance(value, Decimal):
        integer_part, point, fraction = text.partition(".")
        text = (
            integer_part.zfill(next((digits for digits in (6, 8, 12) if len(integer_part) <= digits), 14))
            + point
            + fraction
        )
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    year, month, day, time, fraction = found.groups("")
    if len(year) == 2:
        year = _year(Decimal(year)) if int(year) else "2000"
    date = f"{year}-{month}-{day}"
    return f"{date} {time[:2]}:{time[2:4]}:{time[4:]}{fraction}" if time else date


def _clock(value: Value) -> str:
    """The text of a time. The number 101112 is '10:11:12'."""
    text = _text(value)
    if not isinstance(value, Decimal):
        return text
    sign, digits = "-" * (value < 0), text.lstrip("-")
    integer_part, point, fraction = digits.partition(".")
    integer_part = integer_part.zfill(6)
    return f"{sign}{integer_part[:-4]}:{integer_part[-4:-2]}:{integer_part[-2:]}{point}{fraction}"


def _value_bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else _text(value).encode()


def _hex(held: bytes) -> str:
    return "0x" + held.hex().upper() if held else ""


def _pad(text: str, width: int, column: Column) -> str:
    return text.rjust(width, "0") if column.zerofill else text


def _fixed_text(number: Decimal, column: Column) -> str:
    scale = column.scale or 0
    fixed = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    # DECIMAL(M,D) is filled to M digits and a point, FLOAT(M,D) to M characters.
    point = 1 if scale and column.data_type == "decimal" else 0
    return _pad(f"{abs(fixed) if fixed == 0 else fixed:f}", (column.precision or 0) + point, column)


def _float_text(number: Decimal, column: Column) -> str | None:
    """The number as servers print it; None if that is not known.

    FLOAT has 6 digits. DOUBLE has the fewest digits that parse as the same number, with up to 15 before the point.
    """
    single = column.data_type == "float"
    shortest = Decimal(f"{float(number):.6g}" if single else repr(float(number))).normalize()
    before_point = shortest.adjusted() + 1
    if shortest == 0:
        text = "0"
    elif -15 < before_point <= 15:
        text = f"{shortest:f}"
    else:
        digits = "".join(map(str, shortest.as_tuple().digits))
        sign, fraction = "-" * (shortest < 0), digits[1:]
        text = f"{sign}{digits[0]}{'.' * bool(fraction)}{fraction}e{shortest.adjusted()}"
    return None if column.zerofill or len(text) > (12 if single else 22) else text


def _year(value: Value) -> str:
    number = int(_number(value))
    if number == 0:
        return "2000" if isinstance(value, str) and len(value) < 4 else "0000"
    return str(number + 2000 if number < 70 else number + 1900 if number < 100 else number)


_MOMENT = re.compile(r"(\d{4}|\d{2})(\d\d)(\d\d)(\d{6})?(\.\d*)?")
"""A moment as a number, or as text without separators: 6, 8, 12 or 14 digits."""
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6}))?)?")


def _date(text: str) -> str | None:
    parts = _DATE.fullmatch(text)
    return f"{parts[1]}-{int(parts[2]):02}-{int(parts[3]):02}" if parts else None


def _date_of_moment(text: str) -> str | None:
    """The date in a text with a date, or with a date and a time, which is cut off; None for a time with a fraction."""
    day, _, time = text.replace("T", " ").partition(" ")
    return _date(day) if not time or re.fullmatch(r"([01]?\d|2[0-3]):[0-5]?\d(:[0-5]?\d)?", time) else None


def _time(text: str, column: Column) -> str | None:
    parts = _TIME.fullmatch(text)
    digits = column.datetime_precision or 0
    if parts is None or len(parts[5] or "") > digits:
        return None
    fraction = "." * bool(digits) + (parts[5] or "").ljust(digits, "0")
    return f"{parts[1]}{int(parts[2]):02}:{int(parts[3]):02}:{int(parts[4] or 0):02}{fraction}"


def _datetime(text: str, column: Column) -> str | None:
    day, _, time = text.replace("T", " ").partition(" ")
    date, moment = _date(day), _time(time or "00:00:00", column)
    return f"{date} {moment}" if date and moment else None


def _inet6(text: str) -> str:
    """An address as MariaDB writes it: the last four bytes are IPv4 if only zeros, or zeros and ffff, precede them."""
    packed = IPv6Address(text).packed
    words = [int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2)]
    if not any(words[:5]) and (words[5] == 0xFFFF or (not words[5] and words[6])):
        return f"::{'ffff:' if words[5] else ''}{IPv4Address(packed[12:])}"
    runs = [(len(run), -at) for at in range(8) for run in [list(takewhile(lambda word: not word, words[at:]))]]
    length, start = max(runs)
    groups = [f"{word:x}" for word in words]
    if not length:
        return ":".join(groups)
    return f"{':'.join(groups[:-start])}::{':'.join(groups[length - start :])}"


def _labels(texts: list[str], column: Column) -> str | None:
    """The labels in the spelling and the order of the column's definition; None for an unknown label."""
    labels = {label.lower(): label for label in column.labels}
    chosen = {labels.get(text.rstrip(" ").lower()) for text in texts}
    if None in chosen:
        return None
    return ",".join(label for label in column.labels if label in chosen)
