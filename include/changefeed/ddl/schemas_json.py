"""Schemas as plain JSON values, for the state store and the schema topic; `None` stands for what is gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.session import Flavour, Server
from changefeed.ddl.table import Table, UnknownTable
from changefeed.errors import CheckpointError
from changefeed.table_schema import Column, TableSchema

Json = dict[str, Any]

VERSION = 1
"""Of this form; a reader refuses a later one."""


def schemas_to_json(schemas: Schemas) -> Json:
    """``schemas`` as values that `json` writes; `schemas_from_json` reads them back."""
    server = schemas.server
    return {
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


def schemas_from_json(values: Mapping[str, Any]) -> Schemas:
    """Raises CheckpointError for values of a later form, or that are no schemas."""
    if values.get("version") != VERSION:
        raise CheckpointError(
            f"stored schemas are of form {values.get('version')!r}, and this changefeed reads form {VERSION}: a newer "
            "one wrote them. Use that one, or delete them so that they are learned from the server again."
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
        )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"stored schemas cannot be read ({error!r}): delete them to learn them again") from error


def entry_to_json(name: TableName, entry: Entry | None) -> Json:
    """One table: its columns, or why they are not known, or that it is gone."""
    values: Json = {"database": name.database, "table": name.table}
    if entry is None:
        return values | {"dropped": True}
    if isinstance(entry, UnknownTable):
        return values | {"unknown": entry.problem}
    values |= {
        "collation": entry.collation,
        "columns": [column_to_json(column) for column in entry.schema.columns],
        "primary_key": [entry.schema.columns[place].name for place in entry.schema.primary_key],
    }
    return values | ({"generated_key": True} if entry.generated_key else {})


def entry_from_json(values: Mapping[str, Any]) -> tuple[TableName, Entry | None]:
    name = TableName(values["database"], values["table"])
    if values.get("dropped"):
        return name, None
    if "unknown" in values:
        return name, UnknownTable(name, values["unknown"])
    columns = tuple(column_from_json(column) for column in values["columns"])
    places = {column.name: place for place, column in enumerate(columns)}
    key = tuple(places[column] for column in values["primary_key"])
    return name, Table(TableSchema(*name, columns, key), values["collation"], bool(values.get("generated_key")))


def column_to_json(column: Column) -> Json:
    """What is not so is left out."""
    values: Json = {"name": column.name, "type": column.data_type}
    if column.unsigned:
        values["unsigned"] = True
    if column.collation is not None:
        values["collation"] = column.collation
    if column.labels:
        values["labels"] = list(column.labels)
    if column.srid is not None:
        values["srid"] = column.srid
    return values


def column_from_json(values: Mapping[str, Any]) -> Column:
    return Column(
        values["name"],
        values["type"],
        bool(values.get("unsigned")),
        values.get("collation"),
        tuple(values.get("labels", ())),
        values.get("srid"),
    )
