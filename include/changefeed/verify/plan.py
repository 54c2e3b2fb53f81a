"""Plans a comparison: selects its tables, and divides them into chunks."""

from __future__ import annotations

import random
from dataclasses import dataclass

from changefeed.kafka.commit_log.log import EMPTY_STATE
from changefeed.kafka.topics import compacted_topics
from changefeed.model.key_range import KeyRange
from changefeed.model.table_pattern import matches_any
from changefeed.pipeline.connections import PipelineConnections, mysql_connection
from changefeed.pipeline.parking import describe_parked
from changefeed.pipeline.rights import known_tables, missing_rights
from changefeed.pipeline.topics import captured_routes
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.source.mysql import source
from changefeed.source.mysql.preflight import unreadable as unreadable_there
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey
from changefeed.verify.job import CHUNK_ROWS, TableChunk, VerifyJob
from changefeed.verify.positions import read_follower_position
from changefeed.verify.read_rows import views_of
from changefeed.verify.tables import ComparedTable, select_tables


@dataclass(frozen=True)
class VerifyPlan:
    """The job of a comparison and the chunks to read. ``chunk_count`` is the number of all chunks, before sampling."""

    job: VerifyJob
    chunks: tuple[TableChunk, ...]
    chunk_count: int


def plan_verify(
    connections: PipelineConnections, request: VerifyRequest, *, chunk_rows: int = CHUNK_ROWS
) -> VerifyPlan:
    """Return the tables and chunks to compare. Reads only the keys of rows.

    Raises SettingsError if no table matches, or if the follower does not follow this pipeline.
    """
    pipeline, kafka = connections.pipeline, connections.kafka
    server = connections.mysql
    if request.follower:
        server = mysql_connection(request.follower, connections.lookup, connections.answer_limits)
    with connections.session() as session, Session(server) as server_session:
        source_uuid, start = source.server_uuid(session), source.head(session).coordinates
        routes = captured_routes(pipeline, session, sequences=False)
        unreadable = missing_rights(connections, session, known_tables(connections), request.tables)
        log = connections.commit_log()
        logged = log.read_all() if log.exists() else {}
        parked = describe_parked(logged.get(pipeline.name, EMPTY_STATE))
        unreadable |= {name: text for name, text in parked.items() if _is_asked(request, *name.split(".", 1))}
        names: set[tuple[str, str]] = set()
        if request.follower:
            position = read_follower_position(server_session, pipeline.name)
            source_uuid, start = position.server_uuid, position.coordinates
            routes = {name: route for name, route in routes.items() if position.follows(name[0])}
            # These routes include sequences.
            defined = {*captured_routes(pipeline, session), *captured_routes(pipeline, server_session)}
            names = {name for name in defined if position.follows(name[0]) and _is_asked(request, *name)}
            unreadable |= {".".join(name): reason for name, reason in unreadable_there(server_session, routes).items()}
        compacted = compacted_topics(kafka, (route.topic for route in routes.values()))
        tables = select_tables(pipeline, routes, server_session, request.tables, compacted, unreadable, names)
        views = views_of(logged, pipeline.name, tables.compared, start)
        uuid = source.server_uuid(server_session)
        chunks: list[TableChunk] = []
        for table in tables.compared:
            chunks += _chunks(server_session, table, len(chunks), chunk_rows)
    count = len(chunks)
    if request.sample_percent < 100:
        chunks = random.sample(chunks, max(1, count * request.sample_percent // 100)) if chunks else []
    job = VerifyJob(
        connections,
        tables,
        server,
        uuid,
        source_uuid,
        str(start),
        request.follower or "",
        sampled=len(chunks) < count,
        views=views,
        names=tuple(sorted(names)),
        wait_seconds=request.wait_seconds,
        deep=request.deep,
    )
    return VerifyPlan(job, tuple(chunks), count)


def _is_asked(request: VerifyRequest, database: str, table: str) -> bool:
    return not request.tables or matches_any(tuple(request.tables), database, table)


def _chunks(session: Session, table: ComparedTable, first: int, rows: int) -> list[TableChunk]:
    """Ranges of the primary key with about ``rows`` rows each.

    A table without a primary key, or whose rows are counted, is read by one SELECT. Chunks of it would be read at
    different moments, so a row could be in several of them.
    """
    key = None if table.without_key else TableKey.of(table.schema)
    if key is None or not key.is_walked:
        return [TableChunk(first, table.number)]
    chunks: list[TableChunk] = []
    after = None
    while True:
        upto = key.next_boundary(session, after, rows)
        where = f"FORCE INDEX (PRIMARY) WHERE {key.condition(KeyRange(after, upto))}"
        chunks.append(TableChunk(first + len(chunks), table.number, where))
        if upto is None:
            return chunks
        after = upto
