"""The first snapshot, which a pipeline with `start: snapshot` takes by itself."""

from __future__ import annotations

from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections

FIRST_RUN = "first"
"""The run id of the first snapshot, whoever starts it. Its identity is thus the same in Airflow and in the command."""


def is_first_due(connections: PipelineConnections) -> bool:
    """Whether the pipeline has `start: snapshot`, and its first snapshot has not finished.

    False if another snapshot of the pipeline was taken before: after an upgrade, and in a new Airflow.
    Raises BrokerUnavailableError and TopicError.
    """
    pipeline = connections.pipeline
    if pipeline.start != "snapshot":
        return False
    log, ours = connections.commit_log(), snapshot_identity(pipeline.name, "")
    states = log.read_all() if log.exists() else {}
    begun = {
        identity: record
        for identity, state in states.items()
        if identity.startswith(ours)
        for record in state.of(SnapshotRecord)
    }
    first = begun.get(snapshot_identity(pipeline.name, FIRST_RUN))
    return not first.finished if first else not begun
