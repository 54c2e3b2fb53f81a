"""prune: what the commit log need not know any more."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.errors import CheckpointError, SettingsError, TopicError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import BegunRecord, ProgressRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import TopicLimits, partition_counts, topic_limits
from changefeed.kafka.window_topics import check_same_topic
from changefeed.model.checkpoint import CheckpointStore
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import wanted_topics


@dataclass(frozen=True)
class Pruned:
    """What was forgotten: topics of tables that are not captured any more, and records of windows and failovers."""

    topics: tuple[str, ...]
    records: int


def prune(connections: PipelineConnections, store: CheckpointStore) -> Pruned:
    """Forget the progress of tables that are gone, where the checkpoint has passed it.

    The topics stay as they are. A checkpoint that is restored to before this prune would publish what such a table
    had in the binlog again. Raises CheckpointError without a checkpoint, PipelineBusyError while a run is under way,
    FencedError where another took over from this one, which had slept: nothing is forgotten then.
    """
    pipeline = connections.pipeline
    if store.load(pipeline.name) is None:  # before its first run there is no log to take the lease in
        raise _nothing_known(pipeline.name)
    with connections.lease() as lease:
        fence(lease)
        checkpoint, state = store.load(pipeline.name), lease.log().read()
        if checkpoint is None:
            raise _nothing_known(pipeline.name)
        with connections.session() as session:
            alive = set(wanted_topics(pipeline, session))
        gone = {name for name, _ in state.progress} - alive
        gone -= {name for (name, _), progress in state.progress.items() if progress.window > checkpoint.window}
        records = lease.log().forget(gone, state, checkpoint.window)
    return Pruned(tuple(sorted(gone)), records)


def _nothing_known(pipeline: str) -> CheckpointError:
    return CheckpointError(
        f"pipeline {pipeline!r} has no checkpoint: what is behind it is not known, and nothing was forgotten"
    )


def forget_removed(connections: PipelineConnections, patterns: Sequence[str]) -> Pruned:
    """Forget what topics were given that somebody removed from Kafka, so that runs go on; ``patterns`` as in a shell.

    The part of an unfinished window that such a topic had is published to it again; what it held of earlier windows
    is gone unless a backfill brings it back. Raises SettingsError where no topic that was removed matches,
    PipelineBusyError while a run is under way.
    """
    with connections.lease() as lease:
        fence(lease)
        log = lease.log()
        state = log.read()
        names = {name for name, _ in state.progress if any(fnmatch.fnmatchcase(name, each) for each in patterns)}
        there = topic_limits(connections.kafka, partition_counts(connections.kafka, names))
        removed = {name for name in names if _is_removed(name, there.get(name), state.progress)}
        if not removed:
            raise SettingsError(
                f"of the topics that pipeline {connections.pipeline.name!r} wrote, none that matches "
                f"{', '.join(map(repr, patterns))} was removed: there is nothing to forget. Those that are there are "
                "forgotten by a seek only, which publishes again what is in them."
            )
        gone = [record for record in state.of(ProgressRecord) if record.topic in removed]
        log.keep(*_without_marks(state, removed), forgotten=gone)
        return Pruned(tuple(sorted(removed)), len(gone))


def _without_marks(state: CommitLogState, removed: Collection[str]) -> Iterator[BegunRecord]:
    """The begun windows that have marks of topics ``removed``, which their failover need not find, without those."""
    for begun in state.of(BegunRecord):
        marks = tuple(mark for mark in begun.marks if mark.topic not in removed)
        if marks != begun.marks:
            yield replace(begun, marks=marks)


def _is_removed(topic: str, limits: TopicLimits | None, given: Mapping[TopicPartition, Progress]) -> bool:
    its = {key[1]: progress for key, progress in given.items() if key[0] == topic}
    try:
        check_same_topic(topic, limits, its)
    except TopicError:
        return True
    return limits is None or any(limits.partitions < progress.partitions for progress in its.values())
