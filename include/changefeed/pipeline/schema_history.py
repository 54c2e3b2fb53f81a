"""A pipeline's schema history: learned from the server with proof of its coordinates, stored in Kafka and the state
store."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

from changefeed.binlog.search.finder import Binlogs
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Server
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import SchemaTimeline
from changefeed.errors import BinlogGoneError, ChangefeedError, FencedError, RetryableError, SchemaError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.lease import Lease
from changefeed.kafka.schema_log import schema_history_settings
from changefeed.kafka.topics import ensure_topics
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.rights import check_rights
from changefeed.pipeline.schema_learning import (
    JoinedBinlogs,
    carry_over,
    extend_back,
    extend_forward,
    learn_history,
    scan_range,
)
from changefeed.pipeline.unknown_tables import with_answers_of
from changefeed.pipeline.windows import commit_log_state
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity_once
from changefeed.source.mysql.server_schemas import collation_names, current_schemas
from changefeed.source.mysql.session import Session, server_of

_log = logging.getLogger(__name__)
_BEGIN_OF_TEXT = re.compile(r'\{"id":"(\w+)"')


def history_for(
    connections: PipelineConnections,
    session: Session,
    window: Window,
    state: CommitLogState,
    *,
    archived: ArchivedBinlogs | None = None,
) -> SchemaHistory | None:
    """The history for reading ``window``, valid at its start: the stored history, or a history derived from it.

    ``state`` is the state of the pipeline's commit log; ``archived`` are the files that the window is read from, if
    they are not on the server. The stored history is extended forwards or backwards to the window's start; after a
    failover its schemas at the old server's checkpoint are used. If none of that is possible, the tables are learned
    from the server as they are now, and derived backwards (`pipeline.schema_learning`).

    If rows have column names and no record needs schemas, the tables are not learned, because that would read the
    complete binlog from the window's start on. `learn_after_window` learns them at the end of the binlog. Until then
    the result is None, and the run continues without a history.

    With the setting `freeze_schema` the history is frozen at the window's start, if it is not frozen yet. Without the
    setting a frozen history is not used.
    """
    is_frozen = connections.pipeline.freeze_schema
    history = _follow_history(connections, session, window, state, archived)
    return history.freeze(window.start) if is_frozen and history is not None else history


def _follow_history(
    connections: PipelineConnections,
    session: Session,
    window: Window,
    state: CommitLogState,
    archived: ArchivedBinlogs | None,
) -> SchemaHistory | None:
    is_frozen = connections.pipeline.freeze_schema
    try:
        kept = load_history(connections, state)
        if kept is not None and kept.is_frozen and not is_frozen:
            kept = None
        proof = _Proof.NONE if kept is None else _proof(session, kept, window, state)
        if proof is _Proof.OTHER:
            kept = None
        if kept is not None and kept.covers(window.server_uuid, window.start):
            return kept
        # MariaDB's metadata, even FULL, does not show which columns are UUIDs and which tables are system-versioned.
        needless = source.logs_column_names(session) and not needs_tables(connections.pipeline)
        if needless:
            return None if archived else _without_tables(session, window)
        check_rights(connections, session)
        binlogs = ServerBinlogs(session) if archived is None else JoinedBinlogs(archived, ServerBinlogs(session))
        made = None if kept is None else _extend_stored(kept, session, window, binlogs, is_same=proof is _Proof.SAME)
        return made or learn_history(session, window.server_uuid, window.start, binlogs)
    except ChangefeedError as error:
        if session.variable("binlog_row_metadata") != "FULL" or isinstance(error, RetryableError) or is_frozen:
            raise
        _log.warning("the schema history is not kept up: %s", error)
        return None


class _Proof(Enum):
    """Whether the server's binlog is the binlog of a history; after a reset, coordinates alone do not prove it."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"
    """No file is left that could prove it."""


def _proof(session: Session, kept: SchemaHistory, window: Window, state: CommitLogState) -> _Proof:
    if kept.server_uuid != window.server_uuid:
        return _Proof.NONE
    last = state.seals[max(state.seals)].window if state.seals else None
    follows = last and (last.server_uuid, last.head, last.number + 1)
    if follows == (window.server_uuid, window.start, window.number):
        return _Proof.SAME  # `plan` has compared its files; after a seek the numbers do not follow each other
    known = [kept.file, last.newest if last is not None and last.head == kept.until else None]
    there = {file.name for file in source.binlog_files(session)}
    for file in known:
        if file is not None and file.name in there:
            found = file_identity_once(session, window.server_uuid, file.name)
            if found != file:
                _log.warning("the schema history is of binlog %s, found %s: the tables are learned anew", file, found)
                return _Proof.OTHER
            return _Proof.SAME
    return _Proof.NONE


def _extend_stored(
    kept: SchemaHistory, session: Session, window: Window, binlogs: Binlogs, *, is_same: bool
) -> SchemaHistory | None:
    """The stored history, extended to the start of ``window``; None if that is not possible.

    ``is_same`` says that the history is proved to belong to the server's binlog.
    """
    failover = window.failover
    if failover is not None:
        at = BinlogCoordinates.parse(failover.at)
        schemas = kept.schemas_at(failover.from_uuid, at)
        if schemas is not None:
            history = carry_over(schemas, session, window.server_uuid, window.start)
            return replace(history, elsewhere=(failover.from_uuid, at), is_frozen=kept.is_frozen)
    schemas = kept.schemas_at(window.server_uuid, window.start)
    if schemas is not None:  # the run is on the server of before a failover again
        history = carry_over(schemas, session, window.server_uuid, window.start)
        return replace(history, is_frozen=kept.is_frozen)
    if is_same and kept.since.base == window.start.base:
        try:
            if window.start < kept.since and kept.is_frozen:
                return replace(kept, since=window.start, id="")
            if window.start < kept.since:
                return extend_back(kept, window.start, binlogs)
            return extend_forward(kept, window.start, binlogs)
        except BinlogGoneError as error:
            _log.warning("the tables are learned from the server anew: %s", error)
    return None


def prepare_history(
    connections: PipelineConnections, session: Session, window: Window, state: CommitLogState, lease: Lease
) -> SchemaHistory | None:
    """The history for reading ``window``; a new one is stored before anything is published. See `history_for`.

    ``state`` was read under ``lease``. Raises what `history_for` raises, and FencedError.
    """
    history = history_for(connections, session, window, state)
    if history is not None and is_learned(history):
        _ensure_topic(connections)
        return _store(connections, history, window.start, lease)
    return history


def is_learned(history: SchemaHistory) -> bool:
    """Whether the history was learned or extended and is not stored yet."""
    return history.tables_known and not history.id


def _ensure_topic(connections: PipelineConnections) -> None:
    pipeline = connections.pipeline
    settings = {connections.schema_log().topic: schema_history_settings(pipeline.topics.replication_factor)}
    ensure_topics(connections.kafka, settings, create=pipeline.topics.create)


def needs_tables(pipeline: Pipeline) -> bool:
    """Whether the pipeline needs table schemas: to check rows, for records of DDL, to find new tables, or for column
    properties that rows do not have."""
    if pipeline.freeze_schema or pipeline.publish_ddl != "off" or pipeline.statements == "publish":
        return True
    if pipeline.snapshot.new_tables:
        return True
    return compile_routes(pipeline).format(0).needs_definitions


def _without_tables(session: Session, window: Window) -> SchemaHistory:
    timeline = SchemaTimeline(Schemas(server=server_of(session)))
    collations = collation_names(session)
    return SchemaHistory(window.server_uuid, window.start, window.start, timeline, collations, tables_known=False)


def with_tables(
    connections: PipelineConnections, history: SchemaHistory, window: Window, lease: Lease
) -> SchemaHistory:
    """``history``, or a learned history if rows of ``window`` have no column names.

    It is stored as by `store_learned` if ``lease`` is the pipeline's lease.
    """
    if history.tables_known:
        return history
    with connections.session_on(window.server_uuid) as session:
        history = learn_history(session, window.server_uuid, window.start)
    return store_learned(connections, history, lease) if lease.identity == connections.pipeline.name else history


def with_statements(connections: PipelineConnections, history: SchemaHistory, window: Window) -> SchemaHistory:
    """``history`` moved through all statements of ``window``."""
    with connections.session_on(window.server_uuid) as session:
        for statement in scan_range(ServerBinlogs(session), window.start, window.head).statements:
            history = history.advance(statement)
    return history


def load_history(connections: PipelineConnections, state: CommitLogState | None = None) -> SchemaHistory | None:
    """The history of the schema topic, up to where it is known to be complete; None before the first window.

    The history is stored only if a DDL statement changes it, not with each window. A seal names the history that is
    complete up to the seal's head. So the stored history is complete up to its own end, or up to the last seal if that
    names it. ``state`` is the state of the commit log, if it was read already.
    """
    values = connections.schema_log().load()
    if values is None:
        return None
    history = SchemaHistory.from_json(values)
    seals = (state or commit_log_state(connections)).seals
    if not history.id or not seals:
        return history
    last = seals[max(seals)]
    same = (last.schemas, last.window.server_uuid) == (history.id, history.server_uuid)
    return history.extend_to(last.window.head) if same else history


def captured_tables(pipeline: Pipeline, history: SchemaHistory) -> list[tuple[TableName, Table | UnknownTable]]:
    """The latest tables that the pipeline captures, by name."""
    return sorted(
        (name, entry) for name, entry in history.timeline.latest.tables.items() if pipeline.tables.matches(*name)
    )


def store_learned(connections: PipelineConnections, history: SchemaHistory, lease: Lease) -> SchemaHistory:
    """Store ``history``, if it is not stored, before messages are made with it; return the stored history.

    A retry of the window then decodes its rows in the same way, even if DDL statements follow the window.
    """
    return _store(connections, history, history.until, lease) if is_learned(history) else history


def save_history(
    connections: PipelineConnections,
    history: SchemaHistory,
    window: Window,
    reports: Iterable[SliceReport],
    lease: Lease,
) -> SchemaHistory:
    """Apply the window's statements to ``history``, store it if they change it, and return it with its id.

    The tables of ``history`` are known.
    """
    for report in sorted(reports, key=lambda report: report.slice):
        for statement in report.statements:
            history = history.advance(statement)
    return history if history.id else _store(connections, history.extend_to(window.head), window.start, lease)


def learn_after_window(connections: PipelineConnections, window: Window, lease: Lease) -> None:
    """Learn the tables from the end of ``window`` on, and store them, if at most one binlog file has begun since.

    Called after the seal. Nothing needs the history yet, so an error is only logged. After a failed write ``lease``
    cannot write anything more. Raises FencedError.
    """
    try:
        with connections.session_on(window.server_uuid) as session:
            if source.head(session).coordinates.number > window.head.number + 1:
                return
            history = learn_history(session, window.server_uuid, window.head)
        _store(connections, history, window.head, lease)
    except FencedError:
        raise
    except ChangefeedError as error:
        _log.warning("the schemas are not learned yet: %s", error)


def _store(
    connections: PipelineConnections, history: SchemaHistory, start: BinlogCoordinates, lease: Lease
) -> SchemaHistory:
    history = history.with_id(uuid.uuid4().hex, start)
    connections.schema_log().save(history.to_json(), lease.writer)
    return history


def copy_history(connections: PipelineConnections, store: CheckpointStore, manifest: Manifest) -> None:
    """Copy the history that ``manifest`` names to the state store, unless the store has it already."""
    name = connections.pipeline.name
    if not manifest.schemas or _id_of(store.load_schemas(name)) == manifest.schemas:
        return
    text = connections.schema_log().load_text()
    if text is not None:
        store.save_schemas(name, text.decode())


def _id_of(text: str | None) -> str:
    """The id at the start of a stored history's JSON; '' for None."""
    begins = _BEGIN_OF_TEXT.match(text or "")
    return begins[1] if begins else ""


def copied_history(pipeline: Pipeline, store: CheckpointStore) -> SchemaHistory | None:
    """The state store's copy of the history, which the next run restores if the schema topic has none."""
    text = store.load_schemas(pipeline.name)
    return None if text is None else SchemaHistory.from_json(json.loads(text))


def is_lost(connections: PipelineConnections, store: CheckpointStore) -> bool:
    """Whether the schema topic has no history, and the state store has a copy of one."""
    return store.load_schemas(connections.pipeline.name) is not None and connections.schema_log().is_empty()


def restore_history(connections: PipelineConnections, store: CheckpointStore, lease: Lease) -> None:
    """Restore the history of an empty schema topic from the state store's copy."""
    pipeline, log = connections.pipeline, connections.schema_log()
    text = store.load_schemas(pipeline.name) if log.is_empty() else None
    if text is None:
        return
    _ensure_topic(connections)
    log.save(json.loads(text), lease.writer)
    _log.warning("pipeline %s: its schema topic had no history; the state store's copy was brought back", pipeline.name)


def current(session: Session, history: SchemaHistory) -> SchemaHistory:
    """``history`` at the source's head, including statements that no window has reached yet."""
    head = source.head(session).coordinates
    if not history.covers(source.server_uuid(session), history.until):
        return history
    for statement in scan_range(ServerBinlogs(session), history.until, head).statements:
        history = history.advance(statement)
    return history


def relearn(connections: PipelineConnections, session: Session, tables: Iterable[str], lease: Lease) -> SchemaHistory:
    """Learn ``tables`` again from the server, store them, and return the new history.

    Each of ``tables`` is "database.table". It is read as it is now and derived backwards to the history's end. If it is
    not on the server any more, its rows count as rows of an unknown table. The other tables of the history do not
    change. Raises SchemaError if there is no history yet or no such table, and what `learn_history` raises.
    """
    history, server = read_stored_history(connections), server_of(session)
    there = {*current_schemas(session).tables, *history.timeline.latest.tables, *history.at(history.until).tables}
    names = {name for table in tables for name in _tables_named(table, there, server)}
    if history.server_uuid != source.server_uuid(session):
        raise SchemaError(
            f"the schema history of pipeline {connections.pipeline.name!r} is of server {history.server_uuid}, found "
            f"server {source.server_uuid(session)}. Run the pipeline first: the run carries the history over."
        )
    known = {name: entry for name, entry in history.at(history.until).tables.items() if name not in names}
    anew = with_answers_of(history, learn_history(session, history.server_uuid, history.until, known=known))
    if history.is_frozen:  # apply only the DDL of these tables
        anew = replace(anew, timeline=anew.timeline.of_tables(names))
    return _store(connections, history.continue_with(anew), history.until, lease)


def _tables_named(table: str, there: Iterable[TableName], server: Server) -> list[TableName]:
    found = [name for name in there if f"{name.database}.{name.table}" in (table, server.table_name(table))]
    if not found:
        raise SchemaError(
            f"neither the server nor the schema history has a table {table!r}, or the user may not see it: expected "
            "DATABASE.TABLE"
        )
    return found


def read_stored_history(connections: PipelineConnections) -> SchemaHistory:
    """The stored history; raises SchemaError if there is none yet."""
    history = load_history(connections)
    if history is None:
        raise SchemaError(
            f"pipeline {connections.pipeline.name!r} has no schema history yet: its first run learns all tables, or, "
            "where nothing needs them, the first that reaches the end of the binlog"
        )
    return history


def store_history(connections: PipelineConnections, history: SchemaHistory, lease: Lease) -> SchemaHistory:
    """Replace the stored history, which was read under ``lease``, by ``history``; return the stored one."""
    return _store(connections, history, history.until, lease)
