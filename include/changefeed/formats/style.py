"""How column values are written: for each kind of column the encoding that a format or a pipeline chose for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from changefeed.errors import SettingsError


class Kind(StrEnum):
    """The kinds of columns that can be written in more than one way.

    The others have one encoding: integers, FLOAT, DOUBLE and YEAR are numbers, text a string, VECTOR an array of
    numbers, MariaDB's UUID and INET4/6 their text.
    """

    DECIMAL = "decimal"
    BIGINT_UNSIGNED = "bigint_unsigned"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    BIT = "bit"
    ENUM = "enum"
    SET = "set"
    BINARY = "binary"
    """BINARY, VARBINARY, BLOB and the like."""
    GEOMETRY = "geometry"
    JSON = "json"


class Encoding(StrEnum):
    """The ways to write a value; `ENCODINGS` says which kind of column has which."""

    LONG = "long"
    """A signed number: 2**63 and more are negative."""
    STRING = "string"
    """A string of the number's digits: readers with doubles lose none."""
    NUMBER = "number"
    DOUBLE = "double"
    """A number, which readers take for a double."""
    PRECISE = "precise"
    """Kafka Connect's: the unscaled value's two's complement bytes in base64."""
    ISO = "iso"
    """ISO 8601 text, zero and partial dates included; TIMESTAMP in UTC with Z, TIME as [-]HHH:MM:SS[.ffffff]."""
    SQL = "sql"
    """As ISO, with a space between date and time, and without Z: what SELECT says in a session in UTC."""
    PARTS = "parts"
    """An object of numbers: `{"year":…,"month":…,"day":…}`, of DATETIME with hour, minute, second and subsecond, which
    are microseconds; of TIMESTAMP `{"unix_time":…,"subsecond":…}`, 0 for the zero timestamp."""
    EPOCH = "epoch"
    """Debezium's adaptive numbers: days, or milliseconds for a precision of 0 to 3, else microseconds. Zero and partial
    dates are null."""
    MILLIS = "millis"
    """As EPOCH, in milliseconds whatever the precision."""
    MICROS = "micros"
    """As EPOCH, in microseconds whatever the precision."""
    NANOS = "nanos"
    """As EPOCH, in nanoseconds; null for a DATETIME before 1677-09-22 or after 2262, whose number has no 64 bits."""
    OF_DAY = "of_day"
    """Milliseconds since midnight; null for a TIME below 0 or over 24 hours."""
    OFFSET = "offset"
    """As ISO, with Z and without zeros at the end of a fraction; null for zero and partial dates, and for a TIME below
    0 or over 24 hours."""
    ZONED = "zoned"
    """As ISO; null for the zero timestamp."""
    BASE64_URL = "base64_url"
    """As BASE64, with `-` and `_` in place of `+` and `/`."""
    BASE64 = "base64"
    """A string; of geometry `{"srid":…,"wkb":"…"}` with it."""
    HEX = "hex"
    NUMBERS = "numbers"
    """An array of the bytes; of geometry those that the server stores: the SRID in four, then well-known binary."""
    CONNECT = "connect"
    """As Debezium hands it to Kafka Connect. BIT(1): true or false; more bits: their bytes in base64, the lowest first.
    Geometry: `{"wkb":"…","srid":…}`, a point's with `x` and `y` before them."""
    TEXT = "text"
    """A string of the document's text."""
    LABEL = "label"
    """A string; "" for the invalid value 0."""
    INDEX = "index"
    """The number of the label, from 1; 0 for the invalid value."""
    COMMAS = "commas"
    """A string of the labels with commas between them."""
    ARRAY = "array"
    """An array of the labels."""
    INLINE = "inline"
    """The document itself."""


_TEMPORAL = (Encoding.ISO, Encoding.SQL, Encoding.EPOCH)
_DATED = (*_TEMPORAL, Encoding.PARTS)
_BYTES = (Encoding.BASE64, Encoding.HEX, Encoding.NUMBERS)

ENCODINGS: Mapping[Kind, tuple[Encoding, ...]] = {
    Kind.DECIMAL: (Encoding.STRING, Encoding.DOUBLE, Encoding.PRECISE),
    Kind.BIGINT_UNSIGNED: (Encoding.NUMBER, Encoding.STRING, Encoding.LONG, Encoding.PRECISE),
    Kind.DATE: (*_DATED, Encoding.OFFSET),
    Kind.TIME: (*_TEMPORAL, Encoding.MICROS, Encoding.NANOS, Encoding.OF_DAY, Encoding.OFFSET),
    Kind.DATETIME: (*_DATED, Encoding.MILLIS, Encoding.MICROS, Encoding.NANOS, Encoding.OFFSET),
    Kind.TIMESTAMP: (*_DATED, Encoding.ZONED),
    Kind.BIT: (Encoding.NUMBER, Encoding.CONNECT),
    Kind.ENUM: (Encoding.LABEL, Encoding.INDEX),
    Kind.SET: (Encoding.COMMAS, Encoding.ARRAY),
    Kind.BINARY: (*_BYTES, Encoding.BASE64_URL),
    Kind.GEOMETRY: (*_BYTES, Encoding.CONNECT),
    Kind.JSON: (Encoding.TEXT, Encoding.INLINE),
}
"""What each kind can be written as, its default first."""


@dataclass(frozen=True)
class Style:
    """The encoding of each kind of column: what ``chosen`` says, else the kind's default.

    ``style[kind]`` gives it. Raises SettingsError for an encoding that the kind does not have.
    """

    chosen: Mapping[Kind, Encoding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, encoding in self.chosen.items():
            if encoding not in ENCODINGS[kind]:
                raise SettingsError(
                    f"{kind} columns cannot be written as {str(encoding)!r}: wanted one of {', '.join(ENCODINGS[kind])}"
                )

    def __getitem__(self, kind: Kind) -> Encoding:
        return self.chosen.get(kind, ENCODINGS[kind][0])

    @property
    def is_plain(self) -> bool:
        """Whether all kinds but BIT are written in their default encoding."""
        return all(self[kind] is encodings[0] for kind, encodings in ENCODINGS.items() if kind is not Kind.BIT)


DEFAULT_STYLE = Style()
"""Each kind in its default encoding."""
