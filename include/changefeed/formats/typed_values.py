"""Conversion of message values, which are in a Style, to column values.

`reader_of` returns the function for a column. `inexact` lists the encodings that lose a part of a value. The results
are the server's values, which include dates that Python does not have (0000-00-00):

    integers, YEAR, BIT                 int
    DECIMAL                             Decimal, with all its digits
    FLOAT, DOUBLE                       float; for FLOAT the one with exactly the column's 32 bits
    text, UUID, INET4/6, JSON           str
    DATE, TIME, DATETIME, TIMESTAMP     str, as SELECT spells them: `2026-01-31 12:00:00.250`; TIMESTAMP in UTC
    ENUM                                str, the label; int 0 for the invalid value
    SET                                 str, the labels separated by commas
    BINARY and the like, VECTOR         bytes, as the column has them
    geometry                            bytes: the SRID in four (little-endian), then well-known binary
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson

from changefeed.errors import SchemaError
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.column_types import DATA_TYPES, GEOMETRY
from changefeed.model.table_schema import Column, TableSchema

Value = int | float | str | bytes | Decimal | None
"""A column's value; None is NULL."""

ValueReader = Callable[[Any], Value]
"""(a value from a message's JSON, not null) -> the column's value."""

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_GEOMETRIES = frozenset(data_type.name for data_type in DATA_TYPES.values() if data_type.wire[:1] == (GEOMETRY,))
_TEMPORAL = {"date": Kind.DATE, "time": Kind.TIME, "datetime": Kind.DATETIME, "timestamp": Kind.TIMESTAMP}

_LOST: Mapping[tuple[Kind, Encoding], str] = {
    (Kind.DECIMAL, Encoding.DOUBLE): "DECIMAL is written as a double, which has 15 digits",
    (Kind.DATE, Encoding.EPOCH): "DATE is written in days, where zero and partial dates are null",
    (Kind.DATETIME, Encoding.EPOCH): "DATETIME is written as a number, where zero and partial dates are null",
    (Kind.DATETIME, Encoding.MICROS): "DATETIME is written as a number, where zero and partial dates are null",
    (Kind.DATETIME, Encoding.MILLIS): "DATETIME is written in milliseconds, without what is smaller",
    (Kind.DATETIME, Encoding.NANOS): "DATETIME is written in nanoseconds, where dates after 2262 are null",
    (Kind.TIME, Encoding.OF_DAY): "TIME is written in milliseconds of a day, where those below 0 or longer are null",
    **dict.fromkeys(
        ((kind, Encoding.OFFSET) for kind in (Kind.DATE, Kind.TIME, Kind.DATETIME)),
        "dates and times are written as Debezium's `isostring`, where zero and partial dates are null, and TIMEs that "
        "are longer than a day",
    ),
    (Kind.TIMESTAMP, Encoding.EPOCH): "TIMESTAMP is written as a number, where the zero timestamp is null",
    (Kind.TIMESTAMP, Encoding.ZONED): "TIMESTAMP is written as Debezium does, where the zero timestamp is null",
    (Kind.JSON, Encoding.INLINE): "JSON documents are written inline, where the document null is NULL",
}
"""Why an encoding loses a part of values: several column values have the same encoded value."""


def inexact(style: Style) -> dict[Kind, str]:
    """Why ``style`` loses a part of values, by kind; {} if it loses nothing.

    `reader_of` reads such values as far as they are unambiguous.
    """
    return {kind: why for kind in Kind if (why := _LOST.get((kind, style[kind])))}


def reader_of(column: Column, style: Style) -> ValueReader:
    """The function that reads values of ``column`` in ``style``.

    For an invalid value, the function raises one of WRONG or returns a wrong value; see `refusal`.
    """
    return _reader(column, style)


WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, struct.error)
"""The errors that the functions of `reader_of` raise."""


class _AmbiguousLabelError(ValueError):
    """The label '' and another value, the argument, have the same encoding."""


def refusal(column: Column, value: object, error: Exception) -> SchemaError:
    """The error for an invalid ``value`` of ``column``. ``error`` is the reason."""
    if isinstance(error, _AmbiguousLabelError):
        return SchemaError(
            f"column {column.name!r} has the label '', which records have as they have {error}: what its row holds is "
            "not known, and nothing of it was written. Give the column another label on the source (ALTER TABLE … "
            "MODIFY), or put the table into `tables.exclude`; then copy it to the follower anew"
        )
    return SchemaError(
        f"column {column.name!r}, a {column.data_type}, cannot have {str(value)[:100]!r}: the message was written of "
        f"another column, or by something else ({type(error).__name__}: {error})"
    )


def _reader(column: Column, style: Style) -> ValueReader:
    data_type = column.data_type
    match data_type:
        case "bigint" if column.unsigned:
            return _BIGINTS[style[Kind.BIGINT_UNSIGNED]]
        case "decimal":
            return _decimal(column.scale or 0, style[Kind.DECIMAL])
        case "float":
            return _float32
        case "double":
            return float
        case "bit":
            return _bits if style[Kind.BIT] is Encoding.CONNECT else int
        case "enum":
            return _enum(column, style[Kind.ENUM])
        case "set":
            return _set(column, style[Kind.SET])
        case "json":
            return _inline if style[Kind.JSON] is Encoding.INLINE else _text
        case "vector":
            return lambda numbers: struct.pack(f"<{len(numbers)}f", *numbers)
    if data_type in _INTEGERS:
        return int
    if data_type in _BINARY:
        return _BYTES[style[Kind.BINARY]]
    if data_type in _GEOMETRIES:
        return _geometry(style[Kind.GEOMETRY])
    if data_type in _TEMPORAL:
        return _temporal(column, style[_TEMPORAL[data_type]])
    return _text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return value


# --- numbers


def read_unscaled(text: str) -> int:
    """The number whose two's complement bytes are ``text`` in base64, as Connect writes decimals."""
    return int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)


_BIGINTS: Mapping[Encoding, ValueReader] = {
    Encoding.NUMBER: int,
    Encoding.STRING: int,
    Encoding.LONG: lambda number: int(number) & (2**64 - 1),
    Encoding.PRECISE: read_unscaled,
}


def _decimal(scale: int, encoding: Encoding) -> ValueReader:
    if encoding is Encoding.PRECISE:
        return lambda text: _with_scale(read_unscaled(text), scale)
    return lambda value: Decimal(str(value))


def _with_scale(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


_SINGLE = struct.Struct("<f")


def _float32(value: Any) -> float:
    """The double that equals the column's 32 bits. The text in a message, such as 0.1, may parse as another double."""
    single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    return single


def _bits(value: Any) -> int:
    return int(value) if isinstance(value, bool) else int.from_bytes(base64.b64decode(value, validate=True), "little")


# --- labels


def _enum(column: Column, encoding: Encoding) -> ValueReader:
    labels = column.labels
    if encoding is Encoding.INDEX:
        return lambda number: labels[number - 1] if number else 0
    known = frozenset(labels)

    def read(label: Any) -> Value:
        if label == "":
            if "" in known:
                raise _AmbiguousLabelError("the invalid value 0")
            return 0
        if label not in known:
            raise ValueError("that is none of its labels")
        return str(label)

    return read


def _set(column: Column, encoding: Encoding) -> ValueReader:
    known = frozenset(column.labels)

    def read(value: Any) -> str:
        labels: Iterable[str] = value if encoding is Encoding.ARRAY else filter(None, value.split(","))
        chosen = list(labels)
        if not known.issuperset(chosen):
            raise ValueError("not all are among its labels")
        if "" in known:
            raise _AmbiguousLabelError("the empty set")
        return ",".join(chosen)

    return read


# --- bytes and documents

_BYTES: Mapping[Encoding, ValueReader] = {
    Encoding.BASE64: lambda text: base64.b64decode(text, validate=True),
    Encoding.BASE64_URL: base64.urlsafe_b64decode,
    Encoding.HEX: bytes.fromhex,
    Encoding.NUMBERS: bytes,
}


def _geometry(encoding: Encoding) -> ValueReader:
    if encoding is Encoding.NUMBERS:
        return bytes
    data = _BYTES[Encoding.HEX if encoding is Encoding.HEX else Encoding.BASE64]

    def read(value: Any) -> bytes:
        wkb = data(value["wkb"])
        assert isinstance(wkb, bytes)
        return struct.pack("<I", value["srid"] or 0) + wkb

    return read


def _inline(document: Any) -> str:
    return orjson.dumps(document).decode()


# --- dates and times

_EPOCH = datetime(1970, 1, 1)


def _temporal(column: Column, encoding: Encoding) -> ValueReader:
    digits = column.datetime_precision or 0
    if encoding is Encoding.OFFSET:
        return lambda text: _pad(_moment(text), digits) if column.data_type != "date" else _date(text[:-1])
    if encoding is Encoding.PARTS:
        return _PARTS[column.data_type](digits)
    if encoding not in _UNITS and encoding is not Encoding.EPOCH:
        return _date if column.data_type == "date" else _moment
    micros = _UNITS.get(encoding, Fraction(1 if digits > 3 else 1000))
    match column.data_type:
        case "date":
            return lambda days: _timestamp_text(_EPOCH + timedelta(days=days))[:10]
        case "time":
            return lambda number: _time(int(int(number) * micros), digits)
    return lambda number: _cut(_timestamp_text(_EPOCH + timedelta(microseconds=int(int(number) * micros))), digits)


_UNITS = {
    Encoding.MILLIS: Fraction(1000),
    Encoding.OF_DAY: Fraction(1000),
    Encoding.MICROS: Fraction(1),
    Encoding.NANOS: Fraction(1, 1000),
}
"""The number of microseconds in a unit of each encoding."""


def _date_of(parts: Any) -> str:
    return f"{int(parts['year']):04d}-{int(parts['month']):02d}-{int(parts['day']):02d}"


def _datetime_of(digits: int) -> ValueReader:
    def read(parts: Any) -> str:
        hour, minute, second = (int(parts[name]) for name in ("hour", "minute", "second"))
        return _cut(f"{_date_of(parts)} {hour:02d}:{minute:02d}:{second:02d}.{int(parts['subsecond']):06d}", digits)

    return read


def _timestamp_of(digits: int) -> ValueReader:
    def read(parts: Any) -> str:
        seconds, micros = int(parts["unix_time"]), int(parts["subsecond"])
        if seconds == 0:
            return _cut("0000-00-00 00:00:00.000000", digits)
        return _cut(_timestamp_text(_EPOCH + timedelta(seconds=seconds, microseconds=micros)), digits)

    return read


_PARTS: Mapping[str, Callable[[int], ValueReader]] = {
    "date": lambda _digits: _date_of,
    "datetime": _datetime_of,
    "timestamp": _timestamp_of,
}


def _pad(text: str, digits: int) -> str:
    """``text`` with ``digits`` digits in the fraction. Zeros at the end of the fraction may be missing in ``text``."""
    integer, _, fraction = text.partition(".")
    return f"{integer}.{fraction.ljust(digits, '0')}" if digits else integer


def _date(text: Any) -> str:
    if len(text) != len("2026-01-31"):
        raise ValueError("expected a date")
    return str(text)


def _moment(text: Any) -> str:
    return str(text).removesuffix("Z").replace("T", " ")


def _timestamp_text(moment: datetime) -> str:
    return moment.isoformat(" ", "microseconds")


def _cut(text: str, digits: int) -> str:
    """``text``, whose fraction has six digits, with the fraction cut to ``digits``."""
    return text[: len(text) - 6 + digits] if digits else text[:-7]


def _time(micros: int, digits: int) -> str:
    seconds, fraction = divmod(abs(micros), 1_000_000)
    minutes, seconds = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{fraction:06d}"
    return ("-" if micros < 0 else "") + _cut(text, digits)


class RowValues:
    """Converts row images of ``table``, which must be the table's schema at the time of the change."""

    def __init__(self, table: TableSchema, style: Style) -> None:
        self._table = table
        self._readers: dict[str, ValueReader] = {column.name: reader_of(column, style) for column in table.columns}

    def of(self, image: Mapping[str, Any]) -> dict[str, Value]:
        """The values of ``image`` by column name, in the order of ``image``.

        Raises SchemaError for a column that the table does not have, and for a value that its column cannot have.
        """
        readers = self._readers
        try:
            return {name: None if value is None else readers[name](value) for name, value in image.items()}
        except WRONG as error:
            raise self._refusal(image, error) from error

    def _refusal(self, image: Mapping[str, Any], error: Exception) -> SchemaError:
        columns = {column.name: column for column in self._table.columns}
        for name, value in image.items():
            if name not in columns:
                return SchemaError(
                    f"a row has a column {name!r}, and {self._table.database}.{self._table.table} has none of that "
                    "name: the table is not as it was when the row was changed"
                )
            try:
                value is None or self._readers[name](value)
            except WRONG as wrong:
                return refusal(columns[name], value, wrong)
        return SchemaError(f"a row of {self._table.database}.{self._table.table} cannot be read: {error}")
