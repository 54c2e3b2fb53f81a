"""A run: a follower is brought from its position to the pipeline's low watermark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import FollowerError, SettingsError
from changefeed.formats.format import envelope_reader
from changefeed.kafka.commit_log.log import NOTHING_KNOWN, CommitLogState
from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import schema_changes_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_history import load_history
from changefeed.replicate.applier import Applied, Applier
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.commits import Commits
from changefeed.replicate.definition_runner import DefinitionRunner
from changefeed.replicate.fill_state import FillState
from changefeed.replicate.filler import Filler, TableMaker, TableRows
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import MissingTables
from changefeed.replicate.position_table import FollowerPosition, PositionTable
from changefeed.replicate.refills import PublishedDefinitions, Refills, TablesToFillError, dropped
from changefeed.replicate.scope import Scope
from changefeed.replicate.sealed import first_start, nothing_new, sealed_from
from changefeed.replicate.single_rows import UnwritableRowError
from changefeed.replicate.statements import Statements
from changefeed.replicate.stream import Partitions, partitions_of, read_ahead, source_blocks
from changefeed.settings.limits import check_replayable
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import SESSIONS
from changefeed.source.mysql.follower_session import FollowerSession

_MARIADB_UUID = "00000000-0000-0000-0000-"
"""What the names of MariaDB servers begin with (`source.mysql.source.server_uuid`)."""
_LOGS_CASCADES = (9, 6)
"""The version from which MySQL's binlog has what foreign keys do."""


@dataclass(frozen=True)
class Replicated:
    """A follower's way in one run: from where to where, the row changes and the definitions that were applied.

    Where it began is None as long as the pipeline has published nothing: the follower begins with its first window.
    """

    start: BinlogCoordinates | None
    end: BinlogCoordinates | None
    rows: int = 0
    definitions: int = 0
    statements: int = 0
    """Changes in statement format."""
    waiting: tuple[str, ...] = ()
    """Tables that are not the source's yet, as rows of them are still to come with a snapshot."""


def replicate(
    connections: PipelineConnections,
    follower: MysqlConnection,
    databases: Sequence[str] = (),
    start: BinlogCoordinates | None = None,
    sessions: int = SESSIONS,
    runs_statements: bool = False,
) -> Replicated:
    """Apply to ``follower`` what is sealed behind its position, and move that.

    The first run begins at ``start``, of which the follower has to be a copy; without it at the beginning of the
    pipeline, before its tables were made. ``databases`` are those that are followed, all where there are none. Rows are
    written by so many ``sessions``, which commit in the source's order. ``runs_statements`` says that no trigger and no
    function took part in the source's changes in statement format, so that they are run where they are safe.

    It may be killed anywhere: the next run goes on where it was, without a gap and without a repeat. Raises
    SettingsError where the pipeline or the follower cannot have such a run, and as `Applier`, `SourceRecords`,
    `sealed_from` and `PositionTable` do.
    """
    pipeline = connections.pipeline
    check_replayable(pipeline)
    if (follower.host, follower.port) == (connections.mysql.host, connections.mysql.port):
        raise SettingsError(f"the follower is the source of pipeline {pipeline.name!r} itself, at {follower}")
    log = connections.commit_log()
    state = log.read() if log.exists() else NOTHING_KNOWN
    with FollowerSession(follower) as session:
        session.lock(f"changefeed.{pipeline.name}"[:64])
        positions = PositionTable(session, pipeline.name)
        known = positions.load()
        if known is not None:
            _check_same(known, start, databases)
        elif start is None and not state.seals:
            return Replicated(None, None)
        position = known or _first(state, pipeline, start, databases)
        server = _server(session, position.server_uuid)
        if known is None:
            positions.begin(position)
        scope = Scope(server, tuple(pipeline.tables.include), position.databases, tuple(pipeline.tables.exclude))
        logs_cascades = not server.is_mariadb and _version(connections, state, server) >= _LOGS_CASCADES
        start, applied = position.coordinates, Applied()
        emptied: set[tuple[str, str]] = set()
        topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
        while True:
            partitions = partitions_of(connections, state)
            # Read behind the partitions' ends: what all rows of snapshots before them are for is known.
            filling = _filling(session, position, log.read(), scope)
            commits = Commits(session, BatchSessions(), positions, position, filling)
            tables = FollowerTables(
                commits,
                MissingTables(filling),
                connections.routes.format(0).style,
                logs_cascades,
                pipeline.tables.matches,
                scope,
            )
            refills = Refills(commits, tables, PublishedDefinitions(connections.kafka, topic, server).since)
            filler = _filler(connections, refills, applied, runs_statements=runs_statements)
            try:
                try:
                    done = _applied(connections, state, partitions, filler, sessions)
                except UnwritableRowError as error:
                    refills.fill_corrected(error)
                return replace(done, start=start)
            except TablesToFillError as error:
                if emptied.issuperset(error.names):
                    raise FollowerError(
                        f"{', '.join(map(str, error.names))} of the follower would be dropped again, to be filled: "
                        "nothing more was done. Drop it there by hand, and run again."
                    ) from error
                emptied.update(error.names)
                applied.rows -= min(commits.held, applied.rows)  # they are rolled back
                session.roll_back()
                session.settle()
                position = dropped(session, positions, error.names)


def _check_same(position: FollowerPosition, start: BinlogCoordinates | None, databases: Sequence[str]) -> None:
    """Raises SettingsError if a run is to begin elsewhere than at the follower's position, or has other databases."""
    if start is not None and start != position.coordinates:
        raise SettingsError(
            f"the follower is at {position.coordinates} already, and --from says {start}: leave it out. To begin "
            "anew, copy the source's tables and delete the pipeline's row in changefeed.followed of the follower."
        )
    if tuple(databases) != position.databases:
        raise SettingsError(
            f"the follower follows {_listed(position.databases)} since its first run, and this one is to follow "
            f"{_listed(databases)}: changes of others are passed over by now. Name the same databases."
        )


def _filling(session: FollowerSession, position: FollowerPosition, read: CommitLogState, scope: Scope) -> Filling:
    """The tables that snapshots fill, by the commit log; those that an earlier run began to create are dropped."""
    filling = Filling(
        session,
        position.fill,
        {record.table: record for record in read.of(TableReadRecord)},
        next(iter(read.of(AllReadRecord)), None),
        position.coordinates,
        scope,
    )
    TableMaker(filling).drop_begun()
    return filling


def _filler(connections: PipelineConnections, refills: Refills, applied: Applied, *, runs_statements: bool) -> Filler:
    """What applies records and counts them; a definition that an earlier run began is done."""
    pipeline, tables = connections.pipeline, refills.tables
    commits, server = tables.commits, tables.scope.server
    reader = envelope_reader(pipeline.format.name, connections.routes.format(0))
    assert reader.envelopes is not None
    topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
    definitions = DefinitionRunner(commits, tables, server, refills)
    definitions.finish_begun()
    statements = Statements(commits.batches, server, runs_statements, pipeline.tables.matches, refills)
    reads_texts = reader.finder is not None
    applier = Applier(commits, tables, definitions, reader.envelopes, statements, topic, reads_texts, applied)
    return Filler(applier, TableRows(connections.kafka, reader.envelopes))


def _applied(
    connections: PipelineConnections, state: CommitLogState, partitions: Partitions, filler: Filler, sessions: int
) -> Replicated:
    commits, filling = filler.applier.commits, filler.filling
    start = commits.position.coordinates
    stretch = sealed_from(state, start, commits.position.server_uuid)
    reads = None
    if filling.is_under_way:
        stretch, reads = stretch or nothing_new(state, start), filling.state.reads
        if (held_at := filling.held_at) is not None and held_at < stretch.watermark:
            stretch = replace(stretch, watermark=held_at)
    if stretch is not None:
        offsets = commits.position.offsets
        if filling.is_under_way:
            sessions = 1  # what is there, and what is not, is known in the source's order only
        with ExitStack() as opened:
            writers = [opened.enter_context(FollowerSession(commits.session.connection)) for _ in range(sessions)]
            blocks = opened.enter_context(source_blocks(connections, partitions, stretch, offsets, reads))
            opened.enter_context(commits.batches.running(writers))
            with read_ahead(blocks) as parts:
                for part in parts:
                    filler.take(part.block, stretch, part.offsets)
            filler.finish(stretch.watermark, blocks.offsets)
    applied = filler.applier.applied
    end = commits.position.coordinates
    return Replicated(start, end, applied.rows, applied.definitions, applied.statements, filling.waiting)


def _first(
    state: CommitLogState, pipeline: Pipeline, start: BinlogCoordinates | None, databases: Sequence[str]
) -> FollowerPosition:
    at = start or first_start(state, pipeline.name)
    if not state.seals:
        raise SettingsError(f"pipeline {pipeline.name!r} has published nothing yet: run it before it can be followed")
    uuid = state.seals[max(state.seals)].window.server_uuid
    fill = FillState(awaits=start is None and pipeline.start == "snapshot")
    return FollowerPosition(pipeline.name, uuid, at, tuple(databases), {}, fill=fill)


def _server(session: FollowerSession, source_uuid: str) -> Server:
    """The follower as whose statements are read. Raises FollowerError where it is none of the source's kind."""
    is_mariadb = source_uuid.startswith(_MARIADB_UUID)
    if session.is_mariadb != is_mariadb:
        wanted, found = ("MariaDB", "MySQL") if is_mariadb else ("MySQL", "MariaDB")
        raise FollowerError(
            f"the source is a server of {wanted}, and the follower one of {found}: neither runs all definitions of the "
            "other. Take a follower of the source's kind."
        )
    if not is_mariadb and session.row("SELECT @@server_uuid")[0] == source_uuid:
        raise SettingsError(f"the follower is the source itself, server {source_uuid}")
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in session.version.split("-")[0].split(".")]
    major, minor, patch = (*numbers, 0, 0)[:3]
    lower = int(session.variable("lower_case_table_names") or 0)
    return Server(Flavour.MARIADB if is_mariadb else Flavour.MYSQL, (major, minor, patch), lower)


def _version(connections: PipelineConnections, state: CommitLogState, follower: Server) -> tuple[int, int]:
    """The source's, by its stored schemas; the follower's where there are none."""
    history = load_history(connections, state)
    return (history.server if history else follower).version[:2]


def _listed(databases: Sequence[str]) -> str:
    return ", ".join(databases) or "all databases"
