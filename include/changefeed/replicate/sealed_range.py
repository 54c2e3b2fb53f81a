"""Finds the range of a source's changes that a pipeline's topics have without a gap, according to its commit log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.errors import CheckpointError, SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.replicate.source_order import CommitOrder, order_at

_AGAIN = (
    "The changes in between are not in the topics. Copy the source's tables to the follower again, and give the "
    "coordinates of the copy with --from"
)


@dataclass(frozen=True)
class SealedRange:
    """All changes of server ``server_uuid`` in ``[start, watermark)``, which the topics have.

    - ``commits``: the sorted ends of windows. Each is between two transactions.
    - ``repeats``: whether the pipeline published changes again because of a seek.
    """

    server_uuid: str
    start: BinlogCoordinates
    watermark: BinlogCoordinates
    commits: tuple[CommitOrder, ...]
    repeats: bool

    def commit_between(self, one: CommitOrder, other: CommitOrder) -> bool:
        """Whether one of ``commits`` is after ``one``, and at or before ``other``."""
        at = bisect_right(self.commits, one)
        return at < len(self.commits) and self.commits[at] <= other


def pipeline_start(state: CommitLogState, pipeline: str) -> BinlogCoordinates:
    """The start of the pipeline's first window. Raises SettingsError if the commit log does not have that window."""
    if 1 not in state.seals:
        oldest = (
            f"its oldest window in the commit log is {min(state.seals)}" if state.seals else "it has published none"
        )
        raise SettingsError(
            f"where pipeline {pipeline!r} began is not known, {oldest}: copy the source's tables to the follower, and "
            "give the coordinates of the copy with --from FILE:POSITION"
        )
    return state.seals[1].window.start


def read_sealed_range(state: CommitLogState, start: BinlogCoordinates, server_uuid: str | None) -> SealedRange | None:
    """The sealed range after ``start``; None if no change after ``start`` is sealed.

    ``server_uuid`` is the server of ``start``; None for the server that the pipeline reads now.

    Raises CheckpointError if a seek skipped changes after ``start``, or if the pipeline reads another server now.
    """
    if not state.seals:
        return None
    last = state.seals[max(state.seals)]
    uuid = last.window.server_uuid
    if server_uuid not in (None, uuid):
        raise CheckpointError(
            f"the follower is at {start} of server {server_uuid}, and the pipeline reads server {uuid} since a "
            f"failover: coordinates of the two cannot be compared. {_AGAIN}."
        )
    if last.window.head <= start:
        return None
    chain = _chain(state, start, last)
    repeats = any(seek.repeated_bytes for seek in state.seeks.values())
    commits = tuple(sorted({order_at(manifest.window.head) for manifest in chain}))
    return SealedRange(uuid, start, last.window.head, commits, repeats)


def empty_range(state: CommitLogState, at: BinlogCoordinates) -> SealedRange:
    """An empty range at the follower's position ``at``, in which only rows of snapshots are applied."""
    repeats = any(seek.repeated_bytes for seek in state.seeks.values())
    uuid = state.seals[max(state.seals)].window.server_uuid
    return SealedRange(uuid, at, at, (), repeats)


def _chain(state: CommitLogState, start: BinlogCoordinates, last: Manifest) -> Sequence[Manifest]:
    """The windows from ``start`` to the end of ``last``, latest first."""
    chain, begins = [last], last.window.start
    for number in sorted(state.seals, reverse=True)[1:]:
        if begins <= start:
            return chain
        window = state.seals[number].window
        if window.server_uuid != last.window.server_uuid:
            break
        if window.head < begins:
            raise CheckpointError(f"a seek moved the pipeline from {window.head} to {begins}. {_AGAIN}.")
        chain.append(state.seals[number])
        begins = min(begins, window.start)
    if begins > start:
        _check_forgotten(state, start, begins)
    return chain


def _check_forgotten(state: CommitLogState, start: BinlogCoordinates, begins: BinlogCoordinates) -> None:
    """Raises CheckpointError if the pipeline did not publish all changes between ``start`` and ``begins``.

    The commit log removes old windows, but never a seek. So the changes were published if older windows were removed
    and no seek skipped changes.
    """
    forgotten = min(state.seals) > 1
    if not forgotten:
        raise CheckpointError(f"the pipeline has not published {start} to {begins} of its server. {_AGAIN}.")
    for seek in state.seeks.values():
        if seek.skipped_bytes and BinlogCoordinates.parse(seek.to) > start:
            raise CheckpointError(f"seek {seek.number} moved the pipeline forward to {seek.to}. {_AGAIN}.")
