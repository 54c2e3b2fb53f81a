"""Where a pipeline's published changes end, as a snapshot beside its windows has to know it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from changefeed.errors import PipelineBusyError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import unfinished
from changefeed.pipeline.windows import settled_state
from changefeed.source.mysql.session import Session

SETTLED_SECONDS = 5.0
"""MySQL without GTIDs: what was published so long ago is taken to be visible to each reader of the source."""
_STATE_SECONDS = 1.0
"""How long what the pipeline's commit log said, while no window was published, is taken for what it says."""


@dataclass(frozen=True)
class Published:
    """The end of all that is published, and behind it the head of a window that is published in part, or None."""

    end: Checkpoint
    begun: BinlogCoordinates | None

    @property
    def reach(self) -> BinlogCoordinates:
        """Behind all of which something may be in Kafka."""
        at = self.end.coordinates
        return at if self.begun is None else max(at, self.begun)


class PublishedPosition:
    """Follows the end of what a pipeline publishes on server ``server_uuid``, from ``checkpoint`` on."""

    def __init__(self, connections: PipelineConnections, checkpoint: Checkpoint) -> None:
        self._connections, self._checkpoint = connections, checkpoint
        self._seen: list[tuple[float, BinlogCoordinates]] = []
        self._remembered: tuple[CommitLogState, float] | None = None

    def remember(self, state: CommitLogState) -> None:
        """The pipeline's commit log is at ``state`` now: for a moment it need not be read again."""
        self._remembered = state, time.monotonic()

    def of(self, state: CommitLogState, server_uuid: str) -> Published:
        """What ``state``, the pipeline's commit log, says.

        Raises PipelineBusyError where the pipeline still stands on another server: its next run looks up where it is on
        this one; CheckpointError as `pipeline.open_windows`.
        """
        left = unfinished(self._checkpoint, state, server_uuid)
        if left.end.server_uuid != server_uuid:
            raise PipelineBusyError(
                f"pipeline {left.end.pipeline!r} stands on server {left.end.server_uuid}, and its connection leads to "
                f"server {server_uuid} now: rows that are read there cannot be put in order with its changes before a "
                "run has looked up where it stands on it. Run the pipeline; the snapshot goes on when it is run again."
            )
        return Published(left.end, left.begun.head if left.begun else None)

    def visible(self, session: Session, server_uuid: str) -> BinlogCoordinates | None:
        """Coordinates before which all is published, and is seen by whoever reads the source from now on.

        None while they are not known yet; asked again a moment later they will be. Raises as `of`.
        """
        state, at = self._remembered or (None, 0.0)
        if state is None or time.monotonic() - at >= _STATE_SECONDS:
            state = settled_state(self._connections)
        end = self.of(state, server_uuid).end
        if session.is_mariadb:  # where each view says where it stands
            return end.coordinates
        if end.gtids:
            (executed,) = session.row("SELECT @@GLOBAL.gtid_executed")
            return end.coordinates if GtidSet.parse(str(executed)).contains(GtidSet.parse(end.gtids)) else None
        now = time.monotonic()
        if not self._seen or self._seen[-1][1] != end.coordinates:
            self._seen.append((now, end.coordinates))
        settled = [at for seen, at in self._seen if now - seen >= SETTLED_SECONDS]
        self._seen = [entry for entry in self._seen if not settled or entry[1] >= settled[-1]]
        return settled[-1] if settled else None


def is_covered(state: CommitLogState, server_uuid: str, start: BinlogCoordinates, end: Checkpoint, rules: str) -> bool:
    """Whether all between ``start`` and ``end`` was published by windows of these ``rules`` (`rules_digest`).

    Not where a seek went over some of it, where settings were others, or where it is not known any more.
    """
    at = end.coordinates
    for number in sorted(state.seals, reverse=True):
        if at <= start:
            break
        manifest = state.seals[number]
        window = manifest.window
        if (window.server_uuid, window.head) != (server_uuid, at) or manifest.rules != rules:
            return False
        at = window.start
    return at <= start
