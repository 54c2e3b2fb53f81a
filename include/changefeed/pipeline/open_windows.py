"""Finds the unfinished windows of earlier runs after the checkpoint: published but not committed, or partly published.

A run finishes them as they were frozen, before it publishes anything new. The published messages of a window can be
compared with the decoded ones only if the window's start and head, and all settings that change its messages, stay the
same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from changefeed.errors import AccountingError, CheckpointError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.windows import checkpoint_after_seek


@dataclass(frozen=True)
class Unfinished:
    """The unfinished windows after the checkpoint ``base``: the ``sealed`` ones in order, then ``begun`` if it is set.

    ``base`` is the stored checkpoint, or a later one of the commit log. ``end`` is the checkpoint after the commit of
    all sealed windows.
    """

    base: Checkpoint
    sealed: tuple[Window, ...]
    begun: Window | None
    end: Checkpoint

    @property
    def windows(self) -> tuple[Window, ...]:
        """All unfinished windows, in order."""
        return (*self.sealed, self.begun) if self.begun else self.sealed


def find_unfinished(stored: Checkpoint, state: CommitLogState, server_uuid: str) -> Unfinished:
    """The windows after checkpoint ``stored`` in the commit log, for a run on server ``server_uuid``.

    The commit log is ahead of the store if a run or a seek died before it moved the checkpoint, or if the store was
    restored from an older backup. In all three cases the log is right. A window that was begun on another server is
    left out: see `failover`.

    Raises CheckpointError if sealed windows do not follow one another, or a seek's record has no target.
    """
    base = stored
    seek_number = max(state.seeks, default=0)
    if seek_number > stored.window:
        base = checkpoint_after_seek(stored.pipeline, state.seeks[seek_number])
    sealed = [state.seals[number].window for number in state.seals if number > base.window]
    if sealed and sealed[0].after > base.window:  # earlier seals are forgotten, because their windows are committed
        base = Checkpoint.before(sealed[0])
    end = base
    for window in sealed:
        if not _follows(window, end):
            raise CheckpointError(
                f"the commit log of pipeline {stored.pipeline!r} has window {window.number} sealed, from "
                f"{window.start}; what was sealed before it ends with window {end.window} at {end.coordinates}: "
                "whether the changes between are in Kafka is not known. Seek the pipeline to where it should resume."
            )
        end = Checkpoint.after(window, int(time.time() * 1000), state.seals[window.number].gtids)
    begun = _begun_window(state, end, server_uuid)
    if begun is None and server_uuid == end.server_uuid:
        _check_none_published(state, end)
    return Unfinished(base, tuple(sealed), begun, end)


def check_none_in_part(pipeline: str, state: CommitLogState) -> None:
    """Raise CheckpointError if a window is partly published: its tables may not change until it is finished."""
    sealed = max((*state.seals, *state.seeks), default=0)
    published = max((progress.window for progress in state.progress.values()), default=0)
    if published > sealed:
        raise CheckpointError(
            f"window {published} of pipeline {pipeline!r} is published in part, with the columns that its tables are "
            "known to have now: with other columns the rest of its rows would not fit. Nothing was changed. Finish it "
            f"first (`changefeed run {pipeline}`), or seek back to where it begins, which publishes it again."
        )


def _begun_window(state: CommitLogState, end: Checkpoint, server_uuid: str) -> Window | None:
    """The window that was begun after ``end`` on the server, unless a later one is known."""
    known = max((end.window, *state.seeks, *(progress.window for progress in state.progress.values())))
    windows = [window for window in state.begun.values() if window.server_uuid == server_uuid]
    return next((each for each in reversed(windows) if each.number >= known and _follows(each, end)), None)


def _check_none_published(state: CommitLogState, end: Checkpoint) -> None:
    """Raise CheckpointError if a window after ``end`` is partly published, and the log does not have its start and
    head."""
    published = [progress for progress in state.progress.values() if progress.window > end.window]
    if published and all(progress.source == end.server_uuid for progress in published):
        raise CheckpointError(
            f"the checkpoint of pipeline {end.pipeline!r} is of window {end.window} at {end.coordinates}, and by its "
            f"commit log parts of window {published[0].window} are in Kafka, up to {published[0].where}, and no record "
            "says that it was begun: which of its messages are there cannot be known. Nothing was published. Look at "
            "checkpoint.store first; or seek the pipeline to where it should resume."
        )


def _follows(window: Window, checkpoint: Checkpoint) -> bool:
    if window.failover is not None:
        return window.after == checkpoint.window
    here = (checkpoint.window, checkpoint.server_uuid, checkpoint.coordinates)
    return (window.after, window.server_uuid, window.start) == here


def sealed_manifest(window: Window, state: CommitLogState) -> Manifest | None:
    """The manifest of an earlier attempt that completed exactly ``window``; None if there is none."""
    manifest = state.seals.get(window.number)
    return manifest if manifest is not None and manifest.window == window else None


def check_next(window: Window, state: CommitLogState) -> None:
    """Raise an error unless ``window`` may be published next. It must not be sealed, and must be a new or the begun
    window.

    Raises:

    - StaleCheckpointError if a later plan or a seek replaced the window; the next run continues from there.
    - CheckpointError if the log does not know the window that it follows.
    - AccountingError if a part of a window with its number was published from another server, because the messages of
      two servers cannot be matched.
    """
    if state.latest_number < window.after:
        raise CheckpointError(
            f"window {window.number} of pipeline {window.pipeline!r} follows window {window.after}, and the commit log "
            f"{'ends with window ' + str(state.latest_number) if state.latest_number else 'is empty'}: it was removed "
            "or replaced since the window was frozen. Nothing was published; the next run says what to do."
        )
    later_seeks = [number for number in state.seeks if number >= window.number]
    if later_seeks:
        raise _stale(window, f"a seek moved the pipeline to {state.seeks[later_seeks[-1]].to} after it was frozen")
    if state.seals and max(state.seals) > window.after:
        manifest = state.seals[max(state.seals)]
        raise _stale(window, f"window {manifest.window.number}, up to {manifest.window.head}, is sealed already")
    published = [progress for progress in state.progress.values() if progress.window >= window.number]
    foreign = [progress for progress in published if progress.source != window.server_uuid]
    if foreign:
        raise AccountingError(
            f"window {window.number} of pipeline {window.pipeline!r} was begun on server {foreign[0].source!r} (up to "
            f"{foreign[0].where}, GTID {foreign[0].gtid!r}) and cannot be ended on server {window.server_uuid!r}: its "
            "coordinates mean something else there. Nothing was published. Point the connection at server "
            f"{foreign[0].source!r} again and run, or seek the pipeline to where it should resume."
        )
    if published and state.begun.get(window.number) != window:
        begun = state.begun.get(max(progress.window for progress in published))
        ends = f"from {begun.start} to {begun.head}" if begun else "with other ends"
        raise _stale(window, f"a window {ends} was begun in its place, and parts of that are in Kafka")


def progress_in_window(window: Window, progress: Mapping[TopicPartition, Progress]) -> dict[TopicPartition, Progress]:
    """The progress of earlier attempts at ``window``, from all ``progress`` in the commit log."""
    return {partition: published for partition, published in progress.items() if published.window == window.number}


def check_published(
    window: Window, published: Mapping[TopicPartition, Progress], decoded: Mapping[TopicPartition, int]
) -> None:
    """Raise AccountingError if an earlier attempt published more messages to a topic-partition than ``window`` has for
    it.

    `Account.compare` checks that the published messages are the same.
    """
    for (topic, partition), progress in sorted(published.items(), key=lambda item: item[0]):
        found = decoded.get((topic, partition), 0)
        if progress.published > found:
            raise AccountingError(
                f"partition {partition} of {topic!r}: expected at least the {progress.published} messages of "
                f"window {window.number} that an earlier attempt published, found {found} decoded ones. Something that "
                "decides which messages go to the partition has changed (columns of a key, filters, secrets and "
                "functions of transforms, the pipeline's name, the version of changefeed). Nothing more was published. "
                "Undo that change and run again; or seek "
                f"the pipeline to {window.start}, which publishes the window's messages again."
            )


def _stale(window: Window, why: str) -> StaleCheckpointError:
    return StaleCheckpointError(
        f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) is out of date: "
        f"{why}. Nothing was published; the next run goes on from there."
    )
