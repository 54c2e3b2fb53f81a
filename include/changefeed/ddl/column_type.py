"""Column types in DDL, and the columns that the server creates from them.

Sources: https://dev.mysql.com/doc/refman/9.7/en/data-types.html (and "Using Data Types from Other Database Engines"),
https://mariadb.com/kb/en/data-types/
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.ddl.charsets import charset_of, resolve
from changefeed.ddl.contradiction import ContradictionError
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.scanner import TokenKind
from changefeed.ddl.session import Server, SessionContext
from changefeed.model.charset_codes import decode_text, max_bytes
from changefeed.model.column_types import DATA_TYPES, Measure, data_type_named
from changefeed.model.table_schema import Column


@dataclass(frozen=True)
class ColumnType:
    """A type in a column definition, before the charset is resolved.

    ``name`` is the server's name: "int" for INTEGER, "char" for CHAR, also if its charset makes it a BINARY.
    ``length`` and ``scale`` are the numbers in parentheses.
    """

    name: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    collation: str | None = None
    binary: bool = False
    labels: tuple[str | bytes, ...] = ()
    """The labels of ENUM or SET. A label that is written as a number is bytes in the column's charset."""
    srid: int | None = None

    def column(self, name: str, inherited: str, server: Server, session: SessionContext) -> Column:
        """The column of this type; ``inherited`` is the table's default collation.

        Raises ContradictionError for a label whose bytes are invalid in the column's charset.
        """
        if not is_textual(self.name):
            data_type = blob_of(self.length, self.name) if self.name == "blob" and self.length else self.name
            if data_type == "varbinary" and (self.length or 0) > _largest(server):
                data_type = blob_of(self.length or 0, "blob")
            unsigned = self.unsigned and data_type != "year"
            return self._with_measures(Column(name, data_type, unsigned, None, (), self.srid))
        collation = resolve(self.charset, self.collation, inherited, server, session, binary=self.binary)
        data_type, width = self.name, max_bytes(charset_of(collation))
        if self.length is not None and data_type == "text" and self.length:
            data_type = blob_of(self.length * width, "text")
        elif self.length is not None and data_type == "varchar" and self.length * width > _largest(server):
            data_type = blob_of(self.length * width, "text")  # the server does so without strict mode
        labels = tuple(_label(label, charset_of(collation)) for label in self.labels)
        return textual_column(self._with_measures(Column(name, data_type, False, collation, labels)), server)

    def _with_measures(self, column: Column) -> Column:
        """The column with the sizes that the server lists. Omitted numbers have their defaults."""
        column = replace(column, zerofill=self.zerofill and column.data_type != "year")
        measure = DATA_TYPES[column.data_type].measure if column.data_type in DATA_TYPES else Measure.NONE
        match measure:
            case Measure.LENGTH:
                default = _DEFAULT_LENGTHS.get(column.data_type)
                return replace(column, length=default if self.length is None else self.length)
            case Measure.PRECISION:
                return replace(column, precision=self.length or 10, scale=self.scale or 0)
            case Measure.OPTIONAL_PRECISION if self.scale is not None:
                return replace(column, precision=self.length, scale=self.scale)
            case Measure.FRACTION:
                return replace(column, datetime_precision=self.length or 0)
            case Measure.WIDTH if self.zerofill:
                return replace(column, length=self.length or _WIDTHS[column.data_type])
            case Measure.WIDTH if column.data_type == "tinyint" and self.length == 1 and not self.unsigned:
                return replace(column, length=1)
        return column


_DEFAULT_LENGTHS = {"char": 1, "binary": 1, "bit": 1, "vector": 2048}
_WIDTHS = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
"""The number of digits of the largest unsigned number, which is the default display width with ZEROFILL."""
MAX_ROW = 65535


def _largest(server: Server) -> int:
    """The bytes of the largest VARCHAR and VARBINARY. Without strict mode, a larger one becomes a TEXT or BLOB."""
    return MAX_ROW - 3 if server.is_mariadb else MAX_ROW


_ORACLE = {
    "VARCHAR2": "varchar",
    "NUMBER": "decimal",
    "RAW": "varbinary",
    "CLOB": "longtext",
    "BLOB": "longblob",
    "DATE": "datetime",
}
_SCHEMAS = {"MARIADB_SCHEMA": {}, "ORACLE_SCHEMA": _ORACLE, "MAXDB_SCHEMA": {"TIMESTAMP": "datetime"}}
"""Prefixes of a type's name in MariaDB, such as `maxdb_schema.TIMESTAMP`, and the types whose meaning they change."""
_NATIONAL = "utf8mb3"


def blob_of(size: int, data_type: str) -> str:
    """The smallest of TINYBLOB, BLOB, MEDIUMBLOB, LONGBLOB (or TEXT, by ``data_type``) with room for ``size`` bytes."""
    prefix = "tiny" if size < 1 << 8 else "" if size < 1 << 16 else "medium" if size < 1 << 24 else "long"
    return prefix + data_type


def is_textual(data_type: str) -> bool:
    """Whether columns of ``data_type`` have a collation."""
    return data_type in DATA_TYPES and DATA_TYPES[data_type].has_collation


def textual_column(column: Column, server: Server) -> Column:
    """The column as the server lists it. With charset binary, a CHAR is a BINARY without a collation.

    ENUM and SET keep their type. With charset binary, MariaDB lists their collation, and MySQL does not.
    """
    if column.collation != "binary":
        return column
    data_type = DATA_TYPES.get(column.data_type)
    if data_type is None or data_type.binary is None:
        return column if server.is_mariadb else replace(column, collation=None)
    return replace(column, data_type=data_type.binary, collation=None)


def read_type(cursor: Cursor) -> ColumnType:
    """The type with its attributes at ``cursor``. Raises UnreadableStatement for a type that neither server has."""
    spellings = _ORACLE if cursor.session.oracle else _SCHEMAS["MAXDB_SCHEMA"] if cursor.session.maxdb else {}
    if cursor.token.keyword in _SCHEMAS and cursor.is_symbol(".", 1):
        spellings = _SCHEMAS[cursor.advance().keyword]
        cursor.advance()
    return _attributes(cursor, _named_type(cursor, spellings))


def _named_type(cursor: Cursor, spellings: dict[str, str]) -> ColumnType:
    if cursor.word("NATIONAL"):
        fixed = bool(cursor.one_of("CHAR", "CHARACTER"))
        varying = bool(cursor.one_of("VARYING") if fixed else cursor.one_of("VARCHAR", "VARCHARACTER"))
        if not fixed and not varying:
            raise cursor.unreadable_error("CHAR or VARCHAR after NATIONAL")
        return ColumnType("varchar" if varying else "char", _length(cursor), charset=_NATIONAL)
    if cursor.word("NCHAR"):
        varying = bool(cursor.one_of("VARYING", "VARCHAR", "VARCHARACTER"))
        return ColumnType("varchar" if varying else "char", _length(cursor), charset=_NATIONAL)
    if cursor.word("NVARCHAR"):
        return ColumnType("varchar", _length(cursor), charset=_NATIONAL)
    if cursor.word("LONG"):
        if cursor.word("VARBINARY"):
            return ColumnType("mediumblob")
        if cursor.one_of("CHAR", "CHARACTER"):
            cursor.expect("VARYING")
        else:
            cursor.one_of("VARCHAR", "VARCHARACTER")
        return ColumnType("mediumtext")
    if keyword := cursor.one_of("DOUBLE", "REAL", "FLOAT", "FLOAT4", "FLOAT8"):
        return _floating(cursor, keyword)
    if cursor.one_of("BOOL", "BOOLEAN"):
        return ColumnType("tinyint", 1)
    keyword = cursor.token.keyword
    if spellings is _ORACLE and keyword == "NUMBER" and not cursor.is_symbol("(", 1):
        cursor.advance()
        return ColumnType("double")
    if spellings is _ORACLE and keyword == "BLOB" and cursor.is_symbol("(", 1):
        spellings = {}  # with a size, the smallest BLOB type with room for it
    data_type = data_type_named(spellings.get(keyword, keyword))
    if data_type is None:
        raise cursor.unreadable_error("a column's type")
    cursor.advance()
    name = data_type.name
    if name in ("geometrycollection", "geomcollection"):
        name = "geometrycollection" if cursor.server.is_mariadb else "geomcollection"
    if data_type.has_labels:
        return ColumnType(name, labels=_labels(cursor))
    if name == "json" and cursor.server.is_mariadb:
        return ColumnType("longtext", charset="utf8mb4", collation="utf8mb4_bin")
    if name == "char" and cursor.word("VARYING"):
        name = "varchar"
    return ColumnType(name, *_measures(cursor))


def _floating(cursor: Cursor, keyword: str) -> ColumnType:
    """The type of a floating-point keyword. FLOAT(p) with p > 24 is DOUBLE. REAL is DOUBLE unless sql_mode has
    REAL_AS_FLOAT."""
    if keyword == "DOUBLE":
        cursor.word("PRECISION")
    single = keyword in ("FLOAT", "FLOAT4") or (keyword == "REAL" and cursor.session.real_as_float)
    length, scale = _measures(cursor)
    if length is not None and length > 24 and scale is None:
        single = False
    return ColumnType("float" if single else "double", length, scale)


def _length(cursor: Cursor) -> int | None:
    return _measures(cursor)[0]


def _measures(cursor: Cursor) -> tuple[int | None, int | None]:
    """The numbers of `(M)` or `(M,D)`; None for missing numbers."""
    numbers: list[int | None] = [None, None]
    if cursor.symbol("("):
        at = 0
        while not cursor.symbol(")"):
            if cursor.symbol(","):
                at += 1
            elif cursor.is_kind(TokenKind.NUMBER) and at < len(numbers):
                numbers[at] = cursor.whole_number()
            else:
                cursor.advance()
    return numbers[0], numbers[1]


def _labels(cursor: Cursor) -> tuple[str | bytes, ...]:
    """The labels of ENUM or SET: strings, or numbers such as x'61', 0x61, b'1100001'."""
    cursor.expect_symbol("(")
    labels: list[str | bytes] = []
    while True:
        token = cursor.advance()
        if token.kind is TokenKind.STRING:
            labels.append(token.text)
        elif token.kind is TokenKind.NUMBER and token.text[:2] in ("0x", "0b"):
            labels.append(_bytes(token.text[2:], token.text[1]))
        elif token.keyword in ("X", "B") and cursor.is_kind(TokenKind.STRING):
            labels.append(_bytes(cursor.advance().text, token.keyword.lower()))
        else:
            raise cursor.unreadable_error("a label of ENUM or SET")
        if cursor.symbol(")"):
            return tuple(labels)
        cursor.expect_symbol(",")


def _bytes(digits: str, notation: str) -> bytes:
    """The bytes of a literal in hexadecimal ("x") or bits ("b"), including leading zeros."""
    if notation == "x":
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    return int(digits or "0", 2).to_bytes((len(digits) + 7) // 8, "big")


def _label(label: str | bytes, charset: str) -> str:
    """A label as the server stores it: bytes are padded to complete characters, and trailing spaces are removed unless
    the charset is binary."""
    if isinstance(label, str):
        text = label
    else:
        smallest = _SMALLEST.get(charset, 1)
        text = decode_text(label.rjust(-(-len(label) // smallest) * smallest, b"\0"), charset)
        if "\ufffd" in text:
            raise ContradictionError(f"the label 0x{label.hex()} is not valid {charset} text")
    return text if charset == "binary" else text.rstrip(" ")


_SMALLEST = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}
"""The number of bytes of the smallest character, for charsets without characters of one byte."""


def _attributes(cursor: Cursor, kind: ColumnType) -> ColumnType:
    """Read the attributes between a type's name and the column's own attributes."""
    while True:
        if cursor.one_of("UNSIGNED"):
            kind = replace(kind, unsigned=True)
        elif cursor.one_of("ZEROFILL"):
            kind = replace(kind, unsigned=True, zerofill=True)
        elif cursor.one_of("SIGNED"):
            pass
        elif cursor.word("CHARACTER", "SET") or cursor.one_of("CHARSET") or cursor.word("CHAR", "SET"):
            kind = replace(kind, charset=cursor.name_or_string())
        elif cursor.one_of("ASCII"):
            kind = replace(kind, charset="latin1")
        elif cursor.one_of("UNICODE"):
            kind = replace(kind, charset="ucs2")
        elif cursor.one_of("BYTE"):
            kind = replace(kind, charset="binary")
        elif cursor.one_of("BINARY"):
            kind = replace(kind, binary=True)
        elif cursor.word("REF_SYSTEM_ID"):
            cursor.expect_symbol("=")
            cursor.integer()  # MariaDB does not list the number
        elif cursor.word("COMPRESSED"):  # MariaDB: the values in rows are compressed, the type is the same
            cursor.symbol("=")
            cursor.one_of("ZLIB")
        else:
            return kind
