"""The schema ids of the captured tables at the start of a window, looked up before its tasks need them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.table import Table
from changefeed.errors import RegistryError, SchemaError
from changefeed.kafka.schema_registry.subjects import KnownIds, Lookups
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections

_AT_ONCE = 8


def registered_ids(
    connections: PipelineConnections,
    history: SchemaHistory | None,
    window: Window,
    parked: Collection[str] = (),
) -> KnownIds:
    """The registered schema ids of the captured tables at the start of ``window``, without those of ``parked`` tables.

    Nothing is registered here: an incompatible schema stops the run only when its table has rows. The result is empty
    for a pipeline without a registry, and if the tables are not known. Compatibility levels that a dead run changed are
    restored first. Raises what `Registry` raises.
    """
    if connections.exemptions is not None:
        connections.exemptions.restore_levels()
    subjects = connections.schema_ids({})
    if subjects is None or history is None:
        return {}
    pipeline, lookups = connections.pipeline, Lookups(subjects)
    routes = connections.routes
    format = routes.format(window.frozen_at_ms, lookups)

    def look_up(table: TableSchema) -> None:
        with suppress(SchemaError):  # the table's key is not known; if it has rows, they stop the run
            keyed_table = routes.key_rule(table.database, table.table).keyed_table(table)
            masked_table = connections.column_rules.masked_table(keyed_table)
            format.key(masked_table)
            format.value(masked_table, "c")

    entries = history.at(window.start).tables.values()
    tables = [entry.schema for entry in entries if isinstance(entry, Table)]
    captured = [
        table
        for table in tables
        if pipeline.tables.matches(table.database, table.table) and f"{table.database}.{table.table}" not in parked
    ]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        for _ in threads.map(look_up, captured):
            pass
    return lookups.known


def ids_by_subject(known: KnownIds) -> dict[str, int]:
    """The ids of ``known`` by subject, for a window's record: a subject has one schema at the start of a window."""
    return {subject: number for (subject, _), number in known.items()}


def check_same_ids(window: Window, begun: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raise RegistryError if the registry has other ids ``now`` for the schemas that ``window`` was ``begun`` with."""
    for subject, number in sorted(begun.items()):
        if now.get(subject) != number:
            found = f"is {now[subject]} now" if subject in now else "is not known there now"
            raise RegistryError(
                f"window {window.number} of pipeline {window.pipeline!r} was published in part, by a schema of subject "
                f"{subject!r} with the id {number} in the schema registry, which {found}: it is another, or "
                "it lost its ids; consumers could not read what is in Kafka already. Nothing more is published. "
                "Put the registry back (its connection, or its topic of schemas), and run again; or seek the pipeline "
                f"to {window.start}, which publishes the window's messages again by the schemas of this registry."
            )
