"""Finds the end of a pipeline's published changes, for a snapshot."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from changefeed.errors import PipelineBusyError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import find_unfinished
from changefeed.pipeline.windows import last_stable_state
from changefeed.source.mysql.session import Session

VISIBLE_AFTER_SECONDS = 5.0
"""On MySQL without GTIDs, transactions are assumed to be visible on the source this long after their publication."""
_STATE_SECONDS = 1.0
"""The maximum age of a remembered state of the commit log, which was read while no window could be published."""


@dataclass(frozen=True)
class PublishedEnd:
    """The end of the completely published changes, and the head of a window that is published in part, or None."""

    end: Checkpoint
    begun: BinlogCoordinates | None

    @property
    def reach(self) -> BinlogCoordinates:
        """The position after which no change is in Kafka."""
        at = self.end.coordinates
        return at if self.begun is None else max(at, self.begun)


class PublishedPosition:
    """Follows the end of a pipeline's published changes, from ``checkpoint`` on."""

    def __init__(self, connections: PipelineConnections, checkpoint: Checkpoint) -> None:
        self._connections, self._checkpoint = connections, checkpoint
        self._seen: list[tuple[float, BinlogCoordinates]] = []
        self._remembered: tuple[CommitLogState, float] | None = None

    def remember(self, state: CommitLogState) -> None:
        """Store ``state``, the current state of the pipeline's commit log, to avoid another read for a moment."""
        self._remembered = state, time.monotonic()

    def of(self, state: CommitLogState, server_uuid: str) -> PublishedEnd:
        """The published end according to ``state`` of the pipeline's commit log.

        Raises PipelineBusyError if the pipeline's position is still on another server: the next run must find it on
        this server. Raises CheckpointError as `pipeline.open_windows` does.
        """
        left = find_unfinished(self._checkpoint, state, server_uuid)
        if left.end.server_uuid != server_uuid:
            raise PipelineBusyError(
                f"pipeline {left.end.pipeline!r} is at a position of server {left.end.server_uuid}, and its connection "
                f"leads to server {server_uuid}: rows that are read there cannot be ordered with its changes before a "
                "run has found its position on that server. Run the pipeline, then run the snapshot again."
            )
        return PublishedEnd(left.end, left.begun.head if left.begun else None)

    def visible_position(self, session: Session, server_uuid: str) -> BinlogCoordinates | None:
        """The coordinates before which all changes are published, and visible to new transactions on the source.

        None if they are not known yet: call again a moment later. Raises what `of` raises.
        """
        state, at = self._remembered or (None, 0.0)
        if state is None or time.monotonic() - at >= _STATE_SECONDS:
            state = last_stable_state(self._connections)
        end = self.of(state, server_uuid).end
        if session.is_mariadb:  # on MariaDB, `read_view` compares the position of each view
            return end.coordinates
        if end.gtids:
            (executed,) = session.row("SELECT @@GLOBAL.gtid_executed")
            return end.coordinates if GtidSet.parse(str(executed)).contains(GtidSet.parse(end.gtids)) else None
        now = time.monotonic()
        if not self._seen or self._seen[-1][1] != end.coordinates:
            self._seen.append((now, end.coordinates))
        visible = [at for seen, at in self._seen if now - seen >= VISIBLE_AFTER_SECONDS]
        self._seen = [entry for entry in self._seen if not visible or entry[1] >= visible[-1]]
        return visible[-1] if visible else None


def is_covered(
    state: CommitLogState,
    server_uuid: str,
    start: BinlogCoordinates,
    end: Checkpoint,
    rules: str,
    tables: Collection[str] = (),
) -> bool:
    """Whether windows with these ``rules`` (`rules_digest`) published everything between ``start`` and ``end``.

    It is false if a seek skipped a part, if settings changed, if a window left out one of ``tables`` because it was
    parked, or if the commit log does not have a window any more.
    """
    at = end.coordinates
    for number in sorted(state.seals, reverse=True):
        if at <= start:
            break
        manifest = state.seals[number]
        window = manifest.window
        if (window.server_uuid, window.head) != (server_uuid, at) or manifest.rules != rules:
            return False
        if not set(tables).isdisjoint(manifest.parked):
            return False
        at = window.start
    return at <= start
