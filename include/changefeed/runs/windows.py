"""The last windows of a pipeline, as its commit log has them sealed."""

from __future__ import annotations

from changefeed.connection import ConnectionLookup, kafka_parts
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import commit_log_topic
from changefeed.manifest import Manifest
from changefeed.pipelines.pipeline import Pipeline


def commit_log_state(pipeline: Pipeline, lookup: ConnectionLookup, identity: str | None = None) -> CommitLogState:
    """What the commit log says; empty before the pipeline's first run. Raises BrokerUnavailableError."""
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    log = CommitLog(kafka, commit_log_topic(pipeline.name), identity or pipeline.name)
    return log.read() if log.exists() else CommitLogState()


def windows(
    pipeline: Pipeline, lookup: ConnectionLookup, limit: int = 20, identity: str | None = None
) -> list[Manifest]:
    """Manifests of the last ``limit`` windows, latest first. Raises BrokerUnavailableError."""
    seals = commit_log_state(pipeline, lookup, identity).seals
    return [Manifest.from_json(seals[number]) for number in sorted(seals, reverse=True)[:limit]]
