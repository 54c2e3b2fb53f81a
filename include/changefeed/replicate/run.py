"""A run: a follower is brought from its position to the pipeline's low watermark."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from changefeed.connection import MysqlConnection
from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl.session import Flavour, Server
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import FollowerError, SettingsError
from changefeed.kafka.commit_log import NOTHING_KNOWN, CommitLogState
from changefeed.kafka.read_record import AllReadRecord, TableReadRecord
from changefeed.kafka.schema_log import schema_changes_topic
from changefeed.mysql.follower_session import FollowerSession
from changefeed.pipelines.follower_settings import SESSIONS
from changefeed.pipelines.replayable import check_replayable
from changefeed.replicate.applier import Applier
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.fill_state import FillState
from changefeed.replicate.filler import Filler
from changefeed.replicate.filling import Filling
from changefeed.replicate.left_out import LeftOut
from changefeed.replicate.position import FollowerPosition, PositionTable
from changefeed.replicate.read_ahead import read_ahead
from changefeed.replicate.sealed import first_start, nothing_new, sealed_from
from changefeed.replicate.statements import Statements
from changefeed.replicate.stream import Partitions, partitions_of, source_blocks
from changefeed.replicate.table_rows import TableRows
from changefeed.runs.schema_history import load_history

_MARIADB_UUID = "00000000-0000-0000-0000-"
"""What the names of MariaDB servers begin with (`mysql.source.server_uuid`)."""
_LOGS_CASCADES = (9, 6)
"""The version from which MySQL's binlog has what foreign keys do."""


@dataclass(frozen=True)
class Replicated:
    """A follower's way in one run: from where to where, the row changes and the definitions that were applied."""

    start: BinlogCoordinates
    end: BinlogCoordinates
    rows: int
    definitions: int
    statements: int = 0
    """Changes in statement format."""
    waiting: tuple[str, ...] = ()
    """Tables that are not the source's yet, as rows of them are still to come with a snapshot."""


def replicate(
    endpoints: Endpoints,
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
    pipeline = endpoints.pipeline
    check_replayable(pipeline)
    if (follower.host, follower.port) == (endpoints.mysql.host, endpoints.mysql.port):
        raise SettingsError(f"the follower is the source of pipeline {pipeline.name!r} itself, at {follower}")
    log = endpoints.commit_log()
    state = log.read() if log.exists() else NOTHING_KNOWN
    with FollowerSession(follower) as session:
        session.lock(f"changefeed.{pipeline.name}"[:64])
        positions = PositionTable(session, pipeline.name)
        position = positions.load()
        first = position is None
        if position is None:
            position = _first(state, pipeline.name, start, databases)
            if start is None and pipeline.start == "snapshot":
                position = replace(position, fill=FillState(awaits=True))
        elif start is not None and start != position.coordinates:
            raise SettingsError(
                f"the follower is at {position.coordinates} already, and --from says {start}: leave it out. To begin "
                "anew, copy the source's tables and delete the pipeline's row in changefeed.followed of the follower."
            )
        elif tuple(databases) != position.databases:
            raise SettingsError(
                f"the follower follows {_listed(position.databases)} since its first run, and this one is to follow "
                f"{_listed(databases)}: changes of others are passed over by now. Name the same databases."
            )
        server = _server(session, position.server_uuid)
        if first:
            positions.begin(position)
        partitions = partitions_of(endpoints, state)
        # Read behind the partitions' ends: of all rows of snapshots that are before them is known what they are for.
        read = log.read()
        filling = Filling(
            session,
            position.fill,
            {record.table: record for record in read.of(TableReadRecord)},
            next(iter(read.of(AllReadRecord)), None),
            position.coordinates,
            lambda name: not databases or name in databases,
        )
        filling.drop_begun()
        batches = BatchSessions()
        applier = Applier(
            session,
            batches,
            positions,
            position,
            pipeline.message_format(0).style,
            server,
            not server.is_mariadb and _version(endpoints, state, server) >= _LOGS_CASCADES,
            filling,
            Statements(batches, server, runs_statements, pipeline.tables.matches),
            LeftOut(session, pipeline.tables.matches),
            tuple(databases),
            schema_changes_topic(pipeline.name, pipeline.topics.suffix),
        )
        applier.settle_definition()
        filler = Filler(session, applier, filling, TableRows(endpoints.kafka))
        return _applied(endpoints, state, partitions, filler, sessions)


def _applied(
    endpoints: Endpoints, state: CommitLogState, partitions: Partitions, filler: Filler, sessions: int
) -> Replicated:
    applier, filling = filler.applier, filler.filling
    start = applier.position.coordinates
    stretch = sealed_from(state, start, applier.position.server_uuid)
    reads = None
    if filling.is_under_way:
        stretch, reads = stretch or nothing_new(state, start), filling.state.reads
        if (held_at := filling.held_at) is not None and held_at < stretch.watermark:
            stretch = replace(stretch, watermark=held_at)
    if stretch is not None:
        offsets = applier.position.offsets
        if filling.is_under_way:
            sessions = 1  # what is there, and what is not, is known in the source's order only
        with ExitStack() as opened:
            writers = [opened.enter_context(FollowerSession(applier.session.connection)) for _ in range(sessions)]
            blocks = opened.enter_context(source_blocks(endpoints, partitions, stretch, offsets, reads))
            opened.enter_context(applier.batches.running(writers))
            with read_ahead(blocks) as parts:
                for part in parts:
                    filler.take(part.block, stretch, part.offsets)
            filler.finish(stretch.watermark, blocks.offsets)
    applied = applier.applied
    end = applier.position.coordinates
    return Replicated(start, end, applied.rows, applied.definitions, applied.statements, filling.waiting)


def _first(
    state: CommitLogState, pipeline: str, start: BinlogCoordinates | None, databases: Sequence[str]
) -> FollowerPosition:
    at = start or first_start(state, pipeline)
    if not state.seals:
        raise SettingsError(f"pipeline {pipeline!r} has published nothing yet: run it before it can be followed")
    uuid = state.seals[max(state.seals)].window.server_uuid
    return FollowerPosition(pipeline, uuid, at, tuple(databases), {})


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


def _version(endpoints: Endpoints, state: CommitLogState, follower: Server) -> tuple[int, int]:
    """The source's, by its stored schemas; the follower's where there are none."""
    history = load_history(endpoints, state)
    return (history.server if history else follower).version[:2]


def _listed(databases: Sequence[str]) -> str:
    return ", ".join(databases) or "all databases"
