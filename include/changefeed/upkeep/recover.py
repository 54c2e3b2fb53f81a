"""recover: a lost or outdated checkpoint, rebuilt from the commit log."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.connection import ConnectionLookup, kafka_parts
from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import commit_log_topic
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.logged_checkpoint import latest_checkpoint


@dataclass(frozen=True)
class Recovery:
    """What was done: ``before`` is the stored checkpoint that was replaced, ``origin`` what ``now`` was made of."""

    before: Checkpoint | None
    now: Checkpoint
    origin: str


def recover(pipeline: Pipeline, lookup: ConnectionLookup, store: CheckpointStore) -> Recovery:
    """Put the checkpoint where the latest seal or seek of the commit log says, compare-and-set.

    Raises PipelineBusyError while a run is under way, CheckpointError when the stored checkpoint is as new as the
    log, when the log has neither seal nor seek, or when the stored one cannot be read.
    """
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    topic = commit_log_topic(pipeline.name)
    log = CommitLog(kafka, topic, pipeline.name)
    if not log.exists():
        raise CheckpointError(f"pipeline {pipeline.name!r} has no commit log {topic!r}: it has never published")
    with Lease(kafka, topic, pipeline.name, pipeline.kafka.lease_seconds):
        latest = latest_checkpoint(pipeline, log.read())
        if latest is None:
            raise CheckpointError(
                f"commit log {topic!r} holds no sealed window of pipeline {pipeline.name!r}: there is nothing to "
                "recover from. The next run begins at the pipeline's start, or seek."
            )
        found, origin = latest
        before = store.load(pipeline.name)
        if before is not None and before.window >= found.window:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} is of window {before.window}, at {before.coordinates}, "
                f"and the commit log ends with {origin}: nothing is lost, and nothing was changed."
            )
        store.replace(before, found)
    return Recovery(before, found, origin)
