"""Announces a snapshot to followers in the pipeline's log: first its tables' DDL, later the published tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from changefeed.errors import PipelineBusyError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.kafka.commit_log.records import DependencyRecord, LogRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.limits import is_replayable
from changefeed.settings.message_rules import rules_digest
from changefeed.snapshot.announcement_records import (
    announce_tables,
    completed_records,
    named_databases,
    stale_records,
    with_position,
    without_table,
)
from changefeed.snapshot.changed_keys import ChangedKeys
from changefeed.snapshot.planning import SnapshotPlan
from changefeed.snapshot.published_position import PublishedPosition, is_covered
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session

_log = logging.getLogger(__name__)


class AnnouncementTooEarlyError(PipelineBusyError):
    """The snapshot cannot be announced until the pipeline has published more."""


@dataclass(frozen=True)
class Announcer:
    """Announces the snapshot ``plan`` to followers. ``session`` is a session with its server.

    ``position`` reads the end of the changes that the pipeline has published. ``rules`` are the pipeline's settings.
    """

    connections: PipelineConnections
    plan: SnapshotPlan
    server_uuid: str
    session: Session
    position: PublishedPosition
    rules: Mapping[str, str]

    @property
    def is_required(self) -> bool:
        """Whether the pipeline can have followers and the snapshot reads all rows of its tables."""
        return is_replayable(self.connections.pipeline) and self.plan.request.where is None

    def is_due(self, snapshot: SnapshotRecord) -> bool:
        """Whether the snapshot must be announced and is not announced yet."""
        return self.is_required and snapshot.number == snapshot.began_ms

    def announce(
        self,
        snapshot: SnapshotRecord,
        base: Callable[[], BinlogCoordinates],
        check_own: Callable[[CommitLogState], None],
        timeout_seconds: float,
    ) -> None:
        """Announce the snapshot before its rows are read. Waits until this is possible.

        ``base`` returns the end of the published changes. ``check_own`` raises FencedError if another process has taken
        over the snapshot. Raises AnnouncementTooEarlyError after ``timeout_seconds``.
        """
        deadline = time.monotonic() + timeout_seconds
        while self.is_due(snapshot):
            try:
                self._announce(snapshot, base(), check_own)
                return
            except AnnouncementTooEarlyError as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("the snapshot waits: %s", error)
                time.sleep(WAIT_SECONDS)

    def _announce(
        self, snapshot: SnapshotRecord, base: BinlogCoordinates, check_own: Callable[[CommitLogState], None]
    ) -> None:
        """Write the DDL of each table, as of the end of the published changes, to the pipeline's log.

        ``base`` is the end of the published changes when the call begins. The pipeline seals no window while the
        records are written, so a follower that has not read the records yet is at a position before the first round.

        Raises AnnouncementTooEarlyError if a table was altered after ``base``, or if a seek or windows with other
        settings came after ``base``.
        """
        connections, plan, pipeline = self.connections, self.plan, self.connections.pipeline.name
        ddl_changes = ChangedKeys(connections, self.server_uuid, base, {})
        is_of_all = not plan.request.tables
        with connections.session_on(self.server_uuid) as session:
            records = list(announce_tables(session, snapshot.tables, plan.topics, plan.identity))
            include = connections.pipeline.tables.include if is_of_all else ()
            databases = dict(named_databases(session, include))
            there = {f"{database}.{table}" for database, table in table_names(session)}
        ddl_changes.read_to(source.head(self.session).coordinates)
        with connections.lease(brief=True, timeout_seconds=_LEASE_TIMEOUT_SECONDS) as lease:
            log = lease.log()
            state, own = log.read_with(plan.identity)
            check_own(own)
            end = self.position.of(state, self.server_uuid).end
            ddl_changes.read_to(end.coordinates)
            stale = stale_records(state.of(TableReadRecord), there)
            named = [*(table.name for table in snapshot.tables), *(record.table for record in stale), *databases]
            defined = [name for name in named if ddl_changes.last_ddl(name)]
            if is_of_all:  # followers also get the changes of tables that were dropped since ``base``
                defined += filter(self._is_captured, ddl_changes.redefined_tables)
            if defined or not is_covered(state, self.server_uuid, base, end, rules_digest(self.rules)):
                raise AnnouncementTooEarlyError(
                    f"DDL of {', '.join(defined) or 'a table'}, or a seek, came after {base}: the snapshot begins "
                    f"when pipeline {pipeline!r} has published it"
                )
            of_all = [AllReadRecord(str(end.coordinates), databases)] if is_of_all else []
            log.keep(*with_position([*records, *map(without_table, stale)], end.coordinates), *of_all)

    def _is_captured(self, name: str) -> bool:
        """Whether the pipeline captures a table DATABASE.TABLE. Both names may contain dots."""
        dots = [at for at, character in enumerate(name) if character == "."]
        return any(self.connections.pipeline.tables.matches(name[:at], name[at + 1 :]) for at in dots)

    def completed_records(self, state: CommitLogState, snapshot: SnapshotRecord) -> Iterable[LogRecord]:
        """The records of the tables that are completely published now, for the pipeline's log, which has ``state``."""
        if not self.is_required:
            return ()
        until = self.position.of(state, self.server_uuid).end.coordinates
        dependencies = [each.until for each in state.of(DependencyRecord) if each.snapshot == self.plan.identity]
        reach = max([until, *map(BinlogCoordinates.parse, dependencies)])
        return completed_records(state.of(TableReadRecord), snapshot, self.plan.identity, until, reach)

    def complete(self, snapshot: SnapshotRecord) -> None:
        """Write to the pipeline's log that all tables of ``snapshot`` are completely published."""
        if self.is_required:
            with self.connections.lease(brief=True, timeout_seconds=_LEASE_TIMEOUT_SECONDS) as lease:
                log = lease.log()
                log.keep(*self.completed_records(log.read(), snapshot))


WAIT_SECONDS = 1.0
"""The time between two checks whether the pipeline has published more."""

_LEASE_TIMEOUT_SECONDS = 3600.0
"""The maximum time to wait for the pipeline's lease. A round waits as long to publish."""
