"""A table map, joined with the schema at its position, so that all properties of the columns are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from changefeed.binlog.events import charsets
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs import codecs
from changefeed.binlog.programs.mapped_column import mapped_column
from changefeed.errors import SchemaError
from changefeed.model import charset_codes
from changefeed.model.column_types import VARCHAR, MapColumn, data_types_of
from changefeed.model.route import Route
from changefeed.model.row_shape import fit, with_hidden, with_row_end
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class BoundTable:
    """A table map with all known properties of its columns."""

    schema: TableSchema
    columns: tuple[codecs.BoundColumn, ...]
    constants: Mapping[int, str] = field(default_factory=dict)
    """The values of constant columns, by position; these columns follow the columns of the row images."""


def bind(table_map: TableMap, schema: TableSchema | None, *, is_mariadb: bool = False) -> BoundTable:
    """The table map, joined with the ``schema`` at its position.

    The metadata of the table map has precedence; ``schema`` adds missing properties. If neither has names, columns are
    `@1`, `@2` … as in mysqlbinlog, integers are signed and text is UTF-8. Raises SchemaError if the schema is needed
    and has other columns.
    """
    if schema is not None and not table_map.has_names:
        schema = fit(schema, table_map.columns, is_mariadb=is_mariadb)
    elif schema is not None:
        schema = with_hidden(schema, table_map.columns) if is_mariadb else schema
        if not _matches(table_map, schema):
            schema = None  # FULL metadata needs no schema
    columns = []
    shown = []
    for number, column in enumerate(table_map.columns):
        known = schema.columns[number] if schema is not None else None
        bound = _bind_column(number, column, known)
        columns.append(bound)
        shown.append(mapped_column(column, bound, known))
    key = table_map.primary_key
    if key is None:
        # FULL metadata without a field for the key means that the table has no key.
        key = () if table_map.has_names or schema is None else schema.primary_key
    indexes = schema.indexes if schema is not None else None
    if schema is None and is_mariadb:
        shown = with_row_end(shown, key)
    bound_schema = TableSchema(table_map.database, table_map.table, tuple(shown), key, indexes)
    return BoundTable(bound_schema.keys_of_current_rows, tuple(columns))


def apply_route(table: BoundTable, route: Route, *, by_server: bool) -> BoundTable:
    """The table that the route shows to formats. See `Route.table_for_formats`; raises the same errors."""
    table_for_formats = route.table_for_formats(table.schema, by_server=by_server)
    if len(table_for_formats.columns) == len(table.columns):
        return BoundTable(table_for_formats, table.columns)
    field = codecs.BoundColumn(table_for_formats.columns[-1].name, VARCHAR.number, 0, False, "utf8mb4", None, "varchar")
    return BoundTable(
        table_for_formats,
        (*table.columns, field),
        {len(table.columns): f"{table_for_formats.database}.{table_for_formats.table}"},
    )


def _bind_column(number: int, column: MapColumn, known: Column | None) -> codecs.BoundColumn:
    unsigned = column.unsigned
    if unsigned is None:
        unsigned = known.unsigned if known is not None else False
    if column.collation is not None:
        charset = charsets.charset_of(column.collation)
    elif known is not None:
        is_unknown = known.collation == charset_codes.UNKNOWN
        charset = charset_codes.charset_of_name(known.collation) if known.collation else "binary"
        charset = charset_codes.UNKNOWN if is_unknown else charset
    else:
        charset = charset_codes.UNKNOWN
    if charset is None or not charset_codes.is_known(charset):
        collation = column.collation if column.collation is not None else known and known.collation
        raise SchemaError(
            f"column {column.name or (known.name if known else number + 1)!r} has collation {collation!r}, which "
            "neither MySQL 9.7 nor MariaDB 11.4 lists: its text cannot be read"
        )
    labels: tuple[str, ...] | None = None
    if column.labels is not None:
        labels = tuple(charset_codes.decode_text(label, charset) for label in column.labels)
    elif known is not None and known.labels:
        labels = known.labels
    name = column.name or (known.name if known is not None else f"@{number + 1}")
    data_type = known.data_type if known is not None else "point" if column.is_point else ""
    distinguishes_characters = charset == "binary" or (known is not None and (known.collation or "").endswith("_bin"))
    if column.collation is not None:
        distinguishes_characters = charsets.distinguishes_characters(column.collation)
    decimals = known.scale if known is not None and known.data_type == "double" else None
    return codecs.BoundColumn(
        name, column.type, column.meta, unsigned, charset, labels, data_type, distinguishes_characters, decimals
    )


def _matches(table_map: TableMap, schema: TableSchema) -> bool:
    if len(schema.columns) != len(table_map.columns):
        return False
    for mapped, column in zip(table_map.columns, schema.columns, strict=True):
        if mapped.name is not None and mapped.name != column.name:
            return False
        names = [data_type.name for data_type in data_types_of(mapped.wire)]
        if names and column.data_type not in names:
            return False
    return True
