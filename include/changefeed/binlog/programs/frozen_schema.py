"""Compares TABLE_MAPs with the table schemas that a pipeline has frozen."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.binlog.events import charsets
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.errors import SchemaError
from changefeed.model import charset_codes
from changefeed.model.column_types import MapColumn
from changefeed.model.row_shape import misfit_of, with_hidden
from changefeed.model.table_schema import Column, TableSchema

_COMPARED = ("name", "data_type", "labels", "length", "precision", "scale", "datetime_precision")


def check_unchanged(table_map: TableMap, bound: BoundTable, frozen: TableSchema, *, is_mariadb: bool) -> None:
    """Raises SchemaError if ``table_map``, whose bound table is ``bound``, contradicts the ``frozen`` schema.

    Properties that the TABLE_MAP does not have are not compared, such as names without FULL metadata.
    """
    if found := next(_differences(table_map, bound, frozen, is_mariadb), ""):
        raise _contradiction(table_map, found)


def check_fits(table_map: TableMap, frozen: TableSchema | None, *, is_mariadb: bool) -> TableSchema:
    """The ``frozen`` schema with MariaDB's hidden columns.

    Raises SchemaError if there is none, or if the number or the types of the columns contradict it."""
    if frozen is None:
        raise _contradiction(table_map, "it was not known when they were frozen, and no DDL since then made it")
    fitted = with_hidden(frozen, table_map.columns) if is_mariadb else frozen
    if misfit := misfit_of(fitted, table_map.columns):
        raise _contradiction(table_map, misfit)
    return fitted


def _contradiction(table_map: TableMap, found: str) -> SchemaError:
    name = f"{table_map.database}.{table_map.table}"
    return SchemaError(
        f"rows of {name} contradict its frozen schema (freeze_schema): {found}. Nothing of this window was "
        f"published. To read later rows by the table as it is now, run `changefeed schema PIPELINE --relearn {name}`; "
        "to follow DDL, take `freeze_schema` out of the pipeline."
    )


def _differences(table_map: TableMap, bound: BoundTable, expected: TableSchema, is_mariadb: bool) -> Iterator[str]:
    columns = zip(expected.columns, table_map.columns, bound.schema.columns, strict=True)
    for number, (column, row, seen) in enumerate(columns, 1):
        for attribute, defined, found in _attributes(column, row, seen, is_mariadb):
            if None not in (defined, found) and defined != found:
                yield f"column {number} {column.name!r}: expected {attribute} {defined!r}, found {found!r}"
    key = expected.keys_of_current_rows.primary_key
    if table_map.has_names and bound.schema.primary_key != key:
        expected_key, found_key = (
            [expected.columns[position].name for position in positions or ()]
            for positions in (key, bound.schema.primary_key)
        )
        yield f"expected primary key {expected_key}, found {found_key}"


def _attributes(column: Column, row: MapColumn, seen: Column, is_mariadb: bool) -> Iterator[tuple[str, object, object]]:
    """Yield each attribute as name, value in the frozen schema, value in the TABLE_MAP; an unknown value is None."""
    for attribute in _COMPARED:
        yield attribute, getattr(column, attribute), getattr(seen, attribute)
    if not is_mariadb:  # MariaDB marks all columns of the inner table of an outer join as nullable
        yield "nullable", column.nullable, row.nullable
    if row.collation is not None and column.collation not in (None, charset_codes.UNKNOWN):
        yield (
            "character set",
            charset_codes.charset_of_name(column.collation or ""),
            charsets.charset_of(row.collation),
        )
