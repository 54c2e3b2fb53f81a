"""The checkpoint store that a pipeline names."""

from __future__ import annotations

from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.connection import ConnectionLookup
from changefeed.settings.pipeline import Pipeline
from changefeed.state.table_store import TableCheckpointStore


def checkpoint_store(pipeline: Pipeline, lookup: ConnectionLookup, variables: CheckpointStore) -> CheckpointStore:
    """``variables`` is the caller's store of Airflow Variables, which depends on where it runs."""
    if pipeline.checkpoint.connection is None:
        return variables
    return TableCheckpointStore(lookup(pipeline.checkpoint.connection))
