"""recover: a lost or outdated checkpoint, rebuilt from the commit log."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import CheckpointError
from changefeed.runs.logged_checkpoint import latest_checkpoint


@dataclass(frozen=True)
class Recovery:
    """What was done: ``before`` is the stored checkpoint that was replaced, ``origin`` what ``now`` was made of."""

    before: Checkpoint | None
    now: Checkpoint
    origin: str


def recover(endpoints: Endpoints, store: CheckpointStore) -> Recovery:
    """Put the checkpoint where the latest seal or seek of the commit log says, compare-and-set.

    Raises PipelineBusyError while a run is under way, CheckpointError when the stored checkpoint is as new as the
    log, when the log has neither seal nor seek, or when the stored checkpoint cannot be read.
    """
    pipeline, log = endpoints.pipeline, endpoints.commit_log()
    if not log.exists():
        raise CheckpointError(f"pipeline {pipeline.name!r} has no commit log {log.topic!r}: it has never published")
    with endpoints.lease():
        latest = latest_checkpoint(pipeline, log.read())
        if latest is None:
            raise CheckpointError(
                f"commit log {log.topic!r} holds no sealed window of pipeline {pipeline.name!r}: there is nothing to "
                "recover from. The next run begins at the pipeline's start, or seek."
            )
        logged, origin = latest
        before = store.load(pipeline.name)
        if before is not None and before.window >= logged.window:
            raise CheckpointError(
                f"the checkpoint of pipeline {pipeline.name!r} is of window {before.window}, at {before.coordinates}, "
                f"and the commit log ends with {origin}: nothing is lost, and nothing was changed."
            )
        store.replace(before, logged)
    return Recovery(before, logged, origin)
