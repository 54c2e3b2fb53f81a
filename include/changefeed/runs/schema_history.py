"""A pipeline's schema history: learned from the server with proof of its coordinates, kept in Kafka and the store."""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from changefeed.checkpoint import CheckpointStore
from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl.changes import CreateDatabase, CreateTable, CreateTableLike, CreateView
from changefeed.ddl.ddl_statement import Kind
from changefeed.ddl.history import SchemaHistory, read_logged
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import SchemaTimeline
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import ChangefeedError, RetryableError, SchemaError
from changefeed.kafka.commit_log import CommitLogState
from changefeed.kafka.schema_log import schema_history_settings
from changefeed.kafka.topics import ensure_topics
from changefeed.manifest import Manifest
from changefeed.mysql import source
from changefeed.mysql.binlogs import ServerBinlogs
from changefeed.mysql.file_identities import file_identity
from changefeed.mysql.server_schemas import collation_names, current_schemas, server_of
from changefeed.mysql.session import Session
from changefeed.pipelines.pipeline import Pipeline
from changefeed.reader import SliceReport, Statement
from changefeed.runs.windows import commit_log_state
from changefeed.window import Slice, Window, whole_file_slices

_log = logging.getLogger(__name__)
StatementReader = Callable[[Sequence[Slice]], Iterable[Statement]]
"""Reads the statements in pieces of binlog files, in their order."""

_TRIES = 5
_AT_ONCE_FROM_BYTES = 64 << 20
"""Less than this is read sooner than tasks begin."""
_BEGIN_OF_TEXT = re.compile(r'\{"id":"(\w+)"')


def history_for(
    endpoints: Endpoints,
    session: Session,
    window: Window,
    state: CommitLogState,
    *,
    archived: bool = False,
    at_once: StatementReader | None = None,
) -> SchemaHistory | None:
    """The history that ``window`` is read with: the one kept, or learned anew where that does not reach its start.

    ``state`` is what the pipeline's commit log says. ``at_once`` reads several files of the source at the same time.
    Where names come with the rows and no record is made of schemas, the tables are not learned: that reads all of the
    binlog from the window's start on. `save_history` learns them when the pipeline has come to the end of it.

    None where it cannot be had and the binlog need not be read with it: of archived files that the kept history does
    not cover, and of a source with FULL metadata, where nothing may stop on it.
    """
    try:
        kept = load_history(endpoints, state)
        if kept is not None and kept.covers(window.server_uuid, window.start):
            return kept
        if archived:
            return None
        if kept is not None and (moved := _moved(endpoints, session, kept, window, state, at_once)) is not None:
            return moved
        # MariaDB's metadata, be it FULL, leaves out which columns are UUIDs, and which tables keep history.
        if (
            source.names_come_along(session)
            and not session.is_mariadb
            and not makes_records_of_tables(endpoints.pipeline)
        ):
            return _without_tables(session, window)
        return learned(session, window.server_uuid, window.start, at_once)
    except ChangefeedError as error:
        if session.variable("binlog_row_metadata") != "FULL" or isinstance(error, RetryableError):
            raise
        _log.warning("the schema history is not kept up: %s", error)
        return None


def _moved(
    endpoints: Endpoints,
    session: Session,
    kept: SchemaHistory,
    window: Window,
    state: CommitLogState,
    at_once: StatementReader | None,
) -> SchemaHistory | None:
    """``kept`` moved through the statements that a seek has skipped, so that earlier rows can be read with it as well.

    None where ``window`` does not begin after it in the same binlog: only the file of the last seal's head proves that.
    """
    last = state.seals[max(state.seals)].window if state.seals else None
    follows = kept.server_uuid == window.server_uuid and kept.until.base == window.start.base
    if last is None or last.newest is None or last.head != kept.until or not (follows and kept.until < window.start):
        return None
    file = last.newest.name
    there = file in {listed.name for listed in source.binlog_files(session)}
    if not there or file_identity(endpoints.mysql, window.server_uuid, file) != last.newest:
        return None
    for statement in statements(session, window.server_uuid, kept.until, window.start, at_once):
        kept = kept.advance(statement)
    return kept.reached(window.start)


def makes_records_of_tables(pipeline: Pipeline) -> bool:
    """Whether any record says what tables there are, or of columns what does not come along with rows."""
    if pipeline.publish_ddl != "off" or pipeline.statements == "publish":
        return True
    return pipeline.message_format(0).needs_definitions


def _without_tables(session: Session, window: Window) -> SchemaHistory:
    timeline = SchemaTimeline(Schemas(server=server_of(session)))
    collations = collation_names(session)
    return SchemaHistory(window.server_uuid, window.start, window.start, timeline, collations, tables_known=False)


def with_tables(
    endpoints: Endpoints, history: SchemaHistory, window: Window, identity: str, at_once: StatementReader
) -> SchemaHistory:
    """``history``, or the one learned after all where rows of ``window`` came without names; stored as `keep_learned`
    does where ``identity`` is the pipeline's."""
    if history.tables_known:
        return history
    with endpoints.session_on(window.server_uuid) as session:
        history = learned(session, window.server_uuid, window.start, at_once)
    return keep_learned(endpoints, history) if identity == endpoints.pipeline.name else history


def with_statements(
    endpoints: Endpoints, history: SchemaHistory, window: Window, at_once: StatementReader
) -> SchemaHistory:
    """``history`` moved through all statements of ``window``."""
    with endpoints.session_on(window.server_uuid) as session:
        for statement in statements(session, window.server_uuid, window.start, window.head, at_once):
            history = history.advance(statement)
    return history


def load_history(endpoints: Endpoints, state: CommitLogState | None = None) -> SchemaHistory | None:
    """The history that the schema topic keeps, up to where it is known to be complete; None before the first window.

    It is stored when a definition changes it, and not with each window: a seal names the history that is complete up
    to its head. So the one stored reaches as far as it says itself, or as the last seal does where that names it.
    ``state`` is what the pipeline's commit log says, where that is known already.
    """
    values = endpoints.schema_log().load()
    if values is None:
        return None
    history = SchemaHistory.from_json(values)
    seals = (state or commit_log_state(endpoints)).seals
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


def keep_learned(endpoints: Endpoints, history: SchemaHistory) -> SchemaHistory:
    """Store ``history`` before the first message that is made with it, where it was learned and is not stored.

    A later attempt at the window reads its rows in the same way then, whatever definitions came behind it.
    """
    return history if history.id or not history.tables_known else _stored(endpoints, history, history.until)


def save_history(endpoints: Endpoints, history: SchemaHistory, window: Window, reports: Iterable[SliceReport]) -> str:
    """Move ``history`` through the window's statements, and store it where they change it; return its id.

    Where its tables are not known they are learned behind the window, when little of the binlog is left to read.
    """
    if not history.tables_known:
        return _learned_behind(endpoints, window)
    for report in sorted(reports, key=lambda report: report.slice):
        for statement in report.statements:
            history = history.advance(statement)
    return history.id or _stored(endpoints, history.reached(window.head), window.start).id


def _learned_behind(endpoints: Endpoints, window: Window) -> str:
    """The id of a history from the end of ``window`` on; '' where much is left to read, or it cannot be learned."""
    try:
        with endpoints.session_on(window.server_uuid) as session:
            if source.head(session).coordinates.number > window.head.number + 1:
                return ""
            history = learned(session, window.server_uuid, window.head)
        return _stored(endpoints, history, window.head).id
    except ChangefeedError as error:  # nothing needs it yet, and the window is published
        _log.warning("the schemas are not learned yet: %s", error)
        return ""


def _stored(endpoints: Endpoints, history: SchemaHistory, start: BinlogCoordinates) -> SchemaHistory:
    history = history.named(uuid.uuid4().hex, start)
    endpoints.schema_log().save(history.to_json())
    return history


def copy_history(endpoints: Endpoints, store: CheckpointStore, manifest: Manifest) -> None:
    """Keep a copy of the history that ``manifest`` names in the state store; mostly it has that one already."""
    name = endpoints.pipeline.name
    if not manifest.schemas or _id_of(store.load_schemas(name)) == manifest.schemas:
        return
    text = endpoints.schema_log().load_text()
    if text is not None:
        store.save_schemas(name, text.decode())


def _id_of(text: str | None) -> str:
    """The id of a stored history, which its JSON begins with; '' for none, and for that of an older version."""
    begins = _BEGIN_OF_TEXT.match(text or "")
    return begins[1] if begins else ""


def copied_history(pipeline: Pipeline, store: CheckpointStore) -> SchemaHistory | None:
    """The state store's copy of the history, as the next run brings it back where the schema topic has none."""
    text = store.load_schemas(pipeline.name)
    return None if text is None else SchemaHistory.from_json(json.loads(text))


def restore_history(endpoints: Endpoints, store: CheckpointStore) -> bool:
    """Bring the state store's copy back into a schema topic that has none; return whether that was so."""
    pipeline, log = endpoints.pipeline, endpoints.schema_log()
    if not log.is_empty():
        return False
    text = store.load_schemas(pipeline.name)
    if text is None:
        return False
    wanted = {log.topic: schema_history_settings(pipeline.topics.replication_factor)}
    ensure_topics(endpoints.kafka, wanted, create=pipeline.topics.create)
    log.save(json.loads(text))
    _log.warning("pipeline %s: its schema topic had no history; the state store's copy was brought back", pipeline.name)
    return True


def current(session: Session, history: SchemaHistory) -> SchemaHistory:
    """``history`` moved to the source's head, by the statements that no window has reached yet."""
    head = source.head(session).coordinates
    if not history.covers(source.server_uuid(session), history.until):
        return history
    for statement in statements(session, history.server_uuid, history.until, head):
        history = history.advance(statement)
    return history


def relearn(endpoints: Endpoints, session: Session, names: Iterable[TableName]) -> SchemaHistory:
    """Learn tables again from the server, for rows from the history's end on, and keep that.

    Raises SchemaError when there is no history yet, or no such table.
    """
    pipeline = endpoints.pipeline.name
    history = load_history(endpoints)
    if history is None:
        raise SchemaError(
            f"pipeline {pipeline!r} has no schema history yet: its first run learns all tables, or, where "
            "nothing needs them, the first that reaches the end of the binlog"
        )
    schemas = current_schemas(session)
    for name in names:
        entry = schemas.tables.get(name)
        if not isinstance(entry, Table):
            raise SchemaError(f"the server has no table {name} to learn")
        history = history.relearned(entry)
    return _stored(endpoints, history, history.until)


def learned(
    session: Session, server_uuid: str, start: BinlogCoordinates, at_once: StatementReader | None = None
) -> SchemaHistory:
    """The history from ``start`` to the head, learned from `information_schema`.

    What that says is right at the head, if no definition was logged while it was read: that is looked up in the binlog,
    and read again otherwise. Between ``start`` and there each statement of the binlog is looked at: a table that none
    touched was always as it is now. One that was created there did not exist before; one that was altered is not known
    before its last definition, so rows of it without column names stop the run with a SchemaError that says so.

    Raises SchemaError when definitions do not cease while it reads.
    """
    collations = collation_names(session)
    server = server_of(session)
    for _ in range(_TRIES):
        before = source.head(session).coordinates
        schemas = current_schemas(session)
        head = source.head(session).coordinates
        during = [
            read_logged(statement, server, collations) for statement in statements(session, server_uuid, before, head)
        ]
        if not any(statement.kind in (Kind.DEFINITION, Kind.TRUNCATE) for statement in during):
            break
    else:
        raise SchemaError(
            f"the schemas of {session.connection} changed {_TRIES} times while they were read from information_schema, "
            "so that nothing says to which coordinates they belong. Run again when fewer definitions are executed."
        )
    logged = list(statements(session, server_uuid, start, before, at_once))
    history = _followed(
        SchemaHistory(server_uuid, start, start, SchemaTimeline(schemas), collations), logged, frozenset()
    )
    wrong = frozenset(_doubtful(history, schemas, logged))
    if wrong:
        history = _followed(replace(history, timeline=SchemaTimeline(schemas)), logged, wrong)
    history = replace(history, until=before)
    for name, entry in schemas.tables.items():
        if isinstance(entry, Table) and history.timeline.latest.tables.get(name) != entry:
            history = history.relearned(entry)
    return replace(history, until=start)


def _followed(history: SchemaHistory, logged: list[Statement], unknown: frozenset[TableName]) -> SchemaHistory:
    """``history``, whose timeline has the schemas of now, taken back before ``logged`` and moved through them."""
    initial = _initial(history.timeline.initial, logged, history, unknown)
    history = replace(history, timeline=SchemaTimeline(initial))
    for statement in logged:
        history = history.advance(statement)
    return history


def _doubtful(history: SchemaHistory, now: Schemas, logged: list[Statement]) -> Iterator[TableName]:
    """Tables taken as made by a CREATE TABLE IF NOT EXISTS that must have been there before: the end does not fit."""
    for statement in logged:
        change = history.read(statement).change
        if isinstance(change, CreateTable | CreateTableLike) and change.if_not_exists:
            entry, followed = now.tables.get(change.name), history.timeline.latest.tables.get(change.name)
            if entry is not None and not _reads_like(entry, followed):
                yield change.name


def _reads_like(entry: Entry, other: Entry | None) -> bool:
    """Whether both know a table's columns, and the same: a default may be spelled in two ways."""
    if not isinstance(entry, Table) or not isinstance(other, Table):
        return entry == other
    same = (entry.collation, entry.generated_key) == (other.collation, other.generated_key)
    return same and entry.schema.reads_like(other.schema)


def statements(
    session: Session,
    server_uuid: str,
    start: BinlogCoordinates,
    end: BinlogCoordinates,
    at_once: StatementReader | None = None,
) -> Iterator[Statement]:
    """The statements that are logged between two coordinates, as the scout lists them."""
    if start == end:
        return
    window = Window("schemas", 1, server_uuid, start, end, "", "", 0)
    pieces = list(whole_file_slices(window, source.binlog_files(session)))
    is_much = len(pieces) > 1 and sum(piece.size_bytes for piece in pieces) > _AT_ONCE_FROM_BYTES
    if is_much and at_once is not None:
        yield from at_once(pieces)
        return
    from changefeed.binlog.search.scout import scout  # most runs read none of them here: it loads the kernels

    binlogs = ServerBinlogs(session)
    for piece in pieces:
        yield from scout(binlogs.chunks(piece.file, piece.start, piece.end), piece, 1 << 62).statements


def _initial(
    schemas: Schemas, logged: list[Statement], history: SchemaHistory, unknown: frozenset[TableName]
) -> Schemas:
    """The schemas before the first of ``logged``: those of now, without what the statements made or changed."""
    tables = dict(schemas.tables)
    databases = dict(schemas.databases)
    views = set(schemas.views)
    seen: set[TableName] = set()
    for statement in logged:
        read = history.read(statement)
        if isinstance(read.change, CreateView):
            views.discard(read.change.name)
        if read.kind is not Kind.DEFINITION:
            continue
        if isinstance(read.change, CreateDatabase):
            databases.pop(read.change.name, None)
        for name in read.tables:
            if name in seen:
                continue
            seen.add(name)
            tables.pop(name, None)
            made = isinstance(read.change, CreateTable | CreateTableLike) and read.change.name == name
            if not made or name in unknown:
                at = f"{statement.file}:{statement.position}"
                tables[name] = UnknownTable(name, f"it was changed at {at}, before its columns were learned")
    return replace(schemas, tables=tables, databases=databases, views=frozenset(views))
