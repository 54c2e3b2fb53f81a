"""Names and key of a table map: from its own FULL metadata, or from the schema."""

from __future__ import annotations

from typing import Any

from changefeed import column_types
from changefeed.column_types import WIRE_TYPES
from changefeed.errors import SchemaError
from changefeed.reader import SchemaLookup
from changefeed.table_schema import Column, TableSchema


def schema_of(table_map: Any, schemas: SchemaLookup) -> TableSchema:
    """The schema that a decoded TABLE_MAP event stands for; completes its columns where it has no names.

    Raises SchemaError where the names are not known, or are of another number of columns than the binlog has.
    """
    columns = table_map.columns
    database, table = table_map.schema, table_map.table
    if all(column.name for column in columns):
        metadata = table_map.optional_metadata
        key = tuple(metadata.simple_primary_key_list) or tuple(metadata.primary_keys_with_prefix)
        return TableSchema(database, table, tuple(Column(column.name, "") for column in columns), key)
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
        column.unsigned = bool(is_unsigned)
        column.enum_values = ["", *said.labels] if column.type == column_types.ENUM.number else None
        column.set_values = list(said.labels) if column.type == column_types.SET.number else None
        if said.collation is not None:
            column.character_set_name = said.collation.partition("_")[0]
        elif WIRE_TYPES[column.type].has_charset:
            column.character_set_name = "binary"
    return known
