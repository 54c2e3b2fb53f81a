"""How far a pipeline's topics are complete, and whether nothing is missing on the way there, by its commit log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.errors import CheckpointError, SettingsError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.replicate.source_order import Turn, turn_of

_AGAIN = (
    "What lies between is not in the topics. Copy the source's tables to the follower anew, and give the coordinates "
    "of the copy with --from"
)


@dataclass(frozen=True)
class SealedStretch:
    """What a follower can be given: all changes of server ``server_uuid`` in ``[start, watermark)``.

    ``commits`` are turns that are known to lie between two transactions, in order: the ends of the windows.
    ``repeats`` says whether a seek made the pipeline publish changes again.
    """

    server_uuid: str
    start: BinlogCoordinates
    watermark: BinlogCoordinates
    commits: tuple[Turn, ...]
    repeats: bool

    def commit_between(self, one: Turn, other: Turn) -> bool:
        """Whether a commit is known to lie behind ``one`` and not behind ``other``."""
        at = bisect_right(self.commits, one)
        return at < len(self.commits) and self.commits[at] <= other


def first_start(state: CommitLogState, pipeline: str) -> BinlogCoordinates:
    """Where the pipeline's first window began. Raises SettingsError where the commit log has forgotten that window."""
    if 1 not in state.seals:
        oldest = (
            f"its oldest window in the commit log is {min(state.seals)}" if state.seals else "it has published none"
        )
        raise SettingsError(
            f"where pipeline {pipeline!r} began is not known, {oldest}: copy the source's tables to the follower, and "
            "give the coordinates of the copy with --from FILE:POSITION"
        )
    return state.seals[1].window.start


def sealed_from(state: CommitLogState, start: BinlogCoordinates, server_uuid: str | None) -> SealedStretch | None:
    """What is sealed behind ``start`` of ``server_uuid`` (None: whichever the pipeline reads); None where nothing is.

    Raises CheckpointError where the pipeline left out changes behind ``start``, by a seek, or changed its server.
    """
    if not state.seals:
        return None
    last = state.seals[max(state.seals)]
    uuid = last.window.server_uuid
    if server_uuid not in (None, uuid):
        raise CheckpointError(
            f"the follower stands at {start} of server {server_uuid}, and the pipeline reads server {uuid} since a "
            f"failover: coordinates of the two have nothing in common. {_AGAIN}."
        )
    if last.window.head <= start:
        return None
    chain = _chain(state, start, last)
    repeats = any(seek.repeated_bytes for seek in state.seeks.values())
    commits = tuple(sorted({turn_of(manifest.window.head) for manifest in chain}))
    return SealedStretch(uuid, start, last.window.head, commits, repeats)


def nothing_new(state: CommitLogState, at: BinlogCoordinates) -> SealedStretch:
    """The stretch without changes where the follower is, ``at``, for rows that snapshots have read."""
    repeats = any(seek.repeated_bytes for seek in state.seeks.values())
    uuid = state.seals[max(state.seals)].window.server_uuid
    return SealedStretch(uuid, at, at, (), repeats)


def _chain(state: CommitLogState, start: BinlogCoordinates, last: Manifest) -> Sequence[Manifest]:
    """The windows between ``start`` and the end of ``last``, the last first."""
    chain, begins = [last], last.window.start
    for number in sorted(state.seals, reverse=True)[1:]:
        if begins <= start:
            return chain
        window = state.seals[number].window
        if window.server_uuid != last.window.server_uuid:
            break
        if window.head < begins:
            raise CheckpointError(f"the pipeline went on from {window.head} at {begins} by a seek. {_AGAIN}.")
        chain.append(state.seals[number])
        begins = min(begins, window.start)
    if begins > start:
        _check_forgotten(state, start, begins)
    return chain


def _check_forgotten(state: CommitLogState, start: BinlogCoordinates, begins: BinlogCoordinates) -> None:
    """Windows before ``begins`` are forgotten, or another server's; seeks never are."""
    forgotten = min(state.seals) > 1
    if not forgotten:
        raise CheckpointError(f"the pipeline has nothing of {start} to {begins} of the server that it reads. {_AGAIN}.")
    for seek in state.seeks.values():
        if seek.skipped_bytes and BinlogCoordinates.parse(seek.to) > start:
            raise CheckpointError(f"seek {seek.number} took the pipeline on to {seek.to}. {_AGAIN}.")
