"""How old the oldest unpublished change is, and how long the server keeps the binlog that the checkpoint stands in."""

from __future__ import annotations

import time
from dataclasses import dataclass

from changefeed.binlog.search.finder import Finder
from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import ChangefeedError
from changefeed.mysql.binlog_expiry import BinlogExpiry, binlog_expiry
from changefeed.mysql.binlogs import ServerBinlogs


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


def retention(endpoints: Endpoints, checkpoint: BinlogCoordinates) -> Retention:
    """Read both from the source. Raises what `Session` raises; BinlogGoneError for a checkpoint that is purged."""
    with endpoints.session() as session:
        finder = Finder(ServerBinlogs(session))
        expiry = binlog_expiry(session)
        headroom = _headroom_seconds(finder, checkpoint, expiry)
        unlimited = expiry.seconds is None if expiry.is_known else None
        return Retention(_lag_seconds(finder, checkpoint), headroom, unlimited)


def retention_or_none(endpoints: Endpoints, checkpoint: BinlogCoordinates) -> Retention:
    """As `retention`; what cannot be read is None: a figure must not stop a run."""
    try:
        return retention(endpoints, checkpoint)
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
