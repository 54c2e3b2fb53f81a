"""The checkpoint that the commit log stands for, to know a lost checkpoint from one that never was."""

from __future__ import annotations

import time

from changefeed.checkpoint import Checkpoint
from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log import CommitLogState
from changefeed.seek import SeekRecord


def latest_checkpoint(pipeline: str, state: CommitLogState) -> tuple[Checkpoint, str] | None:
    """The checkpoint that the log's latest seal or seek stands for, and which it is; None for an empty log.

    Without any, it is the one that the pipeline's first window was begun from.
    """
    sealed, sought = max(state.seals, default=0), max(state.seeks, default=0)
    if sealed > sought:
        manifest, now = state.seals[sealed], int(time.time() * 1000)
        return Checkpoint.after(manifest.window, now, manifest.gtids), f"the seal of window {sealed}"
    if not sought:
        begun = next(iter(state.begun.values()), None)
        return (Checkpoint.before(begun), f"the begin of window {begun.number}") if begun else None
    record = state.seeks[sought]
    return sought_checkpoint(pipeline, record), f"the seek to {record.to}"


def sought_checkpoint(pipeline: str, record: SeekRecord) -> Checkpoint:
    """The checkpoint that a seek moved to, or was about to. Raises CheckpointError where its record has no server."""
    if not record.server_uuid:
        raise CheckpointError(f"the latest record is a seek to {record.to} that does not name its server: seek there.")
    to = BinlogCoordinates.parse(record.to)
    return Checkpoint(pipeline, record.number, record.server_uuid, to, record.to_gtids, record.at_ms)


def lost_checkpoint(endpoints: Endpoints, state: CommitLogState) -> str | None:
    """What the commit log says of a pipeline whose store has no checkpoint; None where it has never published."""
    pipeline = endpoints.pipeline
    latest = latest_checkpoint(pipeline.name, state)
    if latest is None:
        return None
    checkpoint, origin = latest
    kept = pipeline.checkpoint
    where = "Airflow's Variables" if kept.connection is None else f"the state table of connection {kept.connection!r}"
    return (
        f"pipeline {pipeline.name!r} has no checkpoint in {where}, and its commit log has {origin} at "
        f"{checkpoint.coordinates}. Either this is another database than the one that its last run used, or the "
        f"checkpoint was lost. Look at checkpoint.store, AIRFLOW_HOME and the connections first; `changefeed recover "
        f"{pipeline.name}` rebuilds a lost one, and a seek begins elsewhere."
    )
