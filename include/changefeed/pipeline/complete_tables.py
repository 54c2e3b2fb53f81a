"""The captured tables whose rows are all in Kafka, for `snapshot: {new_tables: true}`.

A table is complete if windows or a snapshot published each of its rows. The commit log has the names of the complete
tables at the end of the last sealed window (`CompleteTablesRecord`). It is written with each seal, so it always belongs
to the patterns in `tables` that the window was published with: a window keeps its settings until it is sealed.

- All tables that match when a run first sees the setting are complete: `start` says what to do with their rows.
- CREATE TABLE in a window that captures the table makes it complete: all its rows are changes in the binlog.
- A table that existed before the patterns matched it is not complete. The same holds for a name that appears by RENAME
  from a name that is not captured, from a converted partition, or without a CREATE in the binlog (restored files,
  `sql_log_bin=0`), once the schema history has it (`changefeed schema --relearn`).
- RENAME gives the new name the state of the old one: windows published the rows under the old name.
- A complete name stays complete if another table gets it (gh-ost, pt-online-schema-change), and if its table is parked,
  because `unpark` publishes its changes. It does not if no table has the name at the end of a window, after DROP TABLE,
  or if the patterns did not match it in a window.
- A finished snapshot of all rows of a table makes it complete, if it began after the table was found incomplete.
- A failover changes nothing, as names do not depend on the server.
- After a seek forward, tables that were created in the skipped range are not complete. After a seek back, windows
  publish CREATE TABLE again.
- Without the setting the next seal forgets the record.

A window that is published in part has no seal, and changes nothing here. Without a schema history nothing is recorded,
and tables that were created meanwhile count as incomplete later: their rows are then published twice, never left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping

from changefeed.ddl.changes import (
    AlterTable,
    CreateSequence,
    CreateTable,
    CreateTableLike,
    RenameTables,
    RenameTo,
    SchemaChange,
    UnreadChange,
)
from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.ddl.session import SessionContext
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import CompleteTablesRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.run_identity import snapshot_identity
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session, server_of


def complete_tables(state: CommitLogState) -> CompleteTablesRecord | None:
    """The stored record; None before the first run with the setting."""
    return next(iter(state.of(CompleteTablesRecord)), None)


def first_complete_tables(pipeline: Pipeline, session: Session) -> CompleteTablesRecord:
    """The record for the first run with the setting: all tables that the server has and the patterns match."""
    return CompleteTablesRecord(tuple(sorted(captured_names(pipeline, session, sequences=True))), {}, _now_ms())


def captured_names(pipeline: Pipeline, session: Session, *, sequences: bool) -> set[str]:
    """The captured tables that the server has now, as DATABASE.TABLE in the form in which the server logs them."""
    logged = server_of(session).table_name
    names = table_names(session, sequences=sequences)
    return {logged(f"{database}.{table}") for database, table in names if pipeline.tables.matches(database, table)}


def complete_after(
    pipeline: Pipeline,
    window: Window,
    history: SchemaHistory,
    before: CompleteTablesRecord,
    snapshots: Callable[[], Iterable[SnapshotRecord]],
) -> CompleteTablesRecord:
    """The record after ``window``; ``history`` has the window's statements, ``before`` is the record before it.

    ``snapshots`` reads the pipeline's snapshots. It is called only if a table is not complete.
    """
    matches = pipeline.tables.matches
    there = {f"{name.database}.{name.table}" for name in history.at(window.head).tables if matches(*name)}
    known = {name for name in before.tables if matches(*name.split(".", 1))}
    complete = there & (known | _after_statements(known, history, window, matches))
    existed = history.at(window.start).tables if window.start >= history.since else {}
    at_start = {f"{name.database}.{name.table}" for name in existed}
    missing = {
        name: before.missing.get(name, before.at_ms if name in at_start else window.frozen_at_ms)
        for name in sorted(there - complete)
    }
    if missing:
        done = read_by_snapshots(missing, snapshots())
        complete |= done
        missing = {name: since for name, since in missing.items() if name not in done}
    return CompleteTablesRecord(tuple(sorted(complete)), missing, _now_ms())


def incomplete_tables(
    pipeline: Pipeline,
    record: CompleteTablesRecord,
    history: SchemaHistory,
    sealed: BinlogCoordinates,
    snapshots: Iterable[SnapshotRecord],
) -> set[str]:
    """The captured tables that need a snapshot, by the patterns that ``pipeline`` has now; ``sealed`` is the end of the
    window that ``record`` is of."""
    there = {f"{name.database}.{name.table}" for name in history.at(sealed).tables if pipeline.tables.matches(*name)}
    missing = {name: record.missing.get(name, record.at_ms) for name in there - set(record.tables)}
    return missing.keys() - read_by_snapshots(missing, snapshots)


def read_by_snapshots(missing: Mapping[str, int], snapshots: Iterable[SnapshotRecord]) -> set[str]:
    """The tables of ``missing`` of which a finished snapshot has published all rows. It must have begun after the time
    (in ms) at which the table was found incomplete."""
    return {
        table.name
        for record in snapshots
        if record.finished and not record.request.get("where")
        for table in record.tables
        if not table.gone and table.name in missing and record.began_ms >= missing[table.name]
    }


def pipeline_snapshots(connections: PipelineConnections) -> dict[str, SnapshotRecord]:
    """The snapshots of the pipeline in its commit log, by identity. Raises what `CommitLog.read_all` raises."""
    log, ours = connections.commit_log(), snapshot_identity(connections.pipeline.name, "")
    states = log.read_all() if log.exists() else {}
    return {
        identity: record
        for identity, state in states.items()
        if identity.startswith(ours)
        for record in state.of(SnapshotRecord)
    }


def _after_statements(
    complete: Collection[str], history: SchemaHistory, window: Window, matches: Callable[[str, str], bool]
) -> set[str]:
    """The names that are complete after the statements of ``window``, if ``complete`` are so before them."""
    names = {TableName(*name.split(".", 1)) for name in complete}
    for entry in history.timeline.entries:
        if not window.start <= entry.coordinates < window.head:
            continue
        change = read_statement(entry.sql, SessionContext(entry.database), history.server).change
        for old, new in _renamed(change):
            names = (names - {old, new}) | ({new} if old in names else set())
        names -= {name for name, table in entry.tables.items() if table is None}
        if _is_creation(change, entry.sql):
            names |= {name for name, table in entry.tables.items() if table is not None and matches(*name)}
    return {f"{name.database}.{name.table}" for name in names}


def _renamed(change: SchemaChange | None) -> list[tuple[TableName, TableName]]:
    match change:
        case RenameTables(names=names):
            return list(names)
        case AlterTable(name=name, actions=actions):
            return [(name, action.name) for action in actions if isinstance(action, RenameTo)]
    return []


def _is_creation(change: SchemaChange | None, sql: str) -> bool:
    is_unread = isinstance(change, UnreadChange) and sql.lstrip()[:6].upper() == "CREATE"
    return is_unread or isinstance(change, CreateTable | CreateTableLike | CreateSequence)


def _now_ms() -> int:
    return int(time.time() * 1000)
