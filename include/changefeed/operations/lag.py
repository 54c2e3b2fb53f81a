"""How far a pipeline is behind, and how much time that leaves: lag in seconds and retention headroom.

Lag in bytes is part of its `Status`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from changefeed.binlog.search.finder import Finder
from changefeed.errors import ChangefeedError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.operations.status import Status, status
from changefeed.pipeline.connections import PipelineConnections
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.source import BinlogExpiry, binlog_expiry


@dataclass(frozen=True)
class Retention:
    """``lag_seconds`` is 0 at the head. ``headroom_seconds`` is None where the server purges nothing by itself.

    Each of the three is None where it is not known.
    """

    lag_seconds: float | None
    headroom_seconds: float | None
    unlimited: bool | None
    """Whether the server purges nothing by itself, and the binlog is there until somebody purges it."""


UNKNOWN = Retention(None, None, None)
"""Of a source that cannot be read."""


def retention(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """Read both from the source. Raises what `Session` raises; BinlogGoneError for a checkpoint that is purged."""
    with connections.session() as session:
        finder = Finder(ServerBinlogs(session))
        expiry = binlog_expiry(session)
        headroom = _headroom_seconds(finder, checkpoint, expiry)
        unlimited = expiry.seconds is None if expiry.is_known else None
        return Retention(_lag_seconds(finder, checkpoint), headroom, unlimited)


def retention_or_none(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """As `retention`; what cannot be read is None: a figure must not stop a run."""
    try:
        return retention(connections, checkpoint)
    except ChangefeedError:
        return UNKNOWN


def _lag_seconds(finder: Finder, checkpoint: BinlogCoordinates) -> float:
    if finder.latest().coordinates == checkpoint:
        return 0.0
    written = finder.first_seconds(checkpoint)
    return 0.0 if written is None else max(0.0, time.time() - written)


def _headroom_seconds(finder: Finder, checkpoint: BinlogCoordinates, expiry: BinlogExpiry) -> float | None:
    """A file is purged so long after it was closed; the next file was begun then."""
    if expiry.seconds is None:
        return None
    following = [file.name for file in finder.binlogs.files() if file.number == checkpoint.number + 1]
    if not following:
        return expiry.seconds  # still open: it counts from when it is closed
    return max(0.0, finder.begun_seconds(following[0]) + expiry.seconds - time.time())


@dataclass(frozen=True)
class Position:
    """A pipeline's status with its lag and headroom in seconds, which are None where they cannot be read."""

    status: Status
    retention: Retention

    def to_json(self) -> dict[str, Any]:
        """The status, `lag_seconds` and what is known of retention, as the REST API answers them."""
        return {
            **self.status.to_json(),
            "lag_seconds": self.retention.lag_seconds,
            "retention_headroom_seconds": self.retention.headroom_seconds,
            "retention_unlimited": self.retention.unlimited,
        }


def position(connections: PipelineConnections, store: CheckpointStore) -> Position:
    """Read where the pipeline stands; what is wrong is the status's ``error``, and no exception."""
    stands = status(connections, store)
    if stands.error or not stands.checkpoint:
        return Position(stands, UNKNOWN)
    return Position(stands, retention_or_none(connections, BinlogCoordinates.parse(stands.checkpoint)))
