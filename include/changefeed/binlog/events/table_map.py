"""TABLE_MAP: a table's name and its columns' types, and with FULL metadata their names, labels and keys.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from changefeed.binlog.events.framing import DamagedEvent, Fields
from changefeed.model import column_types
from changefeed.model.column_types import WIRE_TYPES, MapColumn, Metadata, WireType

MAX_COLUMNS = 4096

_STRINGS = frozenset(
    wire.number for wire in (column_types.STRING, column_types.VAR_STRING, column_types.ENUM, column_types.SET)
)
"""The actual types of columns whose type is STRING; the metadata has the number of the actual type."""


POINT = 1
"""The geometry type of points."""


@dataclass
class TableMap:
    """One TABLE_MAP event.

    ``primary_key`` has the indexes of the key's columns, in the key's order; None if the event has no metadata on it.
    ``metadata`` has the kinds of optional fields that the event has.
    """

    table_id: int
    database: str
    table: str
    columns: list[MapColumn]
    primary_key: tuple[int, ...] | None = None
    metadata: set[int] = field(default_factory=set)
    flags: int = 0

    @property
    def is_referenced(self) -> bool:
        """Whether a foreign key refers to the table; always False for MariaDB, which has no such flag."""
        return bool(self.flags & 2)

    @property
    def has_names(self) -> bool:
        """Whether the event names its columns (binlog_row_metadata=FULL)."""
        return bool(self.columns) and self.columns[0].name is not None

    @staticmethod
    def names(fields: Fields) -> tuple[int, str, str]:
        """Read table id, database and table from the beginning of the event; raises DamagedEvent."""
        table_id = fields.number(6)
        fields.take(2)
        database = fields.take(fields.number(1)).decode("utf-8", "replace")
        fields.take(1)
        return table_id, database, fields.take(fields.packed_number()).decode("utf-8", "replace")

    @classmethod
    def parse(cls, body: bytes, mariadb: bool = False) -> TableMap:
        """Read the event's bytes between header and checksum; raises DamagedEvent.

        ``mariadb``: MariaDB wrote the event. It counts geometry columns among those with a charset.

        Body: table id u48, flags u16, database (u8 length, text, 0), table (the same), column count (packed), types
        u8[], metadata (packed length, bytes), nullable bits, then optional metadata: type u8, length (packed), value.
        """
        fields = Fields(body)
        table_id, database, table = cls.names(fields)
        fields.take(1)
        count = fields.packed_number()
        if count > MAX_COLUMNS:
            raise DamagedEvent(f"TABLE_MAP of {database}.{table} has {count} columns, more than {MAX_COLUMNS}")
        types = fields.take(count)
        metadata = Fields(fields.take(fields.packed_number()))
        columns = [_column(type_code, metadata) for type_code in types]
        nullable = fields.take((count + 7) // 8)
        for index, column in enumerate(columns):
            column.nullable = bool(nullable[index >> 3] >> (index & 7) & 1)
        table_map = cls(table_id, database, table, columns, flags=int.from_bytes(body[6:8], "little"))
        while fields.left:
            kind = fields.number(1)
            table_map.metadata.add(kind)
            _optional(table_map, kind, Fields(fields.take(fields.packed_number())), mariadb)
        return table_map

    def columns_of(self, counts: Callable[[WireType], bool]) -> list[MapColumn]:
        """The columns to which an optional field refers: those whose type ``counts``."""
        return [column for column in self.columns if counts(column.wire)]


def _column(number: int, metadata: Fields) -> MapColumn:
    wire = WIRE_TYPES.get(number)
    if wire is None:
        raise DamagedEvent(f"a TABLE_MAP has a column of type {number}, which changefeed does not know")
    meta = metadata.number(wire.metadata.size)
    first, second = meta & 0xFF, meta >> 8
    match wire.metadata:
        case Metadata.DECIMAL:
            if not 1 <= first <= 65 or second > min(first, 38):
                raise DamagedEvent(f"a TABLE_MAP has a DECIMAL({first},{second})")
            meta = first << 8 | second
        case Metadata.BITS:
            meta = first + 8 * second
            if not 1 <= meta <= 64:
                raise DamagedEvent(f"a TABLE_MAP has a BIT({meta})")
        case Metadata.STRING:
            number, meta = first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
            if number not in _STRINGS:
                raise DamagedEvent(f"a TABLE_MAP has a STRING column of real type {first}")
    return MapColumn(number, meta, False)


def _optional(table_map: TableMap, kind: int, fields: Fields, mariadb: bool) -> None:
    """Apply an optional metadata field; ``kind`` is a number of Table_map_event::Optional_metadata_field_type."""

    def has_charset(wire: WireType) -> bool:
        return wire.has_charset or (mariadb and wire.has_charset_on_mariadb)

    def has_labels(wire: WireType) -> bool:
        return wire.has_labels

    match kind:
        case 1:  # SIGNEDNESS
            numeric = table_map.columns_of(lambda wire: wire.has_sign)
            if 8 * fields.left < len(numeric):
                raise DamagedEvent("TABLE_MAP's signedness is shorter than its numeric columns")
            bits = fields.take(fields.left)
            for index, column in enumerate(numeric):
                column.unsigned = bool(bits[index >> 3] << (index & 7) & 0x80)
        case 2 | 10:  # DEFAULT_CHARSET, ENUM_AND_SET_DEFAULT_CHARSET
            columns = table_map.columns_of(has_charset if kind == 2 else has_labels)
            default = fields.packed_number()
            for column in columns:
                column.collation = default
            while fields.left:
                index, collation = fields.packed_number(), fields.packed_number()
                _at(columns, index).collation = collation
        case 3 | 11:  # COLUMN_CHARSET, ENUM_AND_SET_COLUMN_CHARSET
            for column in table_map.columns_of(has_charset if kind == 3 else has_labels):
                column.collation = fields.packed_number()
        case 4:  # COLUMN_NAME
            for column in table_map.columns:
                column.name = fields.take(fields.packed_number()).decode("utf-8", "replace")
        case 5 | 6:  # SET_STR_VALUE, ENUM_STR_VALUE
            labelled = column_types.SET if kind == 5 else column_types.ENUM
            for column in table_map.columns_of(lambda wire: wire is labelled):
                count = fields.packed_number()
                if count > fields.left:
                    raise DamagedEvent(f"TABLE_MAP says {count} labels in {fields.left} bytes")
                column.labels = tuple(fields.take(fields.packed_number()) for _ in range(count))
        case 7:  # GEOMETRY_TYPE
            for column in table_map.columns_of(lambda wire: wire is column_types.GEOMETRY):
                column.is_point = fields.packed_number() == POINT
        case 8 | 9:  # SIMPLE_PRIMARY_KEY, PRIMARY_KEY_WITH_PREFIX
            key = []
            while fields.left:
                key.append(fields.packed_number())
                _at(table_map.columns, key[-1])
                if kind == 9:
                    fields.packed_number()
            table_map.primary_key = tuple(key)
        case 12:  # COLUMN_VISIBILITY
            if 8 * fields.left < len(table_map.columns):
                raise DamagedEvent("TABLE_MAP's visibility is shorter than its columns")
            bits = fields.take(fields.left)
            for index, column in enumerate(table_map.columns):
                column.visible = bool(bits[index >> 3] << (index & 7) & 0x80)
        case _:  # vector dimensions, and fields of later servers: not needed to read rows
            pass


def _at(columns: list[MapColumn], index: int) -> MapColumn:
    if index >= len(columns):
        raise DamagedEvent(f"TABLE_MAP's metadata names column {index} of {len(columns)}")
    return columns[index]
