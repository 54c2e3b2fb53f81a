"""prune: what the commit log need not know any more."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.checkpoint import CheckpointStore
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import CheckpointError
from changefeed.runs.topics import wanted_topics


@dataclass(frozen=True)
class Pruned:
    """What was forgotten: topics of tables that are not captured any more, and records of windows and failovers."""

    topics: tuple[str, ...]
    records: int


def prune(endpoints: Endpoints, store: CheckpointStore) -> Pruned:
    """Forget the progress of tables that are gone, where the checkpoint has passed it.

    The topics stay as they are. A checkpoint that is restored to before this prune would publish what such a table
    had in the binlog again. Raises CheckpointError without a checkpoint, PipelineBusyError while a run is under way.
    """
    pipeline = endpoints.pipeline
    checkpoint = store.load(pipeline.name)
    if checkpoint is None:
        raise CheckpointError(
            f"pipeline {pipeline.name!r} has no checkpoint: what is behind it is not known, and nothing was forgotten"
        )
    with endpoints.session() as session:
        alive = set(wanted_topics(pipeline, session))
    log = endpoints.commit_log()
    with endpoints.lease():
        state = log.read()
        gone = {name for name, _ in state.progress} - alive
        gone -= {name for (name, _), progress in state.progress.items() if progress.window > checkpoint.window}
        records = log.forget(gone, state) + log.forget_begun(state, checkpoint.window)
    return Pruned(tuple(sorted(gone)), records)
