"""Runs a replication: applies the pipeline's records from the follower's position to the end of the sealed windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import FollowerError, SettingsError
from changefeed.formats.format import envelope_reader
from changefeed.kafka.commit_log.log import EMPTY_STATE, CommitLogState
from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import schema_changes_topic
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_history import load_history
from changefeed.replicate.applier import AppliedCounts, Applier
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_runner import DdlRunner
from changefeed.replicate.fill_state import FillState
from changefeed.replicate.filler import Filler, TableCreator, TableRows
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import MissingTables
from changefeed.replicate.position_table import FollowerPosition, PositionTable
from changefeed.replicate.refills import PublishedDdl, Refills, TablesToFillError, drop_tables
from changefeed.replicate.scope import Scope
from changefeed.replicate.sealed_range import SealedRange, empty_range, pipeline_start, read_sealed_range
from changefeed.replicate.single_rows import UnwritableRowError
from changefeed.replicate.statements import Statements
from changefeed.replicate.stream import Partitions, partitions_of, read_ahead, source_blocks
from changefeed.settings.limits import check_replayable
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import DEFAULT_SESSIONS
from changefeed.source.mysql.follower_session import FollowerSession

_MARIADB_UUID = "00000000-0000-0000-0000-"
"""The beginning of the UUIDs that identify MariaDB servers (`source.mysql.source.server_uuid`)."""
_LOGS_CASCADES = (9, 6)
"""The first MySQL version whose binlog has the rows that foreign keys change."""


@dataclass(frozen=True)
class ReplicationResult:
    """The result of a run: the positions before and after it, and the numbers of applied changes.

    ``rows`` counts row changes, ``tables`` those of each "database.table", ``definitions`` DDL statements. Both
    positions are None if the pipeline has published nothing yet. The command prints the fields as JSON.
    """

    start: BinlogCoordinates | None
    end: BinlogCoordinates | None
    rows: int = 0
    definitions: int = 0
    statements: int = 0
    """The number of changes in statement format that were applied."""
    waiting: tuple[str, ...] = ()
    """The tables that are not complete yet, because they wait for a snapshot or for its rows."""
    tables: Mapping[str, int] = field(default_factory=dict)


def replicate(
    connections: PipelineConnections,
    follower: MysqlConnection,
    databases: Sequence[str] = (),
    start: BinlogCoordinates | None = None,
    sessions: int = DEFAULT_SESSIONS,
    runs_statements: bool = False,
    counts: AppliedCounts | None = None,
) -> ReplicationResult:
    """Apply all sealed changes after the position of ``follower`` to it, move the position, and return the result.

    - ``start``: the position at which the first run begins. The follower must be a copy of the source at this position.
      Without it, the first run begins at the start of the pipeline, before its tables were created.
    - ``databases``: the databases to follow; all if it is empty.
    - ``sessions``: the number of sessions that write rows. They commit in the source's order.
    - ``runs_statements``: whether to run changes in statement format that are safe. The caller must know that no
      triggers or functions took part in them.
    - ``counts``: has the numbers of applied changes while the run applies them.

    After a kill, the next run continues, and neither skips nor repeats a change. Raises SettingsError if the pipeline
    or the follower does not support such a run, and what `Applier`, `SourceBlocks`, `read_sealed_range` and
    `PositionTable` raise.
    """
    pipeline = connections.pipeline
    check_replayable(pipeline)
    if (follower.host, follower.port) in {(host.host, host.port) for host in connections.source_hosts}:
        raise SettingsError(f"the follower is the source of pipeline {pipeline.name!r} itself, at {follower}")
    log = connections.commit_log()
    state = log.read() if log.exists() else EMPTY_STATE
    with FollowerSession(follower) as session:
        session.lock(f"changefeed.{pipeline.name}"[:64])
        positions = PositionTable(session, pipeline.name)
        known = positions.load()
        if known is not None:
            _check_same(known, start, databases)
        elif start is None and not state.seals:
            return ReplicationResult(None, None)
        position = known or _first_position(state, pipeline, start, databases)
        server = _server(session, position.server_uuid)
        if known is None:
            positions.begin(position)
        scope = Scope(server, tuple(pipeline.tables.include), position.databases, tuple(pipeline.tables.exclude))
        logs_cascades = not server.is_mariadb and _version(connections, state, server) >= _LOGS_CASCADES
        start, counts = position.coordinates, counts or AppliedCounts()
        emptied: set[tuple[str, str]] = set()
        topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
        while True:
            partitions = partitions_of(connections, state)
            # Read the commit log after the partitions' ends: then it has the records of all snapshot rows before these.
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
            refills = Refills(commits, tables, PublishedDdl(connections.kafka, topic, server).since)
            filler = _filler(connections, refills, counts, runs_statements=runs_statements)
            try:
                try:
                    done = _apply_sealed_range(connections, state, partitions, filler, sessions)
                except UnwritableRowError as error:
                    refills.fill_corrected_row(error)
                return replace(done, start=start)
            except TablesToFillError as error:
                if emptied.issuperset(error.names):
                    raise FollowerError(
                        f"{', '.join(map(str, error.names))} of the follower would be dropped twice in one run, "
                        "to be filled by a snapshot: nothing more was done. Drop it there by hand, and run again."
                    ) from error
                emptied.update(error.names)
                counts.tables.subtract(commits.uncommitted)  # these are rolled back
                session.roll_back()
                session.apply_settings()
                position = drop_tables(session, positions, error.names)


def _check_same(position: FollowerPosition, start: BinlogCoordinates | None, databases: Sequence[str]) -> None:
    """Raises SettingsError if ``start`` is not the follower's position, or ``databases`` are not the first run's."""
    if start is not None and start != position.coordinates:
        raise SettingsError(
            f"the follower is at {position.coordinates} already, and --from says {start}: leave it out. To start "
            "over, copy the source's tables and delete the pipeline's row in changefeed.followed of the follower."
        )
    if tuple(databases) != position.databases:
        raise SettingsError(
            f"the follower follows {_join_names(position.databases)} since its first run, and this run is to follow "
            f"{_join_names(databases)}: changes of other databases were skipped. Name the same databases."
        )


def _filling(session: FollowerSession, position: FollowerPosition, read: CommitLogState, scope: Scope) -> Filling:
    """The tables that snapshots fill, according to the commit log. Drops tables that an earlier run began to create."""
    filling = Filling(
        session,
        position.fill,
        {record.table: record for record in read.of(TableReadRecord)},
        next(iter(read.of(AllReadRecord)), None),
        position.coordinates,
        scope,
    )
    TableCreator(filling).drop_begun()
    return filling


def _filler(
    connections: PipelineConnections, refills: Refills, counts: AppliedCounts, *, runs_statements: bool
) -> Filler:
    """The filler of a run with its applier. Finishes DDL that an earlier run began."""
    pipeline, tables = connections.pipeline, refills.tables
    commits, server = tables.commits, tables.scope.server
    reader = envelope_reader(pipeline.format.name, connections.routes.format(0))
    assert reader.envelopes is not None
    topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
    ddl_runner = DdlRunner(commits, tables, server, refills)
    ddl_runner.finish_begun_ddl()
    statements = Statements(commits.batches, server, runs_statements, pipeline.tables.matches, refills)
    reads_texts = reader.finder is not None
    applier = Applier(commits, tables, ddl_runner, reader.envelopes, statements, topic, reads_texts, counts)
    return Filler(applier, TableRows(connections.kafka, reader.envelopes))


def _apply_sealed_range(
    connections: PipelineConnections, state: CommitLogState, partitions: Partitions, filler: Filler, sessions: int
) -> ReplicationResult:
    commits, filling = filler.applier.commits, filler.filling
    start = commits.position.coordinates
    sealed_range = read_sealed_range(state, start, commits.position.server_uuid)
    reads = None
    if filling.is_under_way:
        sealed_range, reads = sealed_range or empty_range(state, start), filling.state.reads
        if (blocked_at := filling.blocked_at) is not None and blocked_at < sealed_range.watermark:
            sealed_range = replace(sealed_range, watermark=blocked_at)
    if sealed_range is not None:
        filler.applier.counts.expected_rows = _rows_in(state, sealed_range)
        offsets = commits.position.offsets
        if filling.is_under_way:
            sessions = 1  # missing rows are known only if changes are applied one after the other
        with ExitStack() as opened:
            writers = [opened.enter_context(FollowerSession(commits.session.connection)) for _ in range(sessions)]
            blocks = opened.enter_context(source_blocks(connections, partitions, sealed_range, offsets, reads))
            opened.enter_context(commits.batches.running(writers))
            with read_ahead(blocks) as parts:
                for part in parts:
                    filler.take(part.block, sealed_range, part.offsets)
            filler.finish(sealed_range.watermark, blocks.offsets)
    counts = filler.applier.counts
    end = commits.position.coordinates
    tables = {f"{database}.{table}": rows for (database, table), rows in sorted(counts.tables.items()) if rows}
    return ReplicationResult(start, end, counts.rows, counts.ddl_statements, counts.statements, filling.waiting, tables)


def _rows_in(state: CommitLogState, sealed_range: SealedRange) -> int:
    """The row changes of the windows in ``sealed_range``, as their manifests have them, also those that are skipped."""
    in_range = (seal for seal in state.seals.values() if seal.window.server_uuid == sealed_range.server_uuid)
    return sum(seal.row_count for seal in in_range if sealed_range.start < seal.window.head <= sealed_range.watermark)


def _first_position(
    state: CommitLogState, pipeline: Pipeline, start: BinlogCoordinates | None, databases: Sequence[str]
) -> FollowerPosition:
    at = start or pipeline_start(state, pipeline.name)
    if not state.seals:
        raise SettingsError(f"pipeline {pipeline.name!r} has published nothing yet: run it before it can be followed")
    uuid = state.seals[max(state.seals)].window.server_uuid
    fill = FillState(awaits_snapshot=start is None and pipeline.start == "snapshot")
    return FollowerPosition(pipeline.name, uuid, at, tuple(databases), {}, fill=fill)


def _server(session: FollowerSession, source_uuid: str) -> Server:
    """The kind and version of the follower, which determine how statements are parsed.

    Raises FollowerError if the source is of another kind, and SettingsError if the follower is the source.
    """
    is_mariadb = source_uuid.startswith(_MARIADB_UUID)
    if session.is_mariadb != is_mariadb:
        expected, found = ("MariaDB", "MySQL") if is_mariadb else ("MySQL", "MariaDB")
        raise FollowerError(
            f"expected a follower of {expected}, as the source is, found {found}: neither runs all DDL of the other. "
            "Nothing was applied. Take a follower of the source's kind."
        )
    if not is_mariadb and session.row("SELECT @@server_uuid")[0] == source_uuid:
        raise SettingsError(f"the follower is the source itself, server {source_uuid}")
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in session.version.split("-")[0].split(".")]
    major, minor, patch = (*numbers, 0, 0)[:3]
    lower = int(session.variable("lower_case_table_names") or 0)
    return Server(Flavour.MARIADB if is_mariadb else Flavour.MYSQL, (major, minor, patch), lower)


def _version(connections: PipelineConnections, state: CommitLogState, follower: Server) -> tuple[int, int]:
    """The source's version according to its stored schemas; the follower's version if there are none."""
    history = load_history(connections, state)
    return (history.server if history else follower).version[:2]


def _join_names(databases: Sequence[str]) -> str:
    return ", ".join(databases) or "all databases"
