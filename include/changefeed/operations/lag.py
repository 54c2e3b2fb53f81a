"""The lag of a pipeline in seconds, and its retention headroom. The lag in bytes is part of its `Status`.

The lag in seconds is that of the pipeline's own tables. An idle pipeline beside a busy database thus has a lag of 0
seconds, although its lag in bytes grows until its next run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from changefeed.binlog.search.finder import Finder
from changefeed.binlog.search.own_changes import OwnTables, find_own_change
from changefeed.errors import BinlogGoneError, ChangefeedError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.window import bytes_between
from changefeed.operations.status import Status, status
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session, server_of
from changefeed.source.mysql.source import BinlogExpiry, binlog_expiry
from changefeed.source.mysql.source import server_uuid as source_uuid

SEARCHED_BYTES, SEARCHED_CPU_SECONDS = 16 << 20, 0.3
"""Limits of the search for the oldest own change, which a status and each plan do."""

_passed: dict[str, tuple[tuple[object, ...], BinlogCoordinates]] = {}
"""By pipeline: checkpoint and patterns, and how far there is no own change. A long-lived process goes on from there, so
that it comes to the head although each search is limited."""


@dataclass(frozen=True)
class Retention:
    """The lag of a checkpoint, and the time until the server purges it. Each field is None if it is not known.

    ``lag_seconds`` is the age of the oldest change of the pipeline's tables that is not published; 0 if there is none.
    If the limits ended the search before one was found, it is the age of the first transaction that was not read: the
    lag is at most that. ``headroom_seconds`` is also None if the server never purges the binlog by itself.
    """

    lag_seconds: float | None
    headroom_seconds: float | None
    unlimited: bool | None
    """Whether the server never purges the binlog by itself."""
    own_changes: bool | None = None
    """Whether the binlog after the checkpoint has a change of the pipeline's tables; None if the limits ended the
    search."""
    searched_bytes: int = 0
    """The number of bytes after the checkpoint that have no change of the pipeline's tables."""

    @property
    def summary(self) -> str:
        """What the search found, for people; '' if there is a change, or nothing to search."""
        if self.own_changes is None and self.searched_bytes:
            return f"no change of its tables in the first {self.searched_bytes:,} bytes; the others were not read"
        return "no change of its tables in them" if self.own_changes is False and self.searched_bytes else ""


UNKNOWN = Retention(None, None, None)
"""The value for a source that cannot be read."""


def retention(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """Read lag and headroom from the source.

    Raises what `Session` raises, and BinlogGoneError if the server has purged the checkpoint's position.
    """
    with connections.session() as session:
        binlogs = ServerBinlogs(session)
        finder = Finder(binlogs)
        expiry = binlog_expiry(session)
        headroom = _headroom_seconds(finder, checkpoint, expiry)
        unlimited = expiry.seconds is None if expiry.is_known else None
        lag_seconds, own, searched = _own_lag(connections.pipeline, session, binlogs, checkpoint)
        return Retention(lag_seconds, headroom, unlimited, own, searched)


def retention_or_none(connections: PipelineConnections, checkpoint: BinlogCoordinates) -> Retention:
    """The result of `retention`, or UNKNOWN if it raises an error: a metric must not stop a run."""
    try:
        return retention(connections, checkpoint)
    except ChangefeedError:
        return UNKNOWN


def _own_lag(
    pipeline: Pipeline, session: Session, binlogs: ServerBinlogs, checkpoint: BinlogCoordinates
) -> tuple[float, bool | None, int]:
    """``lag_seconds``, ``own_changes`` and ``searched_bytes`` of `Retention`."""
    head = binlogs.end().coordinates
    start = _start(pipeline, session, checkpoint)
    if head in (checkpoint, start):
        return 0.0, False, bytes_between(binlogs.files(), checkpoint, head)
    tables = OwnTables(
        pipeline.tables.matches,
        pipeline.tables.names_database,
        server_of(session),
        skips_statements=pipeline.statements == "skip",
    )
    found = find_own_change(
        _ranges(binlogs, start),
        binlogs.small_events,
        tables,
        most_bytes=SEARCHED_BYTES,
        cpu_seconds=SEARCHED_CPU_SECONDS,
    )
    _passed[pipeline.name] = _key(pipeline, session, checkpoint), found.reached
    searched = bytes_between(binlogs.files(), checkpoint, found.reached)
    age = 0.0 if found.seconds is None else max(0.0, time.time() - found.seconds)
    return age, found.is_found, searched


def _start(pipeline: Pipeline, session: Session, checkpoint: BinlogCoordinates) -> BinlogCoordinates:
    key, passed = _passed.get(pipeline.name, ((), checkpoint))
    return passed if key == _key(pipeline, session, checkpoint) else checkpoint


def _key(pipeline: Pipeline, session: Session, checkpoint: BinlogCoordinates) -> tuple[object, ...]:
    patterns = tuple(pipeline.tables.include), tuple(pipeline.tables.exclude)
    return source_uuid(session), str(checkpoint), *patterns


def _ranges(binlogs: ServerBinlogs, start: BinlogCoordinates) -> list[tuple[BinlogCoordinates, int]]:
    """Start and end position of each file from ``start`` to the head. Raises BinlogGoneError if its file is gone."""
    head = binlogs.end().coordinates
    if start.file not in {file.name for file in binlogs.files()}:
        raise BinlogGoneError(f"binlog file {start.file!r}, which has the checkpoint's changes, is no longer there")
    ranges = []
    for file in binlogs.files():
        if file.number >= start.number:
            begin = start if file.number == start.number else BinlogCoordinates(file.name, FIRST_POSITION)
            ranges.append((begin, head.position if file.name == head.file else file.size_bytes))
    return ranges


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
            "own_changes": self.retention.own_changes,
            "searched_bytes": self.retention.searched_bytes,
            "retention_headroom_seconds": self.retention.headroom_seconds,
            "retention_unlimited": self.retention.unlimited,
        }


def position(connections: PipelineConnections, store: CheckpointStore) -> Position:
    """Read the pipeline's position. Raises nothing: an error is in ``error`` of the status."""
    current = status(connections, store)
    if current.lag_bytes is None or not current.checkpoint:  # after a failover its coordinates are of another binlog
        return Position(current, UNKNOWN)
    return Position(current, retention_or_none(connections, BinlogCoordinates.parse(current.checkpoint)))
