"""Adds names and key to a table map: from its own FULL metadata, or from the schema."""

from __future__ import annotations

import codecs
from typing import Any

from pymysqlreplication.row_event import RowsEvent

from changefeed.errors import SchemaError
from changefeed.model import column_types
from changefeed.model.column_types import WIRE_TYPES
from changefeed.model.route import SchemaLookup
from changefeed.model.table_schema import Column, TableSchema

_NATIVE_ORDER = ("utf16", "utf32")
"""Charsets that MySQL stores in big-endian order. The library reads them in this machine's byte order."""
_LABELLED = (column_types.ENUM.number, column_types.SET.number)
_LABEL_CHARSETS = ("utf8mb4", "utf8mb3", "utf8", "ascii")
"""The charsets of labels that the library reads correctly: it reads all labels as UTF-8, and drops invalid bytes."""
_PLAIN_BYTES = ("uuid", "inet4", "inet6")
"""MariaDB's types that look like BINARY in a TABLE_MAP."""


def schema_of(table_map: Any, schemas: SchemaLookup, *, is_mariadb: bool) -> TableSchema:
    """The schema of a decoded TABLE_MAP event; completes its columns if it has no names.

    Raises SchemaError if the names are unknown, if their number differs from the binlog's columns, and for a column
    that mysql-replication is known to read wrongly.
    """
    logs_column_names = all(column.name for column in table_map.columns)
    schema = _named_schema(table_map) if logs_column_names else _complete_schema(table_map, schemas)
    asked = is_mariadb or any(column.type in _LABELLED for column in table_map.columns)
    known = schemas(schema.database, schema.table) if asked else None
    defined = {column.name: column for column in known.columns} if known else {}
    hidden = {column.name for column in table_map.columns} - defined.keys()
    if known is not None and (known.row_end is not None or (is_mariadb and "row_end" in hidden)):
        raise SchemaError(
            f"`{schema.database}`.`{schema.table}` is system-versioned, and reader 'reference' cannot distinguish its "
            "history from its rows. Use the pipeline's default reader."
        )
    for column in table_map.columns:
        problem = _misread_reason(column, defined.get(column.name))
        if problem:
            raise SchemaError(
                f"column `{column.name}` of `{schema.database}`.`{schema.table}` {problem}: reader 'reference' would "
                "read it wrongly. Use the pipeline's default reader."
            )
    return schema


def _misread_reason(column: Any, defined: Column | None) -> str | None:
    """Why the library reads its ``column`` wrongly, or None. ``defined`` is the column in the server's schema."""
    charset = column.character_set_name
    if defined is not None and defined.data_type in _PLAIN_BYTES:
        return f"is {defined.data_type.upper()}, which looks like BINARY in the binlog"
    if column.type in _LABELLED:
        labels = tuple(column.set_values or (column.enum_values or [""])[1:])
        is_sure = charset in _LABEL_CHARSETS or (defined is not None and labels == defined.labels)
        return None if is_sure else f"has labels in {charset}"
    if charset is None or charset == "binary":
        return None
    try:
        codecs.lookup(RowsEvent.charset_to_encoding(charset))
    except LookupError:
        return f"is in {charset}, for which Python has no codec"
    return f"is in {charset}" if charset in _NATIVE_ORDER else None


def _named_schema(table_map: Any) -> TableSchema:
    metadata = table_map.optional_metadata
    key = tuple(metadata.simple_primary_key_list) or tuple(metadata.primary_keys_with_prefix)
    columns = tuple(Column(column.name, "") for column in table_map.columns)
    return TableSchema(table_map.schema, table_map.table, columns, key)


def _complete_schema(table_map: Any, schemas: SchemaLookup) -> TableSchema:
    columns = table_map.columns
    database, table = table_map.schema, table_map.table
    known = schemas(database, table)
    if known is None:
        raise SchemaError(
            f"the binlog has rows of `{database}`.`{table}` without column names (binlog_row_metadata=MINIMAL), and "
            "the server has no such table now: it was dropped or renamed. Leave it out of the pipeline, or seek."
        )
    if len(known.columns) != len(columns):
        raise SchemaError(
            f"the binlog has rows of `{database}`.`{table}` with {len(columns)} columns, and the server says it has "
            f"{len(known.columns)} now: {', '.join(column.name for column in known.columns)}. The table was altered "
            "after these rows; set binlog_row_metadata=FULL so that the binlog names its columns."
        )
    unsigned = table_map.optional_metadata.unsigned_column_list or [False] * len(columns)
    for column, said, is_unsigned in zip(columns, known.columns, unsigned, strict=True):
        column.name = said.name
        column.unsigned = bool(is_unsigned) or said.unsigned
        column.enum_values = ["", *said.labels] if column.type == column_types.ENUM.number else None
        column.set_values = list(said.labels) if column.type == column_types.SET.number else None
        if said.collation is not None:
            column.character_set_name = said.collation.partition("_")[0]
        elif WIRE_TYPES[column.type].has_charset:
            column.character_set_name = "binary"
    return known
