"""recover: a lost or outdated checkpoint, rebuilt from the commit log."""

from __future__ import annotations

import time
from dataclasses import dataclass

from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.connection import ConnectionLookup, kafka_parts
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import commit_log_topic
from changefeed.manifest import Manifest
from changefeed.pipeline import Pipeline
from changefeed.seek import SeekRecord


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


def latest_checkpoint(pipeline: Pipeline, state: CommitLogState) -> tuple[Checkpoint, str] | None:
    """The checkpoint that the log's latest seal or seek stands for, and which it is; None for an empty log."""
    sealed, sought = max(state.seals, default=0), max(state.seeks, default=0)
    now = int(time.time() * 1000)
    if sealed > sought:
        manifest = Manifest.from_json(state.seals[sealed])
        return Checkpoint.after(manifest.window, now, manifest.gtids), f"the seal of window {sealed}"
    if not sought:
        return None
    record = SeekRecord.from_json(state.seeks[sought])
    if not record.server_uuid:
        raise CheckpointError(f"the latest record is a seek to {record.to} that does not name its server: seek there.")
    to = BinlogCoordinates.parse(record.to)
    return Checkpoint(pipeline.name, sought, record.server_uuid, to, record.to_gtids, now), f"the seek to {record.to}"


def lost_checkpoint(pipeline: Pipeline, lookup: ConnectionLookup) -> str | None:
    """What the commit log says of a pipeline whose store has no checkpoint; None where it has never published."""
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    log = CommitLog(kafka, commit_log_topic(pipeline.name), pipeline.name)
    state = log.read() if log.exists() else CommitLogState()
    latest = latest_checkpoint(pipeline, state)
    if latest is None:
        return None
    checkpoint, origin = latest
    return (
        f"pipeline {pipeline.name!r} has no checkpoint, and its commit log has {origin} at {checkpoint.coordinates}: "
        f"the checkpoint was lost. `changefeed recover {pipeline.name}` rebuilds it; a seek begins elsewhere."
    )
