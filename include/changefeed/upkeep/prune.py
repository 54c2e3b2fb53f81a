"""prune: what the commit log need not know any more."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.checkpoint import CheckpointStore
from changefeed.connection import ConnectionLookup, MysqlConnection, kafka_parts
from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import commit_log_topic
from changefeed.mysql.session import Session
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.topics import wanted_topics


@dataclass(frozen=True)
class Pruned:
    """What was forgotten: topics of tables that are not captured any more, and records of windows and failovers."""

    topics: tuple[str, ...]
    records: int


def prune(pipeline: Pipeline, lookup: ConnectionLookup, store: CheckpointStore) -> Pruned:
    """Forget the progress of tables that are gone, where the checkpoint has passed it.

    The topics stay as they are. A checkpoint that is restored to before this prune would publish what such a table
    had in the binlog again. Raises CheckpointError without a checkpoint, PipelineBusyError while a run is under way.
    """
    checkpoint = store.load(pipeline.name)
    if checkpoint is None:
        raise CheckpointError(
            f"pipeline {pipeline.name!r} has no checkpoint: what is behind it cannot be told, and nothing was forgotten"
        )
    with Session(MysqlConnection.from_uri(lookup(pipeline.source.connection))) as session:
        alive = set(wanted_topics(pipeline, session))
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    topic = commit_log_topic(pipeline.name)
    log = CommitLog(kafka, topic, pipeline.name)
    with Lease(kafka, topic, pipeline.name, pipeline.kafka.lease_seconds):
        state = log.read()
        found = {name for name, _ in state.progress} - alive
        found -= {name for (name, _), one in state.progress.items() if one.window > checkpoint.window}
        records = log.forget(found, state) + log.forget_begun(state, checkpoint.window)
    return Pruned(tuple(sorted(found)), records)
