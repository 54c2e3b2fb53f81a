"""The column types of MySQL and MariaDB in one table: their numbers in binlogs and their names on servers.

A `WireType` is the type in a TABLE_MAP and its rows. A `DataType` is the type in `information_schema` and DDL. Several
data types may share a wire type. All code looks up types here.

To add a type, add a row to DATA_TYPES, a `WireType` if binlogs have a new number for it, and a codec to
`binlog/programs/codecs.py`.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
("Table_map_event column types: numerical identifier and metadata"), https://dev.mysql.com/doc/refman/9.7/en/data-types.html,
https://mariadb.com/kb/en/data-types/"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Metadata(Enum):
    """The metadata of a column in a TABLE_MAP: its number of bytes, and their meaning."""

    NONE = (0, "nothing")
    BYTE = (1, "one number: digits of a fraction, or bytes of a length")
    LENGTH = (2, "the most bytes of a value, little-endian")
    DECIMAL = (2, "precision and scale, a byte each")
    BITS = (2, "bits besides whole bytes, and whole bytes")
    STRING = (2, "the real type, and a length whose two highest bits are inverted in the type's byte")

    @property
    def size(self) -> int:
        """Its number of bytes in the TABLE_MAP."""
        return self.value[0]


@dataclass(frozen=True, eq=False)
class WireType:
    """A type of a TABLE_MAP, with its ``number`` and its ``name`` in the servers' sources.

    These flags say which optional fields of the TABLE_MAP include columns of this type:

    - ``has_sign``: SIGNEDNESS
    - ``has_charset``: DEFAULT_CHARSET and COLUMN_CHARSET
    - ``has_charset_on_mariadb``: these two fields, but only if MariaDB wrote the TABLE_MAP
    - ``has_labels``: the labels of ENUM and SET

    ``is_compressed`` says that the values have the format of MariaDB's COMPRESSED columns.
    """

    number: int
    name: str
    metadata: Metadata = Metadata.NONE
    has_sign: bool = False
    has_charset: bool = False
    has_charset_on_mariadb: bool = False
    has_labels: bool = False
    is_compressed: bool = False


DECIMAL = WireType(0, "DECIMAL")
TINY = WireType(1, "TINY", has_sign=True)
SHORT = WireType(2, "SHORT", has_sign=True)
LONG = WireType(3, "LONG", has_sign=True)
FLOAT = WireType(4, "FLOAT", Metadata.BYTE, has_sign=True)
DOUBLE = WireType(5, "DOUBLE", Metadata.BYTE, has_sign=True)
NULL = WireType(6, "NULL")
TIMESTAMP = WireType(7, "TIMESTAMP")
LONGLONG = WireType(8, "LONGLONG", has_sign=True)
INT24 = WireType(9, "INT24", has_sign=True)
DATE = WireType(10, "DATE")
TIME = WireType(11, "TIME")
DATETIME = WireType(12, "DATETIME")
YEAR = WireType(13, "YEAR", has_sign=True)
NEWDATE = WireType(14, "NEWDATE")
VARCHAR = WireType(15, "VARCHAR", Metadata.LENGTH, has_charset=True)
BIT = WireType(16, "BIT", Metadata.BITS)
TIMESTAMP2 = WireType(17, "TIMESTAMP2", Metadata.BYTE)
DATETIME2 = WireType(18, "DATETIME2", Metadata.BYTE)
TIME2 = WireType(19, "TIME2", Metadata.BYTE)
MARIADB_BLOB_COMPRESSED = WireType(140, "MARIADB_BLOB_COMPRESSED", Metadata.BYTE, has_charset=True, is_compressed=True)
MARIADB_VARCHAR_COMPRESSED = WireType(
    141, "MARIADB_VARCHAR_COMPRESSED", Metadata.LENGTH, has_charset=True, is_compressed=True
)
VECTOR = WireType(242, "VECTOR", Metadata.BYTE, has_charset=True)
JSON = WireType(245, "JSON", Metadata.BYTE)
NEWDECIMAL = WireType(246, "NEWDECIMAL", Metadata.DECIMAL, has_sign=True)
ENUM = WireType(247, "ENUM", Metadata.STRING, has_labels=True)
SET = WireType(248, "SET", Metadata.STRING, has_labels=True)
TINY_BLOB = WireType(249, "TINY_BLOB", Metadata.BYTE, has_charset=True)
MEDIUM_BLOB = WireType(250, "MEDIUM_BLOB", Metadata.BYTE, has_charset=True)
LONG_BLOB = WireType(251, "LONG_BLOB", Metadata.BYTE, has_charset=True)
BLOB = WireType(252, "BLOB", Metadata.BYTE, has_charset=True)
VAR_STRING = WireType(253, "VAR_STRING", Metadata.LENGTH, has_charset=True)
STRING = WireType(254, "STRING", Metadata.STRING, has_charset=True)
GEOMETRY = WireType(255, "GEOMETRY", Metadata.BYTE, has_charset_on_mariadb=True)

WIRE_TYPES: dict[int, WireType] = {
    wire.number: wire for wire in tuple(globals().values()) if isinstance(wire, WireType)
}
"""By number. 20, TYPED_ARRAY, is left out: no base table has such a column."""


class Measure(Enum):
    """The meaning of the numbers in parentheses after a data type's name."""

    NONE = "nothing"
    LENGTH = "characters, bytes, bits or dimensions"
    WIDTH = "the digits that an integer is shown with"
    PRECISION = "precision and scale"
    OPTIONAL_PRECISION = "precision and scale, which may be left out"
    FRACTION = "digits of a second's fraction"


@dataclass(frozen=True)
class DataType:
    """A data type, by its name in `information_schema.columns.data_type`.

    - ``wire``: the wire types of its columns, first the type that current servers write; empty if not known.
    - ``meta``: the metadata of its columns, if the name of the type determines it; else None.
    - ``spellings``: its other names in DDL.
    - ``binary``: the name of the data type that it becomes with CHARACTER SET binary.
    - ``measure``: the meaning of the numbers in parentheses.
    - ``is_exact``: whether it is an integer or DECIMAL.
    - ``has_collation``: whether its values or its labels are text.
    """

    name: str
    wire: tuple[WireType, ...]
    meta: int | None = None
    spellings: tuple[str, ...] = ()
    binary: str | None = None
    measure: Measure = Measure.NONE
    is_exact: bool = False
    has_collation: bool = False
    has_labels: bool = False


_VARIABLE = (VARCHAR, VAR_STRING, MARIADB_VARCHAR_COMPRESSED)
_BLOBS = (BLOB, MARIADB_BLOB_COMPRESSED)

DATA_TYPES: dict[str, DataType] = {
    data_type.name: data_type
    for data_type in (
        DataType("tinyint", (TINY,), spellings=("int1", "bool", "boolean"), is_exact=True, measure=Measure.WIDTH),
        DataType("smallint", (SHORT,), spellings=("int2",), is_exact=True, measure=Measure.WIDTH),
        DataType("mediumint", (INT24,), spellings=("int3", "middleint"), is_exact=True, measure=Measure.WIDTH),
        DataType("int", (LONG,), spellings=("int4", "integer"), is_exact=True, measure=Measure.WIDTH),
        DataType("bigint", (LONGLONG,), spellings=("int8",), is_exact=True, measure=Measure.WIDTH),
        DataType(
            "decimal",
            (NEWDECIMAL, DECIMAL),
            spellings=("dec", "numeric", "fixed"),
            is_exact=True,
            measure=Measure.PRECISION,
        ),
        DataType("float", (FLOAT,), spellings=("float4",), measure=Measure.OPTIONAL_PRECISION),
        DataType("double", (DOUBLE,), spellings=("float8",), measure=Measure.OPTIONAL_PRECISION),
        DataType("bit", (BIT,), measure=Measure.LENGTH),
        DataType("date", (DATE, NEWDATE)),
        DataType("time", (TIME2, TIME), measure=Measure.FRACTION),
        DataType("datetime", (DATETIME2, DATETIME), measure=Measure.FRACTION),
        DataType("timestamp", (TIMESTAMP2, TIMESTAMP), measure=Measure.FRACTION),
        DataType("year", (YEAR,)),
        DataType(
            "char", (STRING,), spellings=("character",), binary="binary", has_collation=True, measure=Measure.LENGTH
        ),
        DataType(
            "varchar",
            _VARIABLE,
            spellings=("varcharacter",),
            binary="varbinary",
            has_collation=True,
            measure=Measure.LENGTH,
        ),
        DataType("binary", (STRING,), measure=Measure.LENGTH),
        DataType("varbinary", _VARIABLE, measure=Measure.LENGTH),
        DataType("tinytext", (*_BLOBS, TINY_BLOB), meta=1, binary="tinyblob", has_collation=True),
        DataType("text", _BLOBS, meta=2, binary="blob", has_collation=True),
        DataType("mediumtext", (*_BLOBS, MEDIUM_BLOB), meta=3, binary="mediumblob", has_collation=True),
        DataType("longtext", (*_BLOBS, LONG_BLOB), meta=4, binary="longblob", has_collation=True),
        DataType("tinyblob", (*_BLOBS, TINY_BLOB), meta=1),
        DataType("blob", _BLOBS, meta=2),
        DataType("mediumblob", (*_BLOBS, MEDIUM_BLOB), meta=3),
        DataType("longblob", (*_BLOBS, LONG_BLOB), meta=4),
        DataType("enum", (ENUM,), has_collation=True, has_labels=True),
        DataType("set", (SET,), has_collation=True, has_labels=True),
        DataType("json", (JSON,)),
        DataType("geometry", (GEOMETRY,)),
        DataType("point", (GEOMETRY,)),
        DataType("linestring", (GEOMETRY,)),
        DataType("polygon", (GEOMETRY,)),
        DataType("multipoint", (GEOMETRY,)),
        DataType("multilinestring", (GEOMETRY,)),
        DataType("multipolygon", (GEOMETRY,)),
        DataType("geomcollection", (GEOMETRY,)),  # MySQL's name
        DataType("geometrycollection", (GEOMETRY,)),  # MariaDB's name
        DataType("vector", (VECTOR, VARCHAR, VAR_STRING), measure=Measure.LENGTH),  # VARBINARY on MariaDB
        DataType("uuid", (STRING,), meta=16),
        DataType("inet4", (STRING,), meta=4),
        DataType("inet6", (STRING,), meta=16),
        DataType("xmltype", ()),
    )
}
"""Data types by name. If several share a wire type and only the TABLE_MAP describes a column, the first one applies."""


def data_type_named(spelling: str) -> DataType | None:
    """The data type of the name ``spelling`` in DDL, in upper or lower case; None if neither server has that name."""
    name = spelling.lower()
    if name in DATA_TYPES:
        return DATA_TYPES[name]
    return next((data_type for data_type in DATA_TYPES.values() if name in data_type.spellings), None)


def data_types_of(wire: WireType) -> list[DataType]:
    """The data types whose columns may have wire type ``wire``, the most common one first."""
    return [data_type for data_type in DATA_TYPES.values() if wire in data_type.wire]


def data_type_name(wire: WireType, meta: int, *, is_binary: bool) -> str:
    """The most likely data type name of a column in a TABLE_MAP; "" if servers write no column of this type.

    ``is_binary`` says that the column's charset is binary.
    """
    data_types = data_types_of(wire)
    fitting = [data_type for data_type in data_types if data_type.meta in (None, meta)]
    usual = next(iter(fitting or data_types), None)
    if usual is None:
        return ""
    return usual.binary if is_binary and usual.binary else usual.name


@dataclass
class MapColumn:
    """One column of a TABLE_MAP. Properties are None if the TABLE_MAP has no optional metadata for them.

    Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html

    ``meta`` is the type's metadata: the length of STRING, ENUM and SET; precision << 8 | scale of NEWDECIMAL; the
    number of bits of BIT; for other types the metadata's bytes as a little-endian number.
    """

    type: int
    meta: int
    nullable: bool
    unsigned: bool | None = None
    collation: int | None = None
    name: str | None = None
    labels: tuple[bytes, ...] | None = None
    visible: bool = True
    is_point: bool = False
    """Whether the column is a geometry column of type POINT; False if that is not known."""

    @property
    def wire(self) -> WireType:
        """The row of its type in the table of types."""
        return WIRE_TYPES[self.type]
