"""What earlier runs left behind the checkpoint: windows that are in Kafka whole and not committed, or in part.

They are finished as they were frozen, before anything new is published. What a topic-partition was given of a window
can be compared with what was decoded only while the window's ends, and all that shapes its messages, stay the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from changefeed.errors import AccountingError, CheckpointError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.windows import sought_checkpoint


@dataclass(frozen=True)
class Unfinished:
    """``windows`` follow ``base``, in order; all but ``begun`` are sealed, and ``begun``, where it is set, is the last.

    ``base`` is the stored checkpoint, or the one that the commit log knows to be later. ``end`` is the checkpoint when
    the sealed windows are committed.
    """

    base: Checkpoint
    sealed: tuple[Window, ...]
    begun: Window | None
    end: Checkpoint

    @property
    def windows(self) -> tuple[Window, ...]:
        """All of them, in order."""
        return (*self.sealed, self.begun) if self.begun else self.sealed


def unfinished(stored: Checkpoint, state: CommitLogState, server_uuid: str) -> Unfinished:
    """What the commit log says was left behind ``stored``, for a run on server ``server_uuid``.

    The commit log is ahead of the store after a run that died before its commit, after a seek that died before its
    move, and where the store was brought back from an older backup: in all three the log is right. A window that was
    begun on another server is left out; a failover deals with it.

    Raises CheckpointError where sealed windows do not follow one another, or a seek's record does not say where it led.
    """
    base = stored
    sought = max(state.seeks, default=0)
    if sought > stored.window:
        base = sought_checkpoint(stored.pipeline, state.seeks[sought])
    sealed = [state.seals[number].window for number in state.seals if number > base.window]
    if sealed and sealed[0].after > base.window:  # seals before it are forgotten, as all of them are committed
        base = Checkpoint.before(sealed[0])
    end = base
    for window in sealed:
        if not _follows(window, end):
            raise CheckpointError(
                f"the commit log of pipeline {stored.pipeline!r} has window {window.number} sealed, from "
                f"{window.start}; what was sealed before it ends with window {end.window} at {end.coordinates}: what "
                "lies between is not known to be in Kafka. Seek the pipeline to where it should resume."
            )
        end = Checkpoint.after(window, int(time.time() * 1000), state.seals[window.number].gtids)
    begun = _begun(state, end, server_uuid)
    if begun is None and server_uuid == end.server_uuid:
        _check_nothing_given(state, end)
    return Unfinished(base, tuple(sealed), begun, end)


def check_none_in_part(pipeline: str, state: CommitLogState) -> None:
    """Raises CheckpointError where a window is in Kafka in part: its tables must be known as they are until it ends."""
    sealed = max((*state.seals, *state.seeks), default=0)
    given = max((progress.window for progress in state.progress.values()), default=0)
    if given > sealed:
        raise CheckpointError(
            f"window {given} of pipeline {pipeline!r} is published in part, its rows as its tables are known now: with "
            "other columns the rest of them would not fit. Nothing was changed. Finish it first (`changefeed run "
            f"{pipeline}`), or seek back to where it begins and publish it anew."
        )


def _begun(state: CommitLogState, end: Checkpoint, server_uuid: str) -> Window | None:
    """The window that was begun behind ``end`` on the server, unless something later is known than that."""
    known = max((end.window, *state.seeks, *(progress.window for progress in state.progress.values())))
    windows = [window for window in state.begun.values() if window.server_uuid == server_uuid]
    return next((each for each in reversed(windows) if each.number >= known and _follows(each, end)), None)


def _check_nothing_given(state: CommitLogState, end: Checkpoint) -> None:
    """Raises CheckpointError where parts of a window behind ``end`` are in Kafka whose ends are not known."""
    given = [progress for progress in state.progress.values() if progress.window > end.window]
    if given and all(progress.source == end.server_uuid for progress in given):
        raise CheckpointError(
            f"the checkpoint of pipeline {end.pipeline!r} is of window {end.window} at {end.coordinates}, and by its "
            f"commit log parts of window {given[0].window} are in Kafka, up to {given[0].where}, which was not begun "
            "there: which of its messages are there cannot be known. Nothing was published. Look at checkpoint.store "
            "first; or seek the pipeline to where it should resume."
        )


def _follows(window: Window, checkpoint: Checkpoint) -> bool:
    if window.failover is not None:
        return window.after == checkpoint.window
    here = (checkpoint.window, checkpoint.server_uuid, checkpoint.coordinates)
    return (window.after, window.server_uuid, window.start) == here


def sealed_manifest(window: Window, state: CommitLogState) -> Manifest | None:
    """The manifest of an earlier attempt that was done with exactly ``window``."""
    manifest = state.seals.get(window.number)
    return manifest if manifest is not None and manifest.window == window else None


def check_next(window: Window, state: CommitLogState) -> None:
    """Raises unless ``window``, which is not sealed, is what may be published next: a new one, or the one begun.

    StaleCheckpointError where a later plan, or a seek, went over it: the next run goes on from there. CheckpointError
    where the log does not know what the window follows.
    AccountingError where topic-partitions were given a part of this number from another server, which cannot be told
    from what this server has.
    """
    if state.latest_number < window.after:
        raise CheckpointError(
            f"window {window.number} of pipeline {window.pipeline!r} follows window {window.after}, and the commit log "
            f"{'ends with window ' + str(state.latest_number) if state.latest_number else 'is empty'}: it was removed "
            "or replaced since the window was frozen. Nothing was published; the next run says what to do."
        )
    later_seeks = [number for number in state.seeks if number >= window.number]
    if later_seeks:
        raise _stale(window, f"the pipeline was sought to {state.seeks[later_seeks[-1]].to} after it was frozen")
    if state.seals and max(state.seals) > window.after:
        manifest = state.seals[max(state.seals)]
        raise _stale(window, f"window {manifest.window.number}, up to {manifest.window.head}, is sealed already")
    given = [progress for progress in state.progress.values() if progress.window >= window.number]
    foreign = [progress for progress in given if progress.source != window.server_uuid]
    if foreign:
        raise AccountingError(
            f"window {window.number} of pipeline {window.pipeline!r} was begun on server {foreign[0].source!r} (up to "
            f"{foreign[0].where}, GTID {foreign[0].gtid!r}) and cannot be ended on server {window.server_uuid!r}: its "
            "coordinates mean something else there. Nothing was published. Point the connection at server "
            f"{foreign[0].source!r} again and run, or seek the pipeline to where it should resume."
        )
    if given and state.begun.get(window.number) != window:
        begun = state.begun.get(max(progress.window for progress in given))
        ends = f"from {begun.start} to {begun.head}" if begun else "with other ends"
        raise _stale(window, f"a window {ends} was begun in its place, and parts of that are in Kafka")


def given_before(window: Window, progress: Mapping[TopicPartition, Progress]) -> dict[TopicPartition, Progress]:
    """What earlier attempts at ``window`` gave topic-partitions, of all ``progress`` that the commit log has."""
    return {partition: given for partition, given in progress.items() if given.window == window.number}


def check_given(
    window: Window, given: Mapping[TopicPartition, Progress], decoded: Mapping[TopicPartition, int]
) -> None:
    """Raises AccountingError where an earlier attempt gave a topic-partition more than ``window`` has for it.

    That the messages are the same, where it gave a part of them, `Account.compare` finds out.
    """
    for (topic, partition), progress in sorted(given.items(), key=lambda item: item[0]):
        found = decoded.get((topic, partition), 0)
        if progress.given > found:
            raise AccountingError(
                f"an earlier attempt gave partition {partition} of {topic!r} {progress.given} messages of window "
                f"{window.number}, and the window is decoded into {found} for it now: what decides which messages go "
                "there changed since (columns of a key, filters, secrets and functions of transforms, the pipeline's "
                "name, the version of changefeed). Nothing more was published. Undo that change and run again; or seek "
                f"the pipeline to {window.start}, which publishes the window's messages again."
            )


def _stale(window: Window, why: str) -> StaleCheckpointError:
    return StaleCheckpointError(
        f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) is out of date: "
        f"{why}. Nothing was published; the next run goes on from there."
    )


def described(windows: Sequence[Window]) -> str:
    """Windows for a log line."""
    return ", ".join(f"{window.number} ({window.start} to {window.head})" for window in windows)
