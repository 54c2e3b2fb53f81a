"""Begins the consistent view in which a chunk is read, and finds the view's position in the binlog.

A view must include all changes that the pipeline has published when the round begins. A server writes a transaction to
its binlog before the transaction becomes visible. So a view may miss transactions that are in the binlog:
- MariaDB reports the binlog position of a view.
- MySQL with GTIDs reports the executed GTIDs, which are visible.
- MySQL without GTIDs reports neither, so the snapshot waits some seconds.
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
from changefeed.model.identifier import quote_name
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session

_QUIET_SECONDS = 60.0
"""The maximum time to wait for a moment without commits, which the view of a table without a key needs."""


@dataclass(frozen=True)
class ReadView:
    """A view. Messages of its rows have the position and time ``as_of``.

    DDL of the chunk's table that is logged before the coordinates of ``as_of`` took effect before the view began, and
    DDL that is logged after them took effect after the view.
    """

    as_of: AsOf


def read_view(session: Session, base: BinlogCoordinates, chunk: PlannedChunk) -> ReadView:
    """Begin the transaction in which ``chunk`` is read, and return its view. It blocks DDL of the table until it ends.

    Raises SourceUnavailableError if the view does not include all changes before ``base``, or if no moment without
    commits is found for a table without a key. Both can be retried.
    """
    session.rows("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    hold = f"SELECT 1 FROM {quote_name(chunk.database)}.{quote_name(chunk.table)} LIMIT 0"  # blocks DDL
    if session.is_mariadb:
        at = _snapshot(session)
        if at < base:
            raise SourceUnavailableError(
                f"expected a view of {session.connection} at {base} or later, found {at}: read the chunk again"
            )
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
    """Begin a consistent snapshot on MariaDB, and return its position in the binlog.

    https://mariadb.com/docs/server/reference/sql-statements/transactions/start-transaction
    """
    session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    status = {str(name).lower(): value for name, value in session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'")}
    return BinlogCoordinates(str(status["binlog_snapshot_file"]), int(status["binlog_snapshot_position"]))


def _quiet_snapshot(session: Session) -> BinlogCoordinates:
    """Begin a consistent snapshot on MySQL at a moment without commits, and return its exact coordinates."""
    deadline = time.monotonic() + _QUIET_SECONDS
    while True:
        before = source.head(session)
        session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        if source.head(session) == before and _is_visible(session, before):
            return before.coordinates
        session.rows("COMMIT")
        if time.monotonic() > deadline:
            raise SourceUnavailableError(
                f"{session.connection}: expected a moment without a commit within {_QUIET_SECONDS:g} seconds, at which "
                "a view of a table without a primary key has exact coordinates, found none. Run again when there are "
                "fewer commits."
            )


def _is_visible(session: Session, head: source.Head) -> bool:
    """Whether all transactions before ``head`` were visible when ``head`` was read. True without GTIDs."""
    if not head.gtids:
        return True
    logged = Finder(ServerBinlogs(session)).at(head.coordinates).gtids
    return GtidSet.parse(head.gtids).contains(GtidSet.parse(logged))
