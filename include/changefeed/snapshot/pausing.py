"""Pauses a pipeline's snapshots. A paused snapshot publishes its current chunks, and waits until it is resumed."""

from __future__ import annotations

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.snapshots import PauseRecord, SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections


def set_paused(connections: PipelineConnections, *, paused: bool) -> list[str]:
    """Pause or resume all unfinished snapshots, also if they are not running, and return their identities.

    The commit log stores the pause. So if a paused snapshot is stopped, it is still paused when it is run again.
    Raises SettingsError if there is no unfinished snapshot, BrokerUnavailableError and TopicError.
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
            f"pipeline {pipeline!r} has no unfinished snapshot that could be {'paused' if paused else 'resumed'}: all "
            "snapshots in its commit log are finished. A snapshot that was just started is in the log after its first "
            "chunks are read: try again then."
        )
    for identity, state in unfinished.items():
        own = connections.commit_log(identity)
        if paused:
            own.note(PauseRecord())
        else:
            own.forget_notes(state.of(PauseRecord))
    return list(unfinished)
