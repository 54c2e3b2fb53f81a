"""What a snapshot tells followers by the pipeline's log: how tables are made, and later which of them are published."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from changefeed.errors import PipelineBusyError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.kafka.commit_log.records import LogRecord, ReliedRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.limits import is_replayable
from changefeed.settings.message_rules import rules_digest
from changefeed.snapshot.announcement import announced, completed, dated, gone, left_behind, named_databases
from changefeed.snapshot.changed_keys import ChangedKeys
from changefeed.snapshot.planning import SnapshotPlan
from changefeed.snapshot.published_position import PublishedPosition, is_covered
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.session import Session

_log = logging.getLogger(__name__)


class AnnouncedTooEarlyError(PipelineBusyError):
    """What followers have to know cannot be said now: the pipeline has to publish something first."""


@dataclass(frozen=True)
class Announcer:
    """Tells followers of the snapshot ``plan``, of the server of ``session``. ``position`` is what the pipeline has
    published, by the settings ``rules``."""

    connections: PipelineConnections
    plan: SnapshotPlan
    server_uuid: str
    session: Session
    position: PublishedPosition
    rules: Mapping[str, str]

    @property
    def is_wanted(self) -> bool:
        """Whether the pipeline can have followers, and the snapshot fills their tables."""
        return is_replayable(self.connections.pipeline) and self.plan.request.where is None

    def is_due(self, snapshot: SnapshotRecord) -> bool:
        """Whether followers have not been told of it yet."""
        return self.is_wanted and snapshot.number == snapshot.began_ms

    def announce(
        self,
        snapshot: SnapshotRecord,
        base: Callable[[], BinlogCoordinates],
        check_own: Callable[[CommitLogState], None],
        patience_seconds: float,
    ) -> None:
        """Tell followers what they have to know before rows are read, as soon as it can be said.

        ``base`` gives what is published; ``check_own`` raises where another process runs the snapshot since. Raises
        AnnouncedTooEarlyError where it could not be said for ``patience_seconds``.
        """
        deadline = time.monotonic() + patience_seconds
        while self.is_due(snapshot):
            try:
                self._announce(snapshot, base(), check_own)
                return
            except AnnouncedTooEarlyError as error:
                if time.monotonic() > deadline:
                    raise
                _log.warning("the snapshot waits: %s", error)
                time.sleep(WAIT_SECONDS)

    def _announce(
        self, snapshot: SnapshotRecord, base: BinlogCoordinates, check_own: Callable[[CommitLogState], None]
    ) -> None:
        """Have the pipeline's log say how each table is made at the end of what is published.

        ``base`` is what was published when it began; ``check_own`` raises where another process runs the snapshot
        since. No window is sealed meanwhile: followers that did not see it have come no further, and are before all
        rounds. Raises AnnouncedTooEarlyError where a table was defined anew behind that, or a window was published.
        """
        connections, plan, pipeline = self.connections, self.plan, self.connections.pipeline.name
        definitions = ChangedKeys(connections, self.server_uuid, base, {})
        is_of_all = not plan.request.tables
        with connections.session_on(self.server_uuid) as session:
            records = list(announced(session, snapshot.tables, plan.topics, plan.identity))
            include = connections.pipeline.tables.include if is_of_all else ()
            databases = dict(named_databases(session, include))
            there = {f"{database}.{table}" for database, table in table_names(session)}
        definitions.read_to(source.head(self.session).coordinates)
        with connections.lease(brief=True, patience_seconds=_PATIENCE_SECONDS) as lease:
            log = lease.log()
            state, own = log.read_beside(plan.identity)
            check_own(own)
            end = self.position.of(state, self.server_uuid).end
            definitions.read_to(end.coordinates)
            behind = left_behind(state.of(TableReadRecord), there)
            named = [*(table.name for table in snapshot.tables), *(record.table for record in behind), *databases]
            defined = [name for name in named if definitions.defined(name)]
            if is_of_all:  # a table that is gone by now has changes that followers come to
                defined += filter(self._is_captured, definitions.tables_defined)
            if defined or not is_covered(state, self.server_uuid, base, end, rules_digest(self.rules)):
                raise AnnouncedTooEarlyError(
                    f"{', '.join(defined) or 'a table'} was defined, or a seek took the pipeline off, behind "
                    f"{base}: the snapshot begins when pipeline {pipeline!r} has published that"
                )
            of_all = [AllReadRecord(str(end.coordinates), databases)] if is_of_all else []
            log.keep(*dated([*records, *map(gone, behind)], end.coordinates), *of_all)

    def _is_captured(self, name: str) -> bool:
        """Whether the pipeline captures a table DATABASE.TABLE, wherever in the name that dot is."""
        dots = [at for at, character in enumerate(name) if character == "."]
        return any(self.connections.pipeline.tables.matches(name[:at], name[at + 1 :]) for at in dots)

    def completed(self, state: CommitLogState, snapshot: SnapshotRecord) -> Iterable[LogRecord]:
        """What the pipeline's log, which is at ``state``, is to say of tables that are published since."""
        if not self.is_wanted:
            return ()
        until = self.position.of(state, self.server_uuid).end.coordinates
        relied = [each.until for each in state.of(ReliedRecord) if each.snapshot == self.plan.identity]
        reach = max([until, *map(BinlogCoordinates.parse, relied)])  # forgotten where windows have passed it
        return completed(state.of(TableReadRecord), snapshot, self.plan.identity, until, reach)

    def complete(self, snapshot: SnapshotRecord) -> None:
        """Have the pipeline's log say that all tables of ``snapshot`` are published."""
        if self.is_wanted:
            with self.connections.lease(brief=True, patience_seconds=_PATIENCE_SECONDS) as lease:
                log = lease.log()
                log.keep(*self.completed(log.read(), snapshot))


WAIT_SECONDS = 1.0
"""How long the snapshot waits before it looks again whether the pipeline has published more."""

_PATIENCE_SECONDS = 3600.0
"""How long another run may have the pipeline's claim: as long as a round waits to publish."""
