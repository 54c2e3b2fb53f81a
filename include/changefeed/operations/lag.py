"""The lag of a pipeline in seconds, and its retention headroom. The lag in bytes is part of its `Status`."""

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
    """The lag of a checkpoint, and the time until the server purges it. Each field is None if it is not known.

    ``lag_seconds`` is 0 at the head. ``headroom_seconds`` is also None if the server never purges the binlog by itself.
    """

    lag_seconds: float | None
    headroom_seconds: float | None
    unlimited: bool | None
    """Whether the server never purges the binlog by itself."""


UNKNOWN = Retention(None, None, None)
"""The value for a source that cannot be read."""


def retention(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """Read lag and headroom from the source.

    Raises what `Session` raises, and BinlogGoneError if the server has purged the checkpoint's position.
    """
    with connections.session() as session:
        finder = Finder(ServerBinlogs(session))
        expiry = binlog_expiry(session)
        headroom = _headroom_seconds(finder, checkpoint, expiry)
        unlimited = expiry.seconds is None if expiry.is_known else None
        return Retention(_lag_seconds(finder, checkpoint), headroom, unlimited)


def retention_or_none(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """The result of `retention`, or UNKNOWN if it raises an error: a metric must not stop a run."""
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
    """The time until the server purges the checkpoint's file. A file is closed when the next file begins."""
    if expiry.seconds is None:
        return None
    following = [file.name for file in finder.binlogs.files() if file.number == checkpoint.number + 1]
    if not following:
        return expiry.seconds  # the file is still open, and expiry begins when it is closed
    return max(0.0, finder.begun_seconds(following[0]) + expiry.seconds - time.time())


@dataclass(frozen=True)
class Position:
    """A pipeline's status with its lag and headroom in seconds, which are None if they cannot be read."""

    status: Status
    retention: Retention

    def to_json(self) -> dict[str, Any]:
        """The status, the lag and the retention, as the REST API returns them."""
        return {
            **self.status.to_json(),
            "lag_seconds": self.retention.lag_seconds,
            "retention_headroom_seconds": self.retention.headroom_seconds,
            "retention_unlimited": self.retention.unlimited,
        }


def position(connections: PipelineConnections, store: CheckpointStore) -> Position:
    """Read the pipeline's position. Raises nothing: an error is in ``error`` of the status."""
    current = status(connections, store)
    if current.lag_bytes is None or not current.checkpoint:  # after a failover its coordinates are of another binlog
        return Position(current, UNKNOWN)
    return Position(current, retention_or_none(connections, BinlogCoordinates.parse(current.checkpoint)))
