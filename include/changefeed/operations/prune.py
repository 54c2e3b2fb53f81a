"""prune: removes progress records from the commit log that no later run needs."""

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
from changefeed.pipeline.topics import captured_routes, required_topics


@dataclass(frozen=True)
class PruneResult:
    """The topics whose progress was removed, and the number of removed records."""

    topics: tuple[str, ...]
    records: int


def prune(connections: PipelineConnections, store: CheckpointStore) -> PruneResult:
    """Remove the progress of topics that the pipeline no longer writes, if no window after the checkpoint wrote them.

    Also removes the records of begun windows up to the checkpoint's window.

    The topics themselves do not change. If an older checkpoint is restored later, changes of such a table are published
    again.

    Raises CheckpointError without a checkpoint, PipelineBusyError during a run, and FencedError if another process took
    over while this one slept. After an error nothing is removed.
    """
    pipeline = connections.pipeline
    if store.load(pipeline.name) is None:  # before the first run there is no commit log, so no lease
        raise _nothing_known(pipeline.name)
    with connections.lease_between_windows() as lease:
        fence(lease)
        checkpoint, state = store.load(pipeline.name), lease.log().read()
        if checkpoint is None:
            raise _nothing_known(pipeline.name)
        with connections.session() as session:
            alive = set(required_topics(pipeline, captured_routes(pipeline, session)))
        gone = {name for name, _ in state.progress} - alive
        gone -= {name for (name, _), progress in state.progress.items() if progress.window > checkpoint.window}
        records = lease.log().forget(gone, state, checkpoint.window)
    return PruneResult(tuple(sorted(gone)), records)


def _nothing_known(pipeline: str) -> CheckpointError:
    return CheckpointError(
        f"pipeline {pipeline!r} has no checkpoint, so it is not known which records are needed: nothing was removed"
    )


def forget_removed(connections: PipelineConnections, patterns: Sequence[str]) -> PruneResult:
    """Remove the progress of topics that were deleted from Kafka, so that runs can continue.

    ``patterns`` are shell patterns of topic names.

    The next run publishes the records of an unfinished window again to such a topic. Records of earlier windows are
    lost unless a backfill publishes them again.

    Raises SettingsError if no deleted topic matches, and PipelineBusyError during a run.
    """
    with connections.lease_between_windows() as lease:
        fence(lease)
        log = lease.log()
        state = log.read()
        names = {name for name, _ in state.progress if any(fnmatch.fnmatchcase(name, each) for each in patterns)}
        there = topic_limits(connections.kafka, partition_counts(connections.kafka, names))
        removed = {name for name in names if _is_removed(name, there.get(name), state.progress)}
        if not removed:
            raise SettingsError(
                f"no topic that pipeline {connections.pipeline.name!r} wrote and that matches "
                f"{', '.join(map(repr, patterns))} was deleted from Kafka: nothing was changed. The progress of "
                "existing topics is removed by a seek only, which publishes their records again."
            )
        gone = [record for record in state.of(ProgressRecord) if record.topic in removed]
        log.keep(*_without_removed_topics(state, removed), forgotten=gone)
        return PruneResult(tuple(sorted(removed)), len(gone))


def _without_removed_topics(state: CommitLogState, removed: Collection[str]) -> Iterator[BegunRecord]:
    """Yield the begun windows that have high-water marks of the ``removed`` topics, without these marks."""
    for begun in state.of(BegunRecord):
        high_water_marks = tuple(
            high_water_mark for high_water_mark in begun.high_water_marks if high_water_mark.topic not in removed
        )
        if high_water_marks != begun.high_water_marks:
            yield replace(begun, high_water_marks=high_water_marks)


def _is_removed(topic: str, limits: TopicLimits | None, progress_of: Mapping[TopicPartition, Progress]) -> bool:
    its = {key[1]: progress for key, progress in progress_of.items() if key[0] == topic}
    try:
        check_same_topic(topic, limits, its)
    except TopicError:
        return True
    return limits is None or any(limits.partitions < progress.partitions for progress in its.values())
