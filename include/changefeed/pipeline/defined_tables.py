"""Table definitions of users: added to the schema history if they fit the rows there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.draft import fits_rows
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.seen_rows import SeenRows
from changefeed.ddl.session import SessionContext
from changefeed.ddl.sql_file import defined_schemas
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import RELEARNED, HistoryEntry, SchemaTimeline
from changefeed.errors import SchemaError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.unknown_tables import segments
from changefeed.settings.pipeline import Pipeline


@dataclass(frozen=True)
class DefinedTables:
    """A table that was added to the history for its rows from ``start`` to ``end``; ``end`` is '' for the end of the
    history."""

    table: str
    start: str
    end: str


def define(
    pipeline: Pipeline, history: SchemaHistory, sql: str, at: BinlogCoordinates | None = None
) -> tuple[SchemaHistory, list[DefinedTables]]:
    """``history`` with the tables that the statements of ``sql`` define, and the range in which each definition
    applies.

    A definition applies to the rows at ``at``, or by default to the first rows of each unknown table. Later DDL
    statements of the binlog are applied to it. Raises SchemaError if the rows there belong to a known table or do not
    fit the definition, and for statements that define no captured table.
    """
    given = defined_schemas(sql, history.timeline.initial)
    unknown = [each for each in segments(history) if each[1].rows and pipeline.tables.matches(*each[0])]
    defined = []
    for written, entry in given.tables.items():
        names = [name for name, _, _, _ in segments_of_table(unknown, written)]
        for name in names[:1]:
            if not isinstance(entry, Table):
                raise SchemaError(f"the statements do not say what columns {written} has: {entry.problem}")
            found = [each for each in segments_of_table(unknown, name) if at is None or _holds(each, at)]
            if not found:
                raise SchemaError(f"no rows of {name} at {at} are of a table that is not known")
            _, table, start, end = found[0]
            _check_fits(history, entry.with_name(name), table)
            timeline = _follow(history.timeline, name, entry.with_name(name), start, history)
            history = replace(history, timeline=timeline, id="")
            defined.append(DefinedTables(f"{name.database}.{name.table}", table.first, str(end) if end else ""))
    if not defined:
        unknown_names = ", ".join(dict.fromkeys(f"{name.database}.{name.table}" for name, _, _, _ in unknown)) or "none"
        tables = ", ".join(map(str, given.tables)) or "no table"
        raise SchemaError(
            f"the statements define {tables}, and none of those whose rows are "
            f"not known: {unknown_names}. Name the database, as in CREATE TABLE shop.orders (…), or with USE shop."
        )
    return history, defined


Segment = tuple[TableName, UnknownTable, BinlogCoordinates | None, BinlogCoordinates | None]


def segments_of_table(unknown: list[Segment], name: TableName) -> list[Segment]:
    """The segments of a table; for a name without a database, the segments of the only table with this name."""
    if name.database:
        return [each for each in unknown if each[0] == name]
    found = [each for each in unknown if each[0].table == name.table]
    databases = sorted({each[0].database for each in found})
    if len(databases) > 1:
        raise SchemaError(f"`{name.table}` may be of {' or '.join(databases)}: name the database in the statement")
    return found


def _holds(segment: Segment, at: BinlogCoordinates) -> bool:
    _, _, start, end = segment
    return (start is None or start < at) and (end is None or at <= end)


def _check_fits(history: SchemaHistory, table: Table, unknown: UnknownTable) -> None:
    rows = SeenRows(unknown.name, BinlogCoordinates.parse(unknown.first), unknown.columns, unknown.rows)
    if fits_rows(table, rows, history.server, history.collations):
        return
    shown = ", ".join(f"{column.name} {column.data_type}" for column in table.schema.columns)
    types = ", ".join(row.wire.name for row in unknown.columns)
    raise SchemaError(
        f"rows of {unknown.name} from {unknown.first} on cannot be of the table that the statements define: they have "
        f"{len(unknown.columns)} columns of the types ({types}), and it has ({shown}). Nothing was changed. Give the "
        "statements of that time, or with --at the coordinates of other rows."
    )


def _follow(
    timeline: SchemaTimeline, name: TableName, table: Table, start: BinlogCoordinates | None, history: SchemaHistory
) -> SchemaTimeline:
    """``timeline`` with ``table`` and its later versions, from the entry at ``start``, or with None from its
    beginning."""
    initial, entries = timeline.initial, list(timeline.entries)
    if start is None:
        initial = replace(initial, tables={**initial.tables, name: table})
        first = 0
    else:
        first = next(
            number for number, entry in enumerate(entries) if entry.coordinates == start and name in entry.tables
        )
        entries[first] = replace(entries[first], tables={**entries[first].tables, name: table})
        first += 1
    schemas = SchemaTimeline(initial, tuple(entries[:first])).latest
    for number in range(first, len(entries)):
        entries[number] = _again(entries[number], schemas, history)
        schemas = timeline.after(schemas, [entries[number]])
    return SchemaTimeline(initial, tuple(entries))


def _again(entry: HistoryEntry, before: Schemas, history: SchemaHistory) -> HistoryEntry:
    """``entry`` with the tables that are known after its statement is applied to ``before``."""
    if entry.kind == RELEARNED:
        return entry
    after = before.apply(read_statement(entry.sql, SessionContext(entry.database), history.server))
    tables: dict[TableName, Entry | None] = dict(entry.tables)
    for name in entry.touched:
        found, known = tables.get(name), after.tables.get(name)
        if name in tables and not isinstance(found, UnknownTable):
            continue
        if isinstance(found, UnknownTable) and found.columns and isinstance(known, Table):
            rows = SeenRows(name, entry.coordinates, found.columns, found.rows)
            if not fits_rows(known, rows, history.server, history.collations):
                continue
        if isinstance(found, UnknownTable) and isinstance(known, UnknownTable):
            continue
        if known != before.tables.get(name):
            tables[name] = known
    return replace(entry, tables=tables)
