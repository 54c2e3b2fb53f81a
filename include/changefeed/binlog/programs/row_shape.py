"""A TABLE_MAP against what is known of its table: the same columns, or an error that shows both.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
("Table_map_event column types: numerical identifier and metadata")
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from changefeed.binlog.events.table_map import MapColumn
from changefeed.errors import SchemaError
from changefeed.table_schema import Column, TableSchema

_CODES: dict[str, tuple[int, ...]] = {
    "tinyint": (1,),
    "smallint": (2,),
    "int": (3,),
    "float": (4,),
    "double": (5,),
    "bigint": (8,),
    "mediumint": (9,),
    "date": (10, 14),
    "year": (13,),
    "bit": (16,),
    "timestamp": (17, 7),
    "datetime": (18, 12),
    "time": (19, 11),
    "vector": (242, 15, 253),  # MariaDB: VARBINARY
    "json": (245,),
    "decimal": (246, 0),
    "enum": (247,),
    "set": (248,),
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), (254,)),
    **dict.fromkeys(("varchar", "varbinary"), (15, 253, 141)),
    **dict.fromkeys(
        (f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("blob", "text")), (252, 140)
    ),
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"), (255,)),
    **dict.fromkeys(("multipolygon", "geomcollection", "geometrycollection"), (255,)),
}
_NAMES = {code: name for name, codes in reversed(_CODES.items()) for code in codes} | {252: "blob", 140: "blob"}
_BLOB_LENGTHS = {"tiny": 1, "medi": 3, "long": 4}
_FIXED = {"uuid": 16, "inet6": 16, "inet4": 4}

_BIGINT, _TIMESTAMP = 8, 17
_ROW_START_END = (Column("row_start", "timestamp"), Column("row_end", "timestamp"))


def fit(schema: TableSchema, columns: Sequence[MapColumn], *, is_mariadb: bool = False) -> TableSchema:
    """The schema of rows that come with this TABLE_MAP.

    It is ``schema``, and on MariaDB after its columns those that the server lists nowhere and writes in rows:
    `row_start` and `row_end` of WITH SYSTEM VERSIONING, `DB_ROW_HASH_1` … of UNIQUE keys over long columns.

    Raises SchemaError, with both definitions, where number, types or metadata of the columns contradict ``schema``.
    Lengths of VARCHAR, DECIMAL and the like are not compared: they stand in the TABLE_MAP, and reading needs no more.
    """
    known = schema.columns
    hidden = _hidden(columns[len(known) :]) if is_mariadb else ()
    if len(known) + len(hidden) != len(columns):
        raise _contradiction(schema, columns, f"{len(columns)} columns, and {len(known)} were wanted")
    for place, (column, row) in enumerate(zip(known, columns, strict=False)):
        if not _fits(column, row):
            raise _contradiction(
                schema, columns, f"column {place + 1} is {_shown(row)}, and `{column.name}` was wanted there"
            )
    return replace(schema, columns=(*known, *hidden)) if hidden else schema


def _hidden(columns: Sequence[MapColumn]) -> tuple[Column, ...]:
    found: tuple[Column, ...] = ()
    if [(column.type, column.meta) for column in columns[:2]] == [(_TIMESTAMP, 6)] * 2:
        found, columns = _ROW_START_END, columns[2:]
    hashes = range(1, 1 + sum(column.type == _BIGINT for column in columns))
    return found + tuple(Column(f"DB_ROW_HASH_{number}", "bigint", unsigned=True) for number in hashes)


def _fits(column: Column, row: MapColumn) -> bool:
    codes = _CODES.get(column.data_type)
    if codes is None:  # a type of a later server: nothing is known to be wrong
        return True
    if row.type not in codes or (row.unsigned is not None and row.unsigned != column.unsigned and _is_number(row.type)):
        return False
    if column.data_type == "enum":
        return row.meta == (1 if len(column.labels) < 256 else 2)
    if column.data_type == "set":
        size = (len(column.labels) + 7) // 8
        return row.meta == (8 if size > 4 else size)
    if row.type in (252, 140):
        return row.meta == _BLOB_LENGTHS.get(column.data_type[:4], 2)
    return column.data_type not in _FIXED or row.meta == _FIXED[column.data_type]


def _shown(row: MapColumn) -> str:
    sign = " unsigned" if row.unsigned else ""
    return f"{_NAMES.get(row.type, f'type {row.type}')}[{row.meta}]{sign}"


def _is_number(code: int) -> bool:
    return code in (1, 2, 3, 8, 9, 246)


def _contradiction(schema: TableSchema, columns: Sequence[MapColumn], what: str) -> SchemaError:
    name = f"{schema.database}.{schema.table}"
    known = ", ".join(f"{column.name} {column.data_type}{' unsigned' * column.unsigned}" for column in schema.columns)
    return SchemaError(
        f"rows of {name} contradict what is known of its columns: {what}. The binlog has "
        f"({', '.join(map(_shown, columns))}); known is ({known}). A definition was not followed, or the table was "
        "changed without the binlog. Learn it again from the server with "
        f"`changefeed schema PIPELINE --relearn {name}`, or set binlog_row_metadata=FULL, so that the binlog "
        "names its columns."
    )
