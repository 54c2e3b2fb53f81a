"""The ids of the captured tables' schemas as a window begins, looked up before its tasks need them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.table import Table
from changefeed.endpoints.endpoints import Endpoints
from changefeed.schema_registry.subjects import KnownIds, Lookups
from changefeed.table_schema import TableSchema
from changefeed.window import Window

_AT_ONCE = 8


def registered_ids(endpoints: Endpoints, history: SchemaHistory | None, window: Window) -> KnownIds:
    """The ids that are registered of the schemas that the captured tables have at the start of ``window``.

    Nothing is registered here: a table whose schema is not fit stops the run when it has rows, and not before. Nothing
    for a pipeline without a registry, and where the tables are not known. Raises as `Registry`.
    """
    subjects = endpoints.schema_ids({})
    if subjects is None or history is None:
        return {}
    pipeline, lookups = endpoints.pipeline, Lookups(subjects)
    format = pipeline.message_format(window.frozen_at_ms, lookups)

    def look_up(table: TableSchema) -> None:
        keyed = pipeline.key_rule(table.database, table.table).keyed(table)
        shown = endpoints.column_rules.shown(keyed)
        format.key(shown)
        format.value(shown, "c")

    entries = history.at(window.start).tables.values()
    tables = [entry.schema for entry in entries if isinstance(entry, Table)]
    captured = [table for table in tables if pipeline.tables.matches(table.database, table.table)]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(look_up, captured):
            pass
    return lookups.known
