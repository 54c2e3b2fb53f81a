"""recover: a lost or outdated checkpoint, rebuilt from the commit log."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.known_progress import lost_log
from changefeed.pipeline.windows import latest_checkpoint


@dataclass(frozen=True)
class Recovery:
    """What was done: ``before`` is the stored checkpoint that was replaced, ``origin`` what ``now`` was made of."""

    before: Checkpoint | None
    now: Checkpoint
    origin: str


def recover(connections: PipelineConnections, store: CheckpointStore) -> Recovery:
    """Put the checkpoint where the latest seal or seek of the commit log says, compare-and-set.

    Raises PipelineBusyError while a run is under way, CheckpointError when the stored checkpoint is as new as the
    log, when the log has neither seal nor seek, or when the stored checkpoint cannot be read.
    """
    pipeline, log = connections.pipeline, connections.commit_log()
    if not log.exists():
        raise CheckpointError(_nothing_known(connections, store.load(pipeline.name), CommitLogState()))
    with connections.lease() as lease:
        state = lease.log().read()
        latest = latest_checkpoint(pipeline.name, state)
        if latest is None:
            raise CheckpointError(_nothing_known(connections, store.load(pipeline.name), state))
        logged, origin = latest
        before = store.load(pipeline.name)
        if before is not None and (lost := lost_log(connections, before, state)):
            raise CheckpointError(lost)
        if before is not None and before.window >= logged.window:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} is of window {before.window}, at {before.coordinates}, "
                f"and the commit log ends with {origin}: nothing is lost, and nothing was changed."
            )
        store.replace(before, logged)
    return Recovery(before, logged, origin)


def _nothing_known(connections: PipelineConnections, stored: Checkpoint | None, state: CommitLogState) -> str:
    """Why nothing can be recovered from a commit log that is not there, or has neither seal nor seek."""
    name, topic, cluster = connections.pipeline.name, connections.commit_log().topic, connections.kafka.bootstrap
    if stored is not None:
        if lost := lost_log(connections, stored, state):
            return lost
        return (
            f"pipeline {name!r} has published nothing since its first checkpoint, at {stored.coordinates}, which is "
            "there: nothing is lost, and nothing was changed."
        )
    return (
        f"pipeline {name!r} has no checkpoint, and no window in commit log {topic!r} of the cluster at {cluster!r}: "
        "either it has never published, or both were lost, and nothing was changed. If it has published, look whether "
        "kafka.connection and checkpoint.store are those of its last run; if both were lost, the newest records of its "
        "topics say in their header changefeed.id (SERVER/FILE:POSITION/ROW) how far it had come: `changefeed seek "
        f"{name} FILE:POSITION --why ...` with the end of that transaction. Without, the next run begins at `start: "
        f"{connections.pipeline.start}`."
    )
