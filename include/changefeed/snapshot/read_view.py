"""The view of its rows that a chunk is read in, and where in the binlog it stands.

What a view shows must hold all that the pipeline has published when the round begins. A server moves the end of its
binlog before a transaction can be seen, so the end of the binlog alone proves nothing: MariaDB says of a snapshot where
it stands; MySQL says which GTIDs are executed, those that can be seen; without GTIDs time has to do.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from changefeed.binlog.row_reader import AsOf
from changefeed.binlog.search.finder import Finder
from changefeed.errors import SourceUnavailableError
from changefeed.kafka.commit_log.snapshots import PlannedChunk
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.identifier import quoted
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session

_QUIET_SECONDS = 60.0
"""How long a moment without commits is waited for, for the one view of a table without a key."""


@dataclass(frozen=True)
class ReadView:
    """``as_of`` is what the messages of its rows say. No table definition that is logged behind its coordinates is of
    before the view, and the other way round."""

    as_of: AsOf


def read_view(session: Session, base: BinlogCoordinates, chunk: PlannedChunk) -> ReadView:
    """Begin the transaction that ``chunk`` is read in; its table cannot be defined anew while it lasts.

    Raises SourceUnavailableError where the view does not hold all that was logged before ``base``, or no exact one can
    be had for a table without a key; it can be tried again.
    """
    session.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    hold = f"SELECT 1 FROM {quoted(chunk.database)}.{quoted(chunk.table)} LIMIT 0"  # its definition, to the end
    if session.is_mariadb:
        at = _snapshot(session)
        if at < base:
            raise SourceUnavailableError(f"a view of {session.connection} stands at {at}, before {base}: read it again")
        session.rows(hold)
    elif not chunk.has_key:
        at = _quiet_snapshot(session)
        session.rows(hold)
    else:
        session.rows("START TRANSACTION")
        session.rows(hold)
        at = source.head(session).coordinates
    seconds, server_id = session.row("SELECT UNIX_TIMESTAMP(), @@server_id")
    return ReadView(AsOf(at, int(seconds), int(server_id)))


def _snapshot(session: Session) -> BinlogCoordinates:
    """Begin a consistent snapshot on MariaDB, which says where in the binlog it stands.

    https://mariadb.com/docs/server/reference/sql-statements/transactions/start-transaction
    """
    session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = {str(name).lower(): value for name, value in session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    return BinlogCoordinates(str(status["binlog_snapshot_file"]), int(status["binlog_snapshot_position"]))


def _quiet_snapshot(session: Session) -> BinlogCoordinates:
    """Begin a consistent snapshot on MySQL at a moment when nothing is committed, so that its coordinates are exact."""
    deadline = time.monotonic() + _QUIET_SECONDS
    while True:
        before = source.head(session)
        session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        if source.head(session) == before and _is_visible(session, before):
            return before.coordinates
        session.rows("COMMIT")
        if time.monotonic() > deadline:
            raise SourceUnavailableError(
                f"{session.connection}: in {_QUIET_SECONDS:g} seconds there was no moment without a commit, at which "
                "a view of a table without a primary key has exact coordinates. Run again when fewer are made."
            )


def _is_visible(session: Session, head: source.Head) -> bool:
    """Whether all that was logged before the head could be seen when it was read; without GTIDs nothing says it."""
    if not head.gtids:
        return True
    logged = Finder(ServerBinlogs(session)).at(head.coordinates).gtids
    return GtidSet.parse(head.gtids).contains(GtidSet.parse(logged))
