"""Column codecs: for each column type its wire layout, and how a value becomes text.

Each codec is a small function from a `BoundColumn` to a `Spec`; a type is added to
`model.column_types` and here. A kind of text that the kernel does not write yet is a constant in its group in
`kernel.layout`, and a branch of that group's function in `kernel.values`.

Sources: https://dev.mysql.com/doc/refman/9.7/en/storage-requirements.html,
https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html (the table of
column types and their metadata), https://mariadb.com/kb/en/rows_event_v1v2-rows_compressed_event_v1/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.decimals import decimal_size
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.formats.style import DEFAULT_STYLE, Encoding, Kind, Style
from changefeed.model import charset_codes, column_types
from changefeed.model.column_types import MapColumn


@dataclass(frozen=True)
class BoundColumn:
    """A column of a table map, with its properties from the schema.

    - ``charset`` is "binary" for bytes, and `charset_codes.UNKNOWN` if it is unknown.
    - ``labels`` are None if they are unknown.
    - ``data_type`` is the schema's, or "" without a schema.
    - ``distinguishes_characters``: in the column's collation no two characters are equal.
    - ``decimals`` are the D of DOUBLE(M,D), which no table map has.
    """

    name: str
    type: int
    meta: int
    unsigned: bool
    charset: str
    labels: tuple[str, ...] | None
    data_type: str
    distinguishes_characters: bool = False
    decimals: int | None = None


@dataclass(frozen=True)
class Spec:
    """How the kernel reads and writes a column: size on the wire, kind, and the parameters of the kind.

    A value has ``fixed`` bytes, or a length of ``prefix`` bytes before it.
    """

    kind: int
    fixed: int = 0
    prefix: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0


Codec = Callable[[BoundColumn, Style, ProgramMemory], Spec]


_BIGINTS = {
    Encoding.NUMBER: layout.UNSIGNED,
    Encoding.STRING: layout.UNSIGNED_TEXT,
    Encoding.LONG: layout.SIGNED,
    Encoding.PRECISE: layout.UNSIGNED_BYTES,
}


def _integer(width: int) -> Codec:
    """TINYINT 1, SMALLINT 2, MEDIUMINT 3, INT 4, BIGINT 8 bytes, little-endian.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/integer-types.html
    """

    def codec(column: BoundColumn, style: Style, _: ProgramMemory) -> Spec:
        if not column.unsigned:
            return Spec(layout.SIGNED, fixed=width, a=width)
        kind = _BIGINTS[style[Kind.BIGINT_UNSIGNED]] if width == 8 else layout.UNSIGNED
        return Spec(kind, fixed=width, a=width)

    return codec


def _float(_column: BoundColumn, _style: Style, _memory: ProgramMemory) -> Spec:
    """IEEE single, 4 bytes little-endian. Manual: https://dev.mysql.com/doc/refman/9.7/en/floating-point-types.html"""
    return Spec(layout.FLOAT, fixed=4)


def _double(column: BoundColumn, _style: Style, _memory: ProgramMemory) -> Spec:
    """IEEE double, 8 bytes little-endian. Manual: https://dev.mysql.com/doc/refman/9.7/en/floating-point-types.html

    MariaDB stores -0.010000000000000009 for -0.01 of DOUBLE(10,2), and selects -0.01.
    """
    return Spec(layout.DOUBLE, fixed=8, a=0 if column.decimals is None else column.decimals + 1)


_DECIMALS = {
    Encoding.STRING: layout.DECIMAL_TEXT,
    Encoding.DOUBLE: layout.DECIMAL_NUMBER,
    Encoding.PRECISE: layout.DECIMAL_BYTES,
}


def _decimal(column: BoundColumn, style: Style, _: ProgramMemory) -> Spec:
    """See `decimals`. Manual: https://dev.mysql.com/doc/refman/9.7/en/fixed-point-types.html"""
    precision, scale = column.meta >> 8, column.meta & 0xFF
    return Spec(_DECIMALS[style[Kind.DECIMAL]], fixed=decimal_size(precision, scale), a=precision, b=scale)


def _year(_column: BoundColumn, _style: Style, _memory: ProgramMemory) -> Spec:
    """One byte: 0 for year 0, else years since 1900. Manual: https://dev.mysql.com/doc/refman/9.7/en/year.html"""
    return Spec(layout.YEAR, fixed=1)


def _bit(column: BoundColumn, style: Style, _memory: ProgramMemory) -> Spec:
    """1 to 8 bytes, big-endian. Manual: https://dev.mysql.com/doc/refman/9.7/en/bit-type.html"""
    width = (column.meta + 7) // 8
    kind = layout.BIT
    if style[Kind.BIT] is Encoding.CONNECT:
        kind = layout.BIT_FLAG if column.meta == 1 else layout.BIT_BYTES
    return Spec(kind, fixed=width, a=width)


_TEMPORAL_TEXTS = {
    Encoding.ISO: layout.ISO,
    Encoding.EPOCH: layout.EPOCH,
    Encoding.SQL: layout.SQL,
    Encoding.PARTS: layout.PARTS,
    Encoding.MILLIS: layout.EPOCH,
    Encoding.MICROS: layout.EPOCH,
    Encoding.NANOS: layout.NANOS,
    Encoding.OF_DAY: layout.OF_DAY,
    Encoding.ZONED: layout.ZONED,
    Encoding.OFFSET: layout.OFFSET,
}


_DIGITS = {Encoding.MILLIS: 3, Encoding.OF_DAY: 3, Encoding.MICROS: 6}
"""The digits of a fraction, by the unit of the number: milliseconds or microseconds. They replace the column's own."""


def _date(_column: BoundColumn, style: Style, _memory: ProgramMemory) -> Spec:
    """Three bytes little-endian: day in 5 bits, month in 4, year in 15.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/datetime.html
    """
    return Spec(layout.DATE, fixed=3, d=_TEMPORAL_TEXTS[style[Kind.DATE]])


def _temporal(kind: int, size: int, of: Kind) -> Codec:
    """DATETIME 5, TIMESTAMP 4, TIME 3 bytes big-endian, then the fraction: 1 byte for 1-2 digits, 2 for 3-4, 3 for 5-6.

    DATETIME: sign 1 bit (set), year * 13 + month 17, day 5, hour 5, minute 6, second 6. TIME: sign 1 (set for 0 and
    more), unused 1, hour 10, minute 6, second 6; negative values are the two's complement of the complete number with
    its fraction. TIMESTAMP: seconds since 1970.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/fractional-seconds.html, `my_time.cc`
    """

    def codec(column: BoundColumn, style: Style, _: ProgramMemory) -> Spec:
        if column.meta > 6:
            raise DamagedEvent(f"column {column.name!r} has {column.meta} digits of fractional seconds, more than 6")
        width = (column.meta + 1) // 2
        digits = _DIGITS.get(style[of], column.meta)
        return Spec(kind, fixed=size + width, a=digits, b=width, d=_TEMPORAL_TEXTS[style[of]])

    return codec


def _old_temporal(kind: int, size: int, of: Kind) -> Codec:
    """The formats of servers before MySQL 5.6: decimal digits in a little-endian number.

    ALTER TABLE keeps these formats.

    TIME hhmmss in 3 bytes, DATETIME yyyymmddhhmmss in 8, TIMESTAMP seconds since 1970 in 4.
    Manual: https://dev.mysql.com/doc/refman/5.7/en/storage-requirements.html
    """

    def codec(_column: BoundColumn, style: Style, _memory: ProgramMemory) -> Spec:
        digits = _DIGITS.get(style[of], 0)
        return Spec(kind, fixed=size, a=digits, d=_TEMPORAL_TEXTS[style[of]])

    return codec


def text_kind(charset: str, memory: ProgramMemory) -> tuple[int, int, int]:
    """Kind and its two parameters for text of ``charset``."""
    if charset in charset_codes.PASSED_THROUGH:
        return layout.UTF8, 0, 0
    if charset in ("ucs2", "utf16", "utf16le"):
        return layout.UTF16, int(charset == "utf16le"), 0
    if charset == "utf32":
        return layout.UTF32, 0, 0
    return layout.CODE_TABLE, memory.code_table(charset), int(charset_codes.is_ascii_like(charset))


_BYTES = {
    Encoding.BASE64: layout.BASE64,
    Encoding.BASE64_URL: layout.BASE64_URL,
    Encoding.HEX: layout.HEX,
    Encoding.NUMBERS: layout.BYTE_NUMBERS,
}


def _bytes_or_text(column: BoundColumn, prefix: int, pad: int, style: Style, memory: ProgramMemory) -> Spec:
    if column.charset == "binary":
        return Spec(_BYTES[style[Kind.BINARY]], prefix=prefix, a=pad)
    if column.charset == charset_codes.UNKNOWN:
        kind = _BYTES[style[Kind.BINARY]]
        return Spec(layout.UTF8, prefix=prefix, a=1, b=layout.BASE64 if kind == layout.BYTE_NUMBERS else kind)
    kind, a, b = text_kind(column.charset, memory)
    return Spec(kind, prefix=prefix, a=a, b=b)


def _varchar(column: BoundColumn, style: Style, memory: ProgramMemory) -> Spec:
    """A length in 1 byte if the column has at most 255 bytes, else 2; then the text's bytes.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/char.html
    """
    return _bytes_or_text(column, 2 if column.meta > 255 else 1, 0, style, memory)


def _char(column: BoundColumn, style: Style, memory: ProgramMemory) -> Spec:
    """As VARCHAR, without trailing spaces. BINARY comes without trailing zero bytes; they are restored.

    MariaDB's UUID, INET4 and INET6 come as BINARY(16), (4) and (16): only the schema distinguishes them.
    Manual: https://dev.mysql.com/doc/refman/9.7/en/binary-varbinary.html, https://mariadb.com/kb/en/uuid-data-type/
    """
    prefix = 2 if column.meta > 255 else 1
    special = {"uuid": layout.UUID, "inet4": layout.INET4, "inet6": layout.INET6}.get(column.data_type)
    if special is not None:
        return Spec(special, prefix=prefix)
    return _bytes_or_text(column, prefix, column.meta, style, memory)


def _blob(column: BoundColumn, style: Style, memory: ProgramMemory) -> Spec:
    """A length in 1 to 4 bytes, as the metadata says, then the bytes. TEXT is a BLOB with a charset.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/blob.html
    """
    return _bytes_or_text(column, _prefix(column), 0, style, memory)


def _prefix(column: BoundColumn) -> int:
    if not 1 <= column.meta <= 4:
        raise DamagedEvent(f"column {column.name!r} has lengths of {column.meta} bytes: expected 1 to 4")
    return column.meta


def _label_codec(kind: int) -> Codec:
    """ENUM: index from 1 in 1 or 2 bytes, 0 for the invalid value. SET: a bit for each label in 1 to 8 bytes.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/enum.html, https://dev.mysql.com/doc/refman/9.7/en/set.html
    """

    def codec(column: BoundColumn, style: Style, memory: ProgramMemory) -> Spec:
        width = column.meta
        if not 1 <= width <= (2 if kind == layout.ENUM else 8):
            raise DamagedEvent(f"ENUM or SET column {column.name!r} has values of {width} bytes")
        if column.labels is None or (kind == layout.ENUM and style[Kind.ENUM] is Encoding.INDEX):
            return Spec(layout.UNSIGNED, fixed=width, a=width)
        labels = memory.labels(column.labels)
        is_array = kind == layout.SET and style[Kind.SET] is Encoding.ARRAY
        return Spec(layout.SET_ARRAY if is_array else kind, fixed=width, a=width, b=labels, c=len(column.labels))

    return codec


def _json(column: BoundColumn, style: Style, _: ProgramMemory) -> Spec:
    """A length as BLOB's, then binary JSON: see `json_binary`.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/json.html
    """
    return Spec(layout.JSON, prefix=_prefix(column), a=int(style[Kind.JSON] is Encoding.TEXT))


def _geometry(column: BoundColumn, style: Style, _: ProgramMemory) -> Spec:
    """A length as BLOB's, then the SRID in 4 bytes and well-known binary.

    Manual: https://dev.mysql.com/doc/refman/9.7/en/gis-data-formats.html
    """
    if style[Kind.GEOMETRY] is Encoding.CONNECT:
        return Spec(layout.GEOMETRY_STRUCT, prefix=_prefix(column), a=int(column.data_type == "point"))
    if style[Kind.GEOMETRY] is Encoding.NUMBERS:
        return Spec(layout.BYTE_NUMBERS, prefix=_prefix(column))
    return Spec(layout.GEOMETRY, prefix=_prefix(column), a=int(style[Kind.GEOMETRY] is Encoding.HEX))


def _vector(column: BoundColumn, _style: Style, _memory: ProgramMemory) -> Spec:
    """A length as BLOB's, then IEEE singles. Manual: https://dev.mysql.com/doc/refman/9.7/en/vector.html"""
    return Spec(layout.VECTOR, prefix=_prefix(column))


WRITTEN = -1
"""The type of a column whose values are encoded already, such as results of a transform."""


def _written_bytes(_column: BoundColumn, _style: Style, _memory: ProgramMemory) -> Spec:
    """The bytes as the message has them."""
    return Spec(layout.WRITTEN, prefix=4)


CODECS: dict[int, Codec] = {
    WRITTEN: _written_bytes,
    column_types.TINY.number: _integer(1),
    column_types.SHORT.number: _integer(2),
    column_types.INT24.number: _integer(3),
    column_types.LONG.number: _integer(4),
    column_types.LONGLONG.number: _integer(8),
    column_types.FLOAT.number: _float,
    column_types.DOUBLE.number: _double,
    column_types.NEWDECIMAL.number: _decimal,
    column_types.YEAR.number: _year,
    column_types.BIT.number: _bit,
    column_types.DATE.number: _date,
    column_types.NEWDATE.number: _date,
    column_types.TIME.number: _old_temporal(layout.TIME_OLD, 3, Kind.TIME),
    column_types.DATETIME.number: _old_temporal(layout.DATETIME_OLD, 8, Kind.DATETIME),
    column_types.TIMESTAMP.number: _old_temporal(layout.TIMESTAMP_OLD, 4, Kind.TIMESTAMP),
    column_types.TIME2.number: _temporal(layout.TIME2, 3, Kind.TIME),
    column_types.DATETIME2.number: _temporal(layout.DATETIME2, 5, Kind.DATETIME),
    column_types.TIMESTAMP2.number: _temporal(layout.TIMESTAMP2, 4, Kind.TIMESTAMP),
    column_types.VARCHAR.number: _varchar,
    column_types.VAR_STRING.number: _varchar,
    column_types.MARIADB_VARCHAR_COMPRESSED.number: _varchar,  # the event is rewritten first: see `events.rewrite`
    column_types.STRING.number: _char,
    column_types.BLOB.number: _blob,
    column_types.TINY_BLOB.number: _blob,
    column_types.MEDIUM_BLOB.number: _blob,
    column_types.LONG_BLOB.number: _blob,
    column_types.MARIADB_BLOB_COMPRESSED.number: _blob,
    column_types.ENUM.number: _label_codec(layout.ENUM),
    column_types.SET.number: _label_codec(layout.SET),
    column_types.JSON.number: _json,
    column_types.GEOMETRY.number: _geometry,
    column_types.VECTOR.number: _vector,
}


def spec_of(column: BoundColumn, style: Style, memory: ProgramMemory) -> Spec:
    """The spec of a column, from the codec of its type; raises DamagedEvent for a type without a codec."""
    codec = CODECS.get(column.type)
    if codec is None:
        raise DamagedEvent(f"column {column.name!r} is of type {column.type}, which servers do not write rows of")
    return codec(column, style, memory)


def size_of(column: MapColumn, memory: ProgramMemory) -> tuple[int, int]:
    """The size of the column's values in a row image, and the size of the length before each value, in bytes.

    The first is 0 if the size of values varies, else the second is 0. Raises DamagedEvent for a type without a codec.
    """
    bound = BoundColumn("", column.type, column.meta, False, "binary", None, "")
    spec = spec_of(bound, DEFAULT_STYLE, memory)
    return spec.fixed, spec.prefix
