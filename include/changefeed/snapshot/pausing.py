"""Pausing a pipeline's snapshots: they publish the chunks under way, and wait until they are resumed."""

from __future__ import annotations

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.snapshots import PauseRecord, SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections


def set_paused(connections: PipelineConnections, *, paused: bool) -> list[str]:
    """Pause or resume the snapshots that are not finished, those that were stopped among them; their identities.

    It is kept in the commit log: one that is stopped while it is paused is paused when it is run again. Raises
    SettingsError where there is none, BrokerUnavailableError, TopicError.
    """
    pipeline = connections.pipeline.name
    log, ours = connections.commit_log(), snapshot_identity(pipeline, "")
    states = log.read_all() if log.exists() else {}
    unfinished = {
        identity: state
        for identity, state in states.items()
        if identity.startswith(ours) and any(not each.finished for each in state.of(SnapshotRecord))
    }
    if not unfinished:
        raise SettingsError(
            f"pipeline {pipeline!r} has no snapshot under way to be {'paused' if paused else 'resumed'}: all that its "
            "commit log knows are finished, and one that was just started is not in it before its first chunks."
        )
    for identity, state in unfinished.items():
        own = connections.commit_log(identity)
        if paused:
            own.note(PauseRecord())
        else:
            own.forget_notes(state.of(PauseRecord))
    return list(unfinished)
