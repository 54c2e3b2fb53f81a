"""Reads from a pipeline's commit log: its windows, its latest checkpoint, and seeks that replace a run."""

from __future__ import annotations

import time

from changefeed.errors import RenamedError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.merged_freshness import merged_freshness
from changefeed.kafka.commit_log.records import FirstRecord, RenamedRecord
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.freshness import HOUR_SECONDS, Freshness, recent_freshness
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.planned_run import PlannedRun

_OPEN_SECONDS = 1.0


def commit_log_state(
    connections: PipelineConnections, identity: str | None = None, *, open_seconds: float | None = None
) -> CommitLogState:
    """The state of the commit log (see `CommitLog.read`); empty before the first run. Raises BrokerUnavailableError."""
    log = connections.commit_log(identity)
    return log.read(open_seconds=open_seconds) if log.exists() else CommitLogState()


def commit_log_states(connections: PipelineConnections, identity: str) -> tuple[CommitLogState, CommitLogState]:
    """The states of the pipeline's windows and of ``identity``, from one reading of the commit log; both are empty
    before the first run. Raises what `commit_log_state` raises."""
    log = connections.commit_log()
    return log.read_with(identity) if log.exists() else (CommitLogState(), CommitLogState())


def last_stable_state(connections: PipelineConnections) -> CommitLogState:
    """The state of the commit log before the first transaction that stays open, for example of a live or killed run.

    For callers that do not wait for such a run, and check again after fencing. Raises what `commit_log_state` raises.
    """
    return commit_log_state(connections, open_seconds=_OPEN_SECONDS)


def windows(connections: PipelineConnections, limit: int = 20) -> list[Manifest]:
    """Manifests of the last ``limit`` windows, latest first. Raises BrokerUnavailableError."""
    return latest_manifests(commit_log_state(connections), limit)


def latest_manifests(state: CommitLogState, limit: int) -> list[Manifest]:
    """Manifests of the last ``limit`` windows of ``state``, latest first. Raises CheckpointError."""
    return [state.seals[number] for number in sorted(state.seals, reverse=True)[:limit]]


def read_freshness(connections: PipelineConnections) -> Freshness | None:
    """The freshness of the last hour; None if no window of it has rows. Raises what `last_stable_state` raises."""
    now_ms = int(time.time() * 1000)
    state = last_stable_state(connections)
    recent = [number for number in state.seals if state.seals.written_at_ms(number) >= now_ms - HOUR_SECONDS * 1000]
    windows = ((state.sealed_at_ms(number), state.seals[number].freshness_seconds) for number in recent)
    return recent_freshness(windows, now_ms, merged_freshness(state))


def seek_over(connections: PipelineConnections, run: PlannedRun) -> SeekRecord | None:
    """The seek that moved the checkpoint away from the start of ``run`` after the run was planned; None if there is
    none.

    After such a seek the run may not publish or commit anything. Raises BrokerUnavailableError.
    """
    begin = str(run.expected.coordinates)
    seeks = commit_log_state(connections).seeks.values()
    return next((seek for seek in seeks if seek.number > run.expected.window and seek.before == begin), None)


def latest_checkpoint(pipeline: str, state: CommitLogState) -> tuple[Checkpoint, str] | None:
    """The checkpoint of the log's latest seal or seek, and a description of that; None for an empty log.

    Without seals and seeks, it is the start of the first window that was begun, or the first checkpoint.
    """
    sealed, seek_number = max(state.seals, default=0), max(state.seeks, default=0)
    if sealed > seek_number:
        manifest, now = state.seals[sealed], int(time.time() * 1000)
        return Checkpoint.after(manifest.window, now, manifest.gtids), f"the seal of window {sealed}"
    if not seek_number:
        begun = next(iter(state.begun.values()), None)
        if begun is not None:
            return Checkpoint.before(begun), f"the begin of window {begun.number}"
        first = next((record.checkpoint for record in state.of(FirstRecord)), None)
        return (first, "the first checkpoint") if first else None
    record = state.seeks[seek_number]
    return checkpoint_after_seek(pipeline, record), f"the seek to {record.to}"


def first_checkpoint(state: CommitLogState) -> Checkpoint | None:
    """The pipeline's first checkpoint if nothing was published since; None otherwise."""
    return None if state.latest_number else next((record.checkpoint for record in state.of(FirstRecord)), None)


def checkpoint_after_seek(pipeline: str, record: SeekRecord) -> Checkpoint:
    """The checkpoint that a seek moved to, or would have moved to if it had not died."""
    to = BinlogCoordinates.parse(record.to)
    return Checkpoint(pipeline, record.number, record.server_uuid, to, record.to_gtids, record.at_ms)


def check_not_renamed(name: str, state: CommitLogState) -> None:
    """Raise RenamedError if ``state``, the commit log's state of pipeline ``name``, has the record of a rename."""
    if renamed := state.of(RenamedRecord):
        raise RenamedError(renamed_message(name, renamed[0].to))


def renamed_message(name: str, to: str) -> str:
    """The error text for a run under the old ``name`` of a renamed pipeline."""
    return (
        f"pipeline {name!r} was renamed to {to!r}: its checkpoint and its commit log were moved, or are moved when "
        f"`changefeed rename {name} {to}` is run again, which finishes a killed rename. Nothing was published. Name "
        f"the pipeline {to!r} in its YAML; or, for a new pipeline of the old name, `changefeed seek {name} latest "
        "--why ...`"
    )


def describe_lost_checkpoint(connections: PipelineConnections, state: CommitLogState) -> str | None:
    """An error text for a pipeline that has records in the commit log but no checkpoint in its store; None without
    records."""
    pipeline = connections.pipeline
    latest = latest_checkpoint(pipeline.name, state)
    if latest is None:
        return None
    checkpoint, origin = latest
    return (
        f"pipeline {pipeline.name!r} has no checkpoint in {pipeline.checkpoint.place}, and its commit log has "
        f"{origin} at {checkpoint.coordinates}. Either its last run kept its checkpoint elsewhere, or the checkpoint "
        "was lost. Look at checkpoint.store, AIRFLOW_HOME and the connections first; `changefeed recover "
        f"{pipeline.name}` rebuilds a lost one, and a seek begins elsewhere."
    )
