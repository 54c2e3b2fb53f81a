"""recover: rebuilds a lost or outdated checkpoint from the commit log."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import CheckpointError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.known_progress import describe_lost_log
from changefeed.pipeline.windows import latest_checkpoint


@dataclass(frozen=True)
class Recovery:
    """The replaced checkpoint (``before``), the new one (``now``), and the record that it came from (``origin``)."""

    before: Checkpoint | None
    now: Checkpoint
    origin: str


def recover(connections: PipelineConnections, store: CheckpointStore) -> Recovery:
    """Set the checkpoint to that of the latest seal or seek in the commit log, with a compare-and-set.

    Raises:
    - PipelineBusyError during a run; during a continuous one, if its current window takes minutes.
    - CheckpointError if the stored checkpoint is at least as new as the log or cannot be read, if the log has neither
      a seal nor a seek, or if the log itself was lost.
    """
    pipeline, log = connections.pipeline, connections.commit_log()
    if not log.exists():
        raise CheckpointError(_nothing_known(connections, store.load(pipeline.name), CommitLogState()))
    with connections.lease_between_windows() as lease:
        state = lease.log().read()
        latest = latest_checkpoint(pipeline.name, state)
        if latest is None:
            raise CheckpointError(_nothing_known(connections, store.load(pipeline.name), state))
        logged, origin = latest
        before = store.load(pipeline.name)
        if before is not None and (lost := describe_lost_log(connections, before, state)):
            raise CheckpointError(lost)
        if before is not None and before.window >= logged.window:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} is of window {before.window}, at {before.coordinates}, "
                f"and the commit log ends with {origin}: nothing is lost, and nothing was changed."
            )
        _replace(store, before, logged)
    return Recovery(before, logged, origin)


def _replace(store: CheckpointStore, before: Checkpoint | None, logged: Checkpoint) -> None:
    """Set the checkpoint to ``logged``. A continuous run commits its sealed windows meanwhile, so the checkpoint may
    move from ``before`` up to ``logged``."""
    try:
        store.replace(before, logged)
    except StaleCheckpointError:
        stored = store.load(logged.pipeline)
        if stored is None or stored.window < logged.window:
            store.replace(stored, logged)


def _nothing_known(connections: PipelineConnections, stored: Checkpoint | None, state: CommitLogState) -> str:
    """The error message if the commit log does not exist, or has neither a seal nor a seek."""
    name, topic, cluster = connections.pipeline.name, connections.commit_log().topic, connections.kafka.bootstrap
    if stored is not None:
        if lost := describe_lost_log(connections, stored, state):
            return lost
        return (
            f"pipeline {name!r} has its first checkpoint, at {stored.coordinates}, and has published nothing since: "
            "nothing is lost, and nothing was changed."
        )
    return (
        f"pipeline {name!r} has no checkpoint, and no window in commit log {topic!r} of the cluster at {cluster!r}: "
        "either it has never published, or both were lost. Nothing was changed. If it has published, check that "
        "kafka.connection and checkpoint.store are those of its last run. If both were lost, the newest records of its "
        "topics have its last position in the header changefeed.id (SERVER/FILE:POSITION/ROW): run `changefeed seek "
        f"{name} FILE:POSITION --why ...` with the end of that transaction. Otherwise the next run begins at `start: "
        f"{connections.pipeline.start}`."
    )
