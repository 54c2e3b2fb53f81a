"""A pipeline's schema history: learned from the server with proof of its coordinates, kept in Kafka and the store."""

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
    carried,
    extended_back,
    extended_forward,
    learned,
    scan_range,
)
from changefeed.pipeline.unknown_tables import with_answers_of
from changefeed.pipeline.windows import commit_log_state
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity
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
    """The history that ``window`` is read with, which reaches its start: the one kept, or one made from it.

    ``state`` is what the pipeline's commit log says; ``archived`` are the files that the window is read from, where
    these are not the server's. The history kept is read on, or backwards, to the window's start; after a failover its
    schemas at the old server's checkpoint are those here. Where none of that can be, the tables are learned from the
    server as they are now, and derived backwards (`pipeline.schema_learning`).

    Where names come with the rows and no record is made of schemas, the tables are not learned: that reads all of the
    binlog from the window's start on. `save_history` learns them when the pipeline has come to the end of it. None
    where the history cannot be had and names come with the rows, so that nothing may stop on it.
    """
    try:
        kept = load_history(connections, state)
        proof = _Proof.NONE if kept is None else _proof(session, kept, window, state)
        if proof is _Proof.OTHER:
            kept = None
        if kept is not None and kept.covers(window.server_uuid, window.start):
            return kept
        # MariaDB's metadata, be it FULL, leaves out which columns are UUIDs, and which tables keep history.
        needless = source.names_come_along(session) and not makes_records_of_tables(connections.pipeline)
        if needless:
            return None if archived else _without_tables(session, window)
        check_rights(connections, session)
        binlogs = ServerBinlogs(session) if archived is None else JoinedBinlogs(archived, ServerBinlogs(session))
        made = None if kept is None else _made_from(kept, session, window, binlogs, is_same=proof is _Proof.SAME)
        return made or learned(session, window.server_uuid, window.start, binlogs)
    except ChangefeedError as error:
        if session.variable("binlog_row_metadata") != "FULL" or isinstance(error, RetryableError):
            raise
        _log.warning("the schema history is not kept up: %s", error)
        return None


class _Proof(Enum):
    """Whether the server's binlog is the one that a history is of: after a reset coordinates alone do not say so."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"
    """No file is left that would tell."""


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
            found = file_identity(session.connection, window.server_uuid, file.name)
            if found != file:
                _log.warning("the schema history is of binlog %s, found %s: the tables are learned anew", file, found)
                return _Proof.OTHER
            return _Proof.SAME
    return _Proof.NONE


def _made_from(
    kept: SchemaHistory, session: Session, window: Window, binlogs: Binlogs, *, is_same: bool
) -> SchemaHistory | None:
    """A history that reaches the start of ``window``, from one that does not; None where none can be made of it.

    ``is_same``: it is proved to be of the binlog that is there.
    """
    failover = window.failover
    if failover is not None:
        at = BinlogCoordinates.parse(failover.at)
        schemas = kept.found_at(failover.from_uuid, at)
        if schemas is not None:
            history = carried(schemas, session, window.server_uuid, window.start)
            return replace(history, elsewhere=(failover.from_uuid, at))
    schemas = kept.found_at(window.server_uuid, window.start)
    if schemas is not None:  # back on the server that a failover led away from
        return carried(schemas, session, window.server_uuid, window.start)
    if is_same and kept.since.base == window.start.base:
        try:
            if window.start < kept.since:
                return extended_back(kept, window.start, binlogs)
            return extended_forward(kept, window.start, binlogs)
        except BinlogGoneError as error:
            _log.warning("the tables are learned from the server anew: %s", error)
    return None


def prepare_history(
    connections: PipelineConnections, session: Session, window: Window, state: CommitLogState, lease: Lease
) -> SchemaHistory | None:
    """The history that ``window`` will be read with, stored before anything is; see `history_for`.

    ``state`` was read under ``lease``. Raises as `history_for`, and FencedError.
    """
    history = history_for(connections, session, window, state)
    if history is not None and is_learned(history):
        _ensure_topic(connections)
        return _stored(connections, history, window.start, lease)
    return history


def is_learned(history: SchemaHistory) -> bool:
    """Whether it was learned, or moved, and is not stored so."""
    return history.tables_known and not history.id


def _ensure_topic(connections: PipelineConnections) -> None:
    pipeline = connections.pipeline
    settings = {connections.schema_log().topic: schema_history_settings(pipeline.topics.replication_factor)}
    ensure_topics(connections.kafka, settings, create=pipeline.topics.create)


def makes_records_of_tables(pipeline: Pipeline) -> bool:
    """Whether any record says what tables there are, or of columns what does not come along with rows."""
    if pipeline.publish_ddl != "off" or pipeline.statements == "publish":
        return True
    return compile_routes(pipeline).format(0).needs_definitions


def _without_tables(session: Session, window: Window) -> SchemaHistory:
    timeline = SchemaTimeline(Schemas(server=server_of(session)))
    collations = collation_names(session)
    return SchemaHistory(window.server_uuid, window.start, window.start, timeline, collations, tables_known=False)


def with_tables(
    connections: PipelineConnections, history: SchemaHistory, window: Window, lease: Lease
) -> SchemaHistory:
    """``history``, or the one learned after all where rows of ``window`` came without names; stored as `keep_learned`
    does where ``lease`` is the pipeline's."""
    if history.tables_known:
        return history
    with connections.session_on(window.server_uuid) as session:
        history = learned(session, window.server_uuid, window.start)
    return keep_learned(connections, history, lease) if lease.identity == connections.pipeline.name else history


def with_statements(connections: PipelineConnections, history: SchemaHistory, window: Window) -> SchemaHistory:
    """``history`` moved through all statements of ``window``."""
    with connections.session_on(window.server_uuid) as session:
        for statement in scan_range(ServerBinlogs(session), window.start, window.head).statements:
            history = history.advance(statement)
    return history


def load_history(connections: PipelineConnections, state: CommitLogState | None = None) -> SchemaHistory | None:
    """The history that the schema topic keeps, up to where it is known to be complete; None before the first window.

    It is stored when a definition changes it, and not with each window: a seal names the history that is complete up
    to its head. So the one stored reaches as far as it says itself, or as the last seal does where that names it.
    ``state`` is what the pipeline's commit log says, where that is known already.
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
    return history.reached(last.window.head) if same else history


def captured(pipeline: Pipeline, history: SchemaHistory) -> list[tuple[TableName, Table | UnknownTable]]:
    """The latest tables that the pipeline captures, by name."""
    return sorted(
        (name, entry) for name, entry in history.timeline.latest.tables.items() if pipeline.tables.matches(*name)
    )


def keep_learned(connections: PipelineConnections, history: SchemaHistory, lease: Lease) -> SchemaHistory:
    """Store ``history`` before the first message that is made with it, where it was learned and is not stored.

    A later attempt at the window reads its rows in the same way then, whatever definitions came behind it.
    """
    return _stored(connections, history, history.until, lease) if is_learned(history) else history


def save_history(
    connections: PipelineConnections,
    history: SchemaHistory,
    window: Window,
    reports: Iterable[SliceReport],
    lease: Lease,
) -> str:
    """Move ``history``, whose tables are known, through the window's statements, and store it where they change it.

    Returns its id.
    """
    for report in sorted(reports, key=lambda report: report.slice):
        for statement in report.statements:
            history = history.advance(statement)
    return history.id or _stored(connections, history.reached(window.head), window.start, lease).id


def learn_behind(connections: PipelineConnections, window: Window, lease: Lease) -> None:
    """Learn the tables from the end of ``window`` on, where little of the binlog is left to read, and store that.

    Called when the window is sealed: nothing needs the history yet, so where it cannot be learned or stored that is
    only logged, and a write that fails leaves ``lease`` with nothing that can be written any more. Raises FencedError.
    """
    try:
        with connections.session_on(window.server_uuid) as session:
            if source.head(session).coordinates.number > window.head.number + 1:
                return
            history = learned(session, window.server_uuid, window.head)
        _stored(connections, history, window.head, lease)
    except FencedError:
        raise
    except ChangefeedError as error:
        _log.warning("the schemas are not learned yet: %s", error)


def _stored(
    connections: PipelineConnections, history: SchemaHistory, start: BinlogCoordinates, lease: Lease
) -> SchemaHistory:
    history = history.named(uuid.uuid4().hex, start)
    connections.schema_log().save(history.to_json(), lease.writer)
    return history


def copy_history(connections: PipelineConnections, store: CheckpointStore, manifest: Manifest) -> None:
    """Keep a copy of the history that ``manifest`` names in the state store; mostly it has that one already."""
    name = connections.pipeline.name
    if not manifest.schemas or _id_of(store.load_schemas(name)) == manifest.schemas:
        return
    text = connections.schema_log().load_text()
    if text is not None:
        store.save_schemas(name, text.decode())


def _id_of(text: str | None) -> str:
    """The id of a stored history, which its JSON begins with; '' for none."""
    begins = _BEGIN_OF_TEXT.match(text or "")
    return begins[1] if begins else ""


def copied_history(pipeline: Pipeline, store: CheckpointStore) -> SchemaHistory | None:
    """The state store's copy of the history, as the next run brings it back where the schema topic has none."""
    text = store.load_schemas(pipeline.name)
    return None if text is None else SchemaHistory.from_json(json.loads(text))


def is_lost(connections: PipelineConnections, store: CheckpointStore) -> bool:
    """Whether the schema topic has no history, and the state store has a copy of one."""
    return connections.schema_log().is_empty() and store.load_schemas(connections.pipeline.name) is not None


def restore_history(connections: PipelineConnections, store: CheckpointStore, lease: Lease) -> None:
    """Bring the state store's copy back into a schema topic that has none."""
    pipeline, log = connections.pipeline, connections.schema_log()
    text = store.load_schemas(pipeline.name) if log.is_empty() else None
    if text is None:
        return
    _ensure_topic(connections)
    log.save(json.loads(text), lease.writer)
    _log.warning("pipeline %s: its schema topic had no history; the state store's copy was brought back", pipeline.name)


def current(session: Session, history: SchemaHistory) -> SchemaHistory:
    """``history`` moved to the source's head, by the statements that no window has reached yet."""
    head = source.head(session).coordinates
    if not history.covers(source.server_uuid(session), history.until):
        return history
    for statement in scan_range(ServerBinlogs(session), history.until, head).statements:
        history = history.advance(statement)
    return history


def relearn(connections: PipelineConnections, session: Session, tables: Iterable[str], lease: Lease) -> SchemaHistory:
    """Learn tables, each "database.table", again from the server as they are now, backwards to the history's end, and
    keep that. Rows of one that is gone from the server are counted, and are then of a table that is not known.

    What the history knows of other tables counts on. Raises SchemaError where there is no history yet, or no such
    table, and as `learned`.
    """
    history, server = kept_history(connections), server_of(session)
    there = {*current_schemas(session).tables, *history.timeline.latest.tables, *history.at(history.until).tables}
    names = {name for table in tables for name in _named(table, there, server)}
    if history.server_uuid != source.server_uuid(session):
        raise SchemaError(
            f"the schema history of pipeline {connections.pipeline.name!r} is of server {history.server_uuid}, found "
            f"server {source.server_uuid(session)}. Run the pipeline first: the run carries the history over."
        )
    known = {name: entry for name, entry in history.at(history.until).tables.items() if name not in names}
    anew = with_answers_of(history, learned(session, history.server_uuid, history.until, known=known))
    return _stored(connections, history.continued(anew), history.until, lease)


def _named(table: str, there: Iterable[TableName], server: Server) -> list[TableName]:
    found = [name for name in there if f"{name.database}.{name.table}" in (table, server.table_name(table))]
    if not found:
        raise SchemaError(
            f"neither the server nor the schema history has a table {table!r}, or the user may not see it: wanted "
            "DATABASE.TABLE"
        )
    return found


def kept_history(connections: PipelineConnections) -> SchemaHistory:
    """The stored history; raises SchemaError where there is none yet."""
    history = load_history(connections)
    if history is None:
        raise SchemaError(
            f"pipeline {connections.pipeline.name!r} has no schema history yet: its first run learns all tables, or, "
            "where nothing needs them, the first that reaches the end of the binlog"
        )
    return history


def store_history(connections: PipelineConnections, history: SchemaHistory, lease: Lease) -> SchemaHistory:
    """Store ``history`` in place of the one that it was made from, which was read under ``lease``."""
    return _stored(connections, history, history.until, lease)
