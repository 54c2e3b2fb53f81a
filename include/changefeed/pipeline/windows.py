"""What a pipeline's commit log says: its windows, the checkpoint that it stands for, and seeks over a run."""

from __future__ import annotations

import time

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import FirstRecord, RenamedRecord
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.planned_run import PlannedRun

_OPEN_SECONDS = 1.0


def commit_log_state(
    connections: PipelineConnections, identity: str | None = None, *, open_seconds: float | None = None
) -> CommitLogState:
    """What the commit log says (see `CommitLog.read`); empty before the first run. Raises BrokerUnavailableError."""
    log = connections.commit_log(identity)
    return log.read(open_seconds=open_seconds) if log.exists() else CommitLogState()


def settled_state(connections: PipelineConnections) -> CommitLogState:
    """What the commit log says before a transaction that stays open, as that of a run that is alive or was killed.

    For who must not wait for that run, and is checked again behind the fence. Raises as `commit_log_state`.
    """
    return commit_log_state(connections, open_seconds=_OPEN_SECONDS)


def windows(connections: PipelineConnections, limit: int = 20) -> list[Manifest]:
    """Manifests of the last ``limit`` windows, latest first. Raises BrokerUnavailableError."""
    seals = commit_log_state(connections).seals
    return [seals[number] for number in sorted(seals, reverse=True)[:limit]]


def seek_over(connections: PipelineConnections, run: PlannedRun) -> SeekRecord | None:
    """The seek that moved the checkpoint away from where ``run`` begins, after that was planned; None without one.

    Nothing of such a run may be published or committed any more. Raises BrokerUnavailableError.
    """
    begin = str(run.expected.coordinates)
    seeks = commit_log_state(connections).seeks.values()
    return next((seek for seek in seeks if seek.number > run.expected.window and seek.before == begin), None)


def latest_checkpoint(pipeline: str, state: CommitLogState) -> tuple[Checkpoint, str] | None:
    """The checkpoint that the log's latest seal or seek stands for, and which it is; None for an empty log.

    Without any, it is the one that the pipeline's first window was begun from, or its first.
    """
    sealed, sought = max(state.seals, default=0), max(state.seeks, default=0)
    if sealed > sought:
        manifest, now = state.seals[sealed], int(time.time() * 1000)
        return Checkpoint.after(manifest.window, now, manifest.gtids), f"the seal of window {sealed}"
    if not sought:
        begun = next(iter(state.begun.values()), None)
        if begun is not None:
            return Checkpoint.before(begun), f"the begin of window {begun.number}"
        first = next((record.checkpoint for record in state.of(FirstRecord)), None)
        return (first, "the first checkpoint") if first else None
    record = state.seeks[sought]
    return sought_checkpoint(pipeline, record), f"the seek to {record.to}"


def first_checkpoint(state: CommitLogState) -> Checkpoint | None:
    """The pipeline's first checkpoint where nothing was published since it was noted; None otherwise."""
    return None if state.latest_number else next((record.checkpoint for record in state.of(FirstRecord)), None)


def sought_checkpoint(pipeline: str, record: SeekRecord) -> Checkpoint:
    """The checkpoint that a seek moved to, or was about to."""
    to = BinlogCoordinates.parse(record.to)
    return Checkpoint(pipeline, record.number, record.server_uuid, to, record.to_gtids, record.at_ms)


def check_not_renamed(name: str, state: CommitLogState) -> None:
    """Raises CheckpointError where ``state``, of pipeline ``name``, says that it was renamed."""
    if renamed := state.of(RenamedRecord):
        raise CheckpointError(renamed_away(name, renamed[0].to))


def renamed_away(name: str, to: str) -> str:
    """The error of a run under a name that a pipeline no longer has."""
    return (
        f"pipeline {name!r} was renamed to {to!r}: its checkpoint and its commit log went there, or go there when "
        f"`changefeed rename {name} {to}` is run again, which ends one that was killed. Nothing was published. Name "
        f"the pipeline {to!r} in its YAML; or, for a new pipeline of the old name, `changefeed seek {name} latest "
        "--why ...`"
    )


def lost_checkpoint(connections: PipelineConnections, state: CommitLogState) -> str | None:
    """What the commit log says of a pipeline whose store has no checkpoint; None where it has never published."""
    pipeline = connections.pipeline
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
