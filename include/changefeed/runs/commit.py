"""commit: the window's seal is in the commit log, so the checkpoint may move."""

from __future__ import annotations

import time
from dataclasses import replace

from changefeed import fault_point
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.connection import ConnectionLookup, kafka_parts
from changefeed.errors import AccountingError
from changefeed.kafka.commit_log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import commit_log_topic
from changefeed.manifest import Manifest
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.plan import Plan
from changefeed.runs.schema_history import copy_history


def commit(pipeline: Pipeline, plan: Plan, lookup: ConnectionLookup, store: CheckpointStore) -> Manifest:
    """Move the checkpoint to the window's head, and return the manifest that proves it may, with `commit`'s seconds.

    Raises AccountingError when the window is not sealed in the commit log, StaleCheckpointError when the checkpoint
    is not where `plan` found it. A second commit of the same window changes nothing.
    """
    began = time.monotonic()
    manifest = sealed(pipeline, plan, lookup)
    committed = store.load(pipeline.name)
    if committed is not None and (committed.window, committed.coordinates) == (plan.window.number, plan.window.head):
        return manifest
    store.advance(plan.expected, Checkpoint.after(plan.window, int(time.time() * 1000), manifest.gtids))
    fault_point.reached("after_checkpoint")
    copy_history(pipeline, KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection))), store)
    return replace(manifest, seconds={**manifest.seconds, "commit": round(time.monotonic() - began, 3)})


def sealed(pipeline: Pipeline, plan: Plan, lookup: ConnectionLookup) -> Manifest:
    """The window's manifest out of the commit log; raises AccountingError where that has none, or another's."""
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    seals = CommitLog(kafka, commit_log_topic(pipeline.name), pipeline.name).read().seals
    values = seals.get(plan.window.number)
    manifest = Manifest.from_json(values) if values else None
    if manifest is None or manifest.window != plan.window:
        raise AccountingError(
            f"window {plan.window.number} of pipeline {pipeline.name!r} ({plan.window.start} to {plan.window.head}) is "
            "not sealed in the commit log: not all of it is known to be in Kafka. The checkpoint stays; run again."
        )
    return manifest
