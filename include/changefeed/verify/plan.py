"""The plan of a comparison: what the server has to compare, and in which chunks it is read."""

from __future__ import annotations

import random
from dataclasses import dataclass

from changefeed.kafka.topics import compacted_topics
from changefeed.model.connection import MysqlConnection
from changefeed.model.key_range import KeyRange
from changefeed.model.table_pattern import matches_any
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.rights import known_tables, missing_rights
from changefeed.pipeline.topics import captured_routes
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.source.mysql import source
from changefeed.source.mysql.preflight import unreadable as unreadable_there
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey
from changefeed.verify.job import CHUNK_ROWS, TableChunk, VerifyJob
from changefeed.verify.positions import standing
from changefeed.verify.read_rows import views_of
from changefeed.verify.tables import JudgedTable, tables_of


@dataclass(frozen=True)
class VerifyPlan:
    """A comparison that can begin: the job, and the chunks that are read. ``chunk_count`` is how many there are."""

    job: VerifyJob
    chunks: tuple[TableChunk, ...]
    chunk_count: int


def plan_verify(
    connections: PipelineConnections, request: VerifyRequest, *, chunk_rows: int = CHUNK_ROWS
) -> VerifyPlan:
    """Which tables and chunks are compared. Reads keys of the server, and nothing else of its rows.

    Raises SettingsError where no table matches, and for a follower that follows another pipeline or none.
    """
    pipeline, kafka = connections.pipeline, connections.kafka
    server = connections.mysql
    if request.follower:
        server = MysqlConnection.from_uri(connections.lookup(request.follower), connections.patience)
    with connections.session() as session, Session(server) as compared:
        source_uuid, begun = source.server_uuid(session), source.head(session).coordinates
        routes = captured_routes(pipeline, session, sequences=False)
        unreadable = missing_rights(connections, session, known_tables(connections), request.tables)
        names: set[tuple[str, str]] = set()
        if request.follower:
            stands = standing(compared, pipeline.name)
            source_uuid, begun = stands.server_uuid, stands.coordinates
            routes = {name: route for name, route in routes.items() if stands.follows(name[0])}
            its = captured_routes(pipeline, compared, sequences=False)
            names = {name for name in {*routes, *its} if stands.follows(name[0]) and _is_asked(request, *name)}
            unreadable |= {".".join(name): reason for name, reason in unreadable_there(compared, routes).items()}
        compacted = compacted_topics(kafka, (route.topic for route in routes.values()))
        tables = tables_of(pipeline, routes, compared, request.tables, compacted, unreadable)
        log = connections.commit_log()
        views = views_of(log.read_all() if log.exists() else {}, pipeline.name, tables.judged, begun)
        uuid = source.server_uuid(compared)
        chunks: list[TableChunk] = []
        for table in tables.judged:
            chunks += _chunks(compared, table, len(chunks), chunk_rows)
    count = len(chunks)
    if request.sample_percent < 100:
        chunks = random.sample(chunks, max(1, count * request.sample_percent // 100)) if chunks else []
    job = VerifyJob(
        connections,
        tables,
        server,
        uuid,
        source_uuid,
        str(begun),
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


def _chunks(session: Session, table: JudgedTable, first: int, rows: int) -> list[TableChunk]:
    """Ranges of the primary key, each of about ``rows`` rows; a table without one is read in a single SELECT, as are
    rows that are counted: each of their chunks has a moment of its own, and the same row may be in several."""
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
