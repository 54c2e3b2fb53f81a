"""The first snapshot, which a pipeline with `start: snapshot` takes by itself."""

from __future__ import annotations

from collections.abc import Mapping

from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections

FIRST_RUN = "first"
"""The run id of the first snapshot, whoever starts it. Its identity is thus the same in Airflow and in the command."""


def is_first_due(connections: PipelineConnections) -> bool:
    """Whether the pipeline has `start: snapshot`, and its commit log says that `is_due`.

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
    return is_due(begun, snapshot_identity(pipeline.name, FIRST_RUN))


def is_due(begun: Mapping[str, SnapshotRecord], first: str) -> bool:
    """Whether the snapshot ``first`` must be taken or continued; ``begun`` are all snapshots of the pipeline.

    Another snapshot of all rows of all tables replaces it: one that was taken before an upgrade or by another Airflow,
    and a finished one, for example after settings were changed while the first was under way.
    """
    complete = [record for identity, record in begun.items() if identity != first and _is_of_all_rows(record)]
    if first in begun:
        return not begun[first].finished and not any(record.finished for record in complete)
    return not complete


def _is_of_all_rows(record: SnapshotRecord) -> bool:
    return not record.request.get("tables") and not record.request.get("where")
