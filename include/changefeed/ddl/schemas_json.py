"""Schemas as plain JSON values, for the state store and the schema history topic. A dropped entry is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.session import Flavour, Server
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.table_elements import Period
from changefeed.errors import CheckpointError
from changefeed.model.column_types import MapColumn
from changefeed.model.table_schema import Column, Default, Index, TableSchema

Json = dict[str, Any]

VERSION = 3
"""The version of the stored form. Other versions are rejected.

False properties are left out. `unknown` of a column names its unknown properties; true stands for all of
_MAY_BE_UNKNOWN. `indexes` is null if the indexes are unknown. Unique indexes are in the server's order.
"""


def schemas_to_json(schemas: Schemas) -> Json:
    """``schemas`` as values for `json`, which `schemas_from_json` reads."""
    server = schemas.server
    values: Json = {
        "version": VERSION,
        "server": {
            "flavour": str(server.flavour),
            "version": list(server.version),
            "lower_case_table_names": server.lower_case_table_names,
            "collation": server.collation,
        },
        "databases": dict(schemas.databases),
        "tables": [entry_to_json(name, entry) for name, entry in schemas.tables.items()],
    }
    return values | ({"views": [list(name) for name in sorted(schemas.views)]} if schemas.views else {})


def schemas_from_json(values: Mapping[str, Any]) -> Schemas:
    """The schemas from values of `schemas_to_json`. Raises CheckpointError for another version and for other values."""
    if values.get("version") != VERSION:
        raise CheckpointError(
            f"stored schemas are of version {values.get('version')!r}, and this changefeed reads version {VERSION}: "
            "another changefeed wrote them. Use that one, or delete them, and they are learned from the server again."
        )
    try:
        server = values["server"]
        major, minor, patch = server["version"]
        return Schemas(
            Server(
                Flavour(server["flavour"]), (major, minor, patch), server["lower_case_table_names"], server["collation"]
            ),
            dict(values["databases"]),
            dict(entry_from_json(item) for item in values["tables"]),  # type: ignore[misc]  # entries, none gone
            frozenset(TableName(*name) for name in values.get("views", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"stored schemas cannot be read ({error!r}): delete them to learn them again") from error


def entry_to_json(name: TableName, entry: Entry | None) -> Json:
    """A table as JSON: its columns, the reason why they are unknown, or that it was dropped."""
    values: Json = {"database": name.database, "table": name.table}
    if entry is None:
        return values | {"dropped": True}
    if isinstance(entry, UnknownTable):
        return values | _unknown_to_json(entry)
    schema = entry.schema
    values |= {
        "collation": entry.collation,
        "columns": [column_to_json(column) for column in schema.columns],
        "primary_key": [schema.columns[position].name for position in schema.primary_key],
    }
    if schema.indexes is None:
        values["indexes"] = None
    elif schema.indexes:
        values["indexes"] = [_index_to_json(index) for index in schema.indexes]
    if entry.periods:
        values["periods"] = [[period.name, period.start, period.end] for period in entry.periods]
    return values | ({"generated_key": True} if entry.generated_key else {})


def entry_from_json(values: Mapping[str, Any]) -> tuple[TableName, Entry | None]:
    """The table from values of `entry_to_json`. Raises KeyError, TypeError or ValueError for other values."""
    name = TableName(values["database"], values["table"])
    if values.get("dropped"):
        return name, None
    if "unknown" in values:
        return name, _unknown_from_json(name, values)
    columns = tuple(map(column_from_json, values["columns"]))
    positions = {column.name: position for position, column in enumerate(columns)}
    key = tuple(positions[column] for column in values["primary_key"])
    indexes = values.get("indexes", [])
    known = None if indexes is None else tuple(_index_from_json(index) for index in indexes)
    schema = TableSchema(*name, columns, key, known)
    periods = tuple(Period(*period) for period in values.get("periods", ()))
    return name, Table(schema, values["collation"], bool(values.get("generated_key")), periods)


def _unknown_to_json(table: UnknownTable) -> Json:
    """The problem of an unknown table, and its rows if it has any."""
    values: Json = {"unknown": table.problem}
    if table.rows:
        values |= {"row_count": table.rows, "first": table.first, "last": table.last}
        values["rows"] = [
            [row.type, row.meta, row.nullable, row.unsigned, row.collation, row.is_point] for row in table.columns
        ]
    if any(column is not None for column in table.known):
        values["known"] = [column and column_to_json(column) for column in table.known]
    return values | ({"answer": table.answer} if table.answer else {})


def _unknown_from_json(name: TableName, values: Mapping[str, Any]) -> UnknownTable:
    rows = (
        MapColumn(type, meta, nullable, unsigned, collation, is_point=is_point)
        for type, meta, nullable, unsigned, collation, is_point in values.get("rows", ())
    )
    return UnknownTable(
        name,
        values["unknown"],
        values.get("row_count", 0),
        values.get("first", ""),
        values.get("last", ""),
        tuple(rows),
        tuple(column and column_from_json(column) for column in values.get("known", ())),
        values.get("answer", ""),
    )


def _index_to_json(index: Index) -> Json:
    values: Json = {"name": index.name, "columns": list(index.columns)}
    values |= {name: True for name in ("unique", "for_foreign_key") if getattr(index, name)}
    return values | ({"lengths": list(index.lengths)} if index.lengths else {})


def _index_from_json(values: Mapping[str, Any]) -> Index:
    return Index(
        values["name"],
        tuple(values["columns"]),
        bool(values.get("unique")),
        bool(values.get("for_foreign_key")),
        tuple(values.get("lengths", ())),
    )


_MEASURES = ("srid", "length", "precision", "scale", "datetime_precision")
_FLAGS = ("nullable", "zerofill", "auto_increment", "generated", "virtual")
_MAY_BE_UNKNOWN = (*_FLAGS, "default", "comment")


def column_to_json(column: Column) -> Json:
    """A column as JSON. False properties are left out; `unknown` names unknown properties."""
    values: Json = {"name": column.name, "type": column.data_type}
    if column.unsigned:
        values["unsigned"] = True
    if column.collation is not None:
        values["collation"] = column.collation
    if column.labels:
        values["labels"] = list(column.labels)
    values |= {name: value for name in _MEASURES if (value := getattr(column, name)) is not None}
    values |= {name: True for name in _FLAGS if getattr(column, name)}
    if column.default is not None and column.default.text is not None:
        values["default_sql" if column.default.is_sql else "default"] = column.default.text
    if column.comment:
        values["comment"] = column.comment
    if column.row_end is not None and _may_end_rows(column):
        values["row_end"] = column.row_end
    unknown = [name for name in _MAY_BE_UNKNOWN if getattr(column, name) is None]
    if unknown:
        values["unknown"] = True if len(unknown) == len(_MAY_BE_UNKNOWN) else unknown
    return values


def column_from_json(values: Mapping[str, Any]) -> Column:
    """The column from values of `column_to_json`."""
    properties: dict[str, Any] = {name: bool(values.get(name)) for name in _FLAGS}
    is_sql = "default_sql" in values
    properties["default"] = Default(values["default_sql"] if is_sql else values.get("default"), is_sql)
    properties["comment"] = values.get("comment", "")
    unknown: Any = values.get("unknown", ())
    properties |= dict.fromkeys(_MAY_BE_UNKNOWN if unknown is True else unknown)
    column = Column(
        values["name"],
        values["type"],
        bool(values.get("unsigned")),
        values.get("collation"),
        tuple(values.get("labels", ())),
        **{name: values.get(name) for name in _MEASURES},
        **properties,
        hidden=False,
    )
    return replace(column, row_end=values.get("row_end", None if _may_end_rows(column) else False))


def _may_end_rows(column: Column) -> bool:
    """Whether the column may be a row end. The property is stored only for such columns."""
    kind = (column.data_type, column.datetime_precision, column.unsigned)
    looks_so = kind in (("timestamp", 6, False), ("bigint", None, True)) and not column.nullable
    return column.generated is None or (column.generated and looks_so)
