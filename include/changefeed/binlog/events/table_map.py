"""TABLE_MAP: a table's name and its columns' types, and with FULL metadata their names, labels and keys.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from changefeed.binlog.events.framing import DamagedEvent, Fields

MAX_COLUMNS = 4096


class ColumnType(IntEnum):
    """Types of columns as they stand in a TABLE_MAP. 140, 141 are MariaDB's COMPRESSED columns."""

    DECIMAL = 0
    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    NULL = 6
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    TYPED_ARRAY = 20
    MARIADB_BLOB_COMPRESSED = 140
    MARIADB_VARCHAR_COMPRESSED = 141
    VECTOR = 242
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    TINY_BLOB = 249
    MEDIUM_BLOB = 250
    LONG_BLOB = 251
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_NUMERIC = frozenset(
    {
        ColumnType.TINY,
        ColumnType.SHORT,
        ColumnType.INT24,
        ColumnType.LONG,
        ColumnType.LONGLONG,
        ColumnType.NEWDECIMAL,
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.YEAR,
    }
)
_CHARACTER = frozenset(
    {
        ColumnType.STRING,
        ColumnType.VAR_STRING,
        ColumnType.VARCHAR,
        ColumnType.BLOB,
        ColumnType.TINY_BLOB,
        ColumnType.MEDIUM_BLOB,
        ColumnType.LONG_BLOB,
        ColumnType.MARIADB_BLOB_COMPRESSED,
        ColumnType.MARIADB_VARCHAR_COMPRESSED,
        ColumnType.VECTOR,
    }
)
_MARIADB_CHARACTER = _CHARACTER | {ColumnType.GEOMETRY}
_ONE_BYTE = frozenset(
    {
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.BLOB,
        ColumnType.TINY_BLOB,
        ColumnType.MEDIUM_BLOB,
        ColumnType.LONG_BLOB,
        ColumnType.MARIADB_BLOB_COMPRESSED,
        ColumnType.JSON,
        ColumnType.GEOMETRY,
        ColumnType.VECTOR,
        ColumnType.TIMESTAMP2,
        ColumnType.DATETIME2,
        ColumnType.TIME2,
    }
)
_TWO_BYTES = frozenset(
    {
        ColumnType.VARCHAR,
        ColumnType.VAR_STRING,
        ColumnType.MARIADB_VARCHAR_COMPRESSED,
        ColumnType.STRING,
        ColumnType.ENUM,
        ColumnType.SET,
        ColumnType.NEWDECIMAL,
        ColumnType.BIT,
    }
)


@dataclass
class MapColumn:
    """One column of a TABLE_MAP; what optional metadata did not say is None.

    ``meta`` is the type's metadata: for STRING, ENUM and SET the length, for NEWDECIMAL precision << 8 | scale, for BIT
    the number of bits, else the bytes as they stand.
    """

    type: int
    meta: int
    nullable: bool
    unsigned: bool | None = None
    collation: int | None = None
    name: str | None = None
    labels: tuple[bytes, ...] | None = None
    visible: bool = True


@dataclass
class TableMap:
    """One TABLE_MAP event; ``primary_key`` are places of columns in the key's order, None where it is not told."""

    table_id: int
    database: str
    table: str
    columns: list[MapColumn]
    primary_key: tuple[int, ...] | None = None
    metadata: set[int] = field(default_factory=set)

    @property
    def has_names(self) -> bool:
        return bool(self.columns) and self.columns[0].name is not None

    @classmethod
    def parse(cls, body: bytes, mariadb: bool = False) -> TableMap:
        """Read the event's bytes between header and checksum; raises DamagedEvent.

        ``mariadb`` says which server wrote it: MariaDB counts geometry among the columns that have a charset.

        Body: table id u48, flags u16, database (u8 length, text, 0), table (the same), column count (packed), types
        u8[], metadata (packed length, bytes), nullable bits, then optional metadata: type u8, length (packed), value.
        """
        fields = Fields(body)
        table_id = fields.number(6)
        fields.take(2)
        database = fields.take(fields.number(1)).decode("utf-8", "replace")
        fields.take(1)
        table = fields.take(fields.packed()).decode("utf-8", "replace")
        fields.take(1)
        count = fields.packed()
        if count > MAX_COLUMNS:
            raise DamagedEvent(f"TABLE_MAP of {database}.{table} has {count} columns, more than {MAX_COLUMNS}")
        types = fields.take(count)
        metadata = Fields(fields.take(fields.packed()))
        columns = [_column(type_code, metadata) for type_code in types]
        nullable = fields.take((count + 7) // 8)
        for place, column in enumerate(columns):
            column.nullable = bool(nullable[place >> 3] >> (place & 7) & 1)
        table_map = cls(table_id, database, table, columns)
        while fields.left:
            kind = fields.number(1)
            table_map.metadata.add(kind)
            _optional(
                table_map, kind, Fields(fields.take(fields.packed())), _MARIADB_CHARACTER if mariadb else _CHARACTER
            )
        return table_map

    def typed(self, types: frozenset[ColumnType]) -> list[MapColumn]:
        return [column for column in self.columns if column.type in types]


def _column(type_code: int, metadata: Fields) -> MapColumn:
    if type_code == ColumnType.TYPED_ARRAY:
        raise DamagedEvent("a TABLE_MAP has a TYPED_ARRAY column, which servers write for no base table")
    if type_code in _ONE_BYTE:
        return MapColumn(type_code, metadata.number(1), False)
    if type_code not in _TWO_BYTES:
        try:
            return MapColumn(ColumnType(type_code), 0, False)
        except ValueError:
            raise DamagedEvent(f"a TABLE_MAP has a column of unknown type {type_code}") from None
    first, second = metadata.take(2)
    if type_code in (ColumnType.VARCHAR, ColumnType.VAR_STRING, ColumnType.MARIADB_VARCHAR_COMPRESSED):
        return MapColumn(type_code, first | second << 8, False)
    if type_code == ColumnType.NEWDECIMAL:
        if not 1 <= first <= 65 or second > min(first, 38):
            raise DamagedEvent(f"a TABLE_MAP has a DECIMAL({first},{second})")
        return MapColumn(type_code, first << 8 | second, False)
    if type_code == ColumnType.BIT:
        bits = first + 8 * second
        if not 1 <= bits <= 64:
            raise DamagedEvent(f"a TABLE_MAP has a BIT({bits})")
        return MapColumn(type_code, bits, False)
    # STRING: the real type, with two inverted bits of a length over 255 hidden in it.
    real, length = first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
    if real in (ColumnType.ENUM, ColumnType.SET, ColumnType.STRING, ColumnType.VAR_STRING):
        return MapColumn(real, length, False)
    raise DamagedEvent(f"a TABLE_MAP has a STRING column of real type {first}")


def _optional(table_map: TableMap, kind: int, fields: Fields, character: frozenset[ColumnType]) -> None:
    """One field of optional metadata; kinds are those of Table_map_event::Optional_metadata_field_type."""
    match kind:
        case 1:  # SIGNEDNESS
            numeric = table_map.typed(_NUMERIC)
            if 8 * fields.left < len(numeric):
                raise DamagedEvent("TABLE_MAP's signedness is shorter than its numeric columns")
            bits = fields.take(fields.left)
            for index, column in enumerate(numeric):
                column.unsigned = bool(bits[index >> 3] << (index & 7) & 0x80)
        case 2 | 10:  # DEFAULT_CHARSET, ENUM_AND_SET_DEFAULT_CHARSET
            columns = table_map.typed(character if kind == 2 else _LABELLED)
            default = fields.packed()
            for column in columns:
                column.collation = default
            while fields.left:
                place, collation = fields.packed(), fields.packed()
                _at(columns, place).collation = collation
        case 3 | 11:  # COLUMN_CHARSET, ENUM_AND_SET_COLUMN_CHARSET
            for column in table_map.typed(character if kind == 3 else _LABELLED):
                column.collation = fields.packed()
        case 4:  # COLUMN_NAME
            for column in table_map.columns:
                column.name = fields.take(fields.packed()).decode("utf-8", "replace")
        case 5 | 6:  # SET_STR_VALUE, ENUM_STR_VALUE
            for column in table_map.typed(frozenset({ColumnType.SET if kind == 5 else ColumnType.ENUM})):
                count = fields.packed()
                if count > fields.left:
                    raise DamagedEvent(f"TABLE_MAP says {count} labels in {fields.left} bytes")
                column.labels = tuple(fields.take(fields.packed()) for _ in range(count))
        case 8 | 9:  # SIMPLE_PRIMARY_KEY, PRIMARY_KEY_WITH_PREFIX
            key = []
            while fields.left:
                key.append(fields.packed())
                _at(table_map.columns, key[-1])
                if kind == 9:
                    fields.packed()
            table_map.primary_key = tuple(key)
        case 12:  # COLUMN_VISIBILITY
            if 8 * fields.left < len(table_map.columns):
                raise DamagedEvent("TABLE_MAP's visibility is shorter than its columns")
            bits = fields.take(fields.left)
            for index, column in enumerate(table_map.columns):
                column.visible = bool(bits[index >> 3] << (index & 7) & 0x80)
        case _:  # geometry types, vector dimensions, and what later servers add: not needed to read a row
            pass


_LABELLED = frozenset({ColumnType.ENUM, ColumnType.SET})


def _at(columns: list[MapColumn], place: int) -> MapColumn:
    if place >= len(columns):
        raise DamagedEvent(f"TABLE_MAP's metadata names column {place} of {len(columns)}")
    return columns[place]
