"""Styles: the encoding of the values of each kind of column. A format or a pipeline chooses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from changefeed.errors import SettingsError


class Kind(StrEnum):
    """The kinds of columns that have more than one encoding.

    Other columns have one: integers, FLOAT, DOUBLE and YEAR are numbers; text is a string; VECTOR is an array of
    numbers; MariaDB's UUID, INET4 and INET6 are their text.
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
    """The encodings of values; `ENCODINGS` has those of each kind of column."""

    LONG = "long"
    """A signed number. Values of 2**63 and more become negative."""
    STRING = "string"
    """A string of the number's digits. Consumers that read numbers as doubles lose no digit."""
    NUMBER = "number"
    DOUBLE = "double"
    """A number, which consumers parse as a double."""
    PRECISE = "precise"
    """As in Kafka Connect: the two's complement bytes of the unscaled value, in base64."""
    ISO = "iso"
    """ISO 8601 text, also for zero and partial dates. TIMESTAMP is UTC with Z, TIME is [-]HHH:MM:SS[.ffffff]."""
    SQL = "sql"
    """As ISO, with a space between date and time, and without Z, as SELECT returns it in a session in UTC."""
    PARTS = "parts"
    """An object of numbers. `subsecond` is microseconds.

    - DATE: `{"year":…,"month":…,"day":…}`
    - DATETIME: also `hour`, `minute`, `second` and `subsecond`
    - TIMESTAMP: `{"unix_time":…,"subsecond":…}`; both are 0 for the zero timestamp"""
    EPOCH = "epoch"
    """As Debezium's adaptive mode: a number of days for DATE; else milliseconds for a precision of 0 to 3, and
    microseconds for a higher one. Zero and partial dates are null."""
    MILLIS = "millis"
    """As EPOCH, but always in milliseconds."""
    MICROS = "micros"
    """As EPOCH, but always in microseconds."""
    NANOS = "nanos"
    """As EPOCH, but in nanoseconds. A DATETIME before 1677-09-22 or after 2262 is null, as it exceeds 64 bits."""
    OF_DAY = "of_day"
    """Milliseconds since midnight. A TIME below 0 or over 24 hours is null."""
    OFFSET = "offset"
    """As ISO, with Z and without zeros at the end of a fraction. Zero and partial dates are null, and a TIME below 0 or
    over 24 hours."""
    ZONED = "zoned"
    """As ISO. The zero timestamp is null."""
    BASE64_URL = "base64_url"
    """As BASE64, with `-` and `_` instead of `+` and `/`."""
    BASE64 = "base64"
    """A string. Geometry: `{"srid":…,"wkb":"…"}` with the string as `wkb`."""
    HEX = "hex"
    NUMBERS = "numbers"
    """An array of the bytes. Geometry: the bytes that the server stores, which are the SRID in four bytes and the
    well-known binary."""
    CONNECT = "connect"
    """As Debezium passes it to Kafka Connect.

    - BIT(1): true or false
    - BIT with more bits: the bytes in base64, the lowest byte first
    - Geometry: `{"wkb":"…","srid":…}`; a point has `x` and `y` before them"""
    TEXT = "text"
    """A string of the document's text."""
    LABEL = "label"
    """The label as a string; "" for the invalid value 0."""
    INDEX = "index"
    """The number of the label, from 1; 0 for the invalid value."""
    COMMAS = "commas"
    """A string of the labels, separated by commas."""
    ARRAY = "array"
    """An array of the labels."""
    INLINE = "inline"
    """The document as JSON."""


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
"""The encodings of each kind; the first is the default."""


@dataclass(frozen=True)
class Style:
    """The encoding of each kind of column: ``style[kind]`` is the encoding in ``chosen``, or the default.

    Raises SettingsError for an encoding that the kind does not have.
    """

    chosen: Mapping[Kind, Encoding] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, encoding in self.chosen.items():
            if encoding not in ENCODINGS[kind]:
                raise SettingsError(
                    f"{kind} columns cannot be written as {str(encoding)!r}: expected one of "
                    f"{', '.join(ENCODINGS[kind])}"
                )

    def __getitem__(self, kind: Kind) -> Encoding:
        return self.chosen.get(kind, ENCODINGS[kind][0])

    @property
    def is_plain(self) -> bool:
        """Whether all kinds except BIT have their default encoding."""
        return all(self[kind] is encodings[0] for kind, encodings in ENCODINGS.items() if kind is not Kind.BIT)


DEFAULT_STYLE = Style()
"""Each kind in its default encoding."""
