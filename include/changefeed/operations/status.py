"""The status of a pipeline: its checkpoint compared with the head of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from changefeed.errors import ChangefeedError
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.freshness import Freshness
from changefeed.model.gtid import GtidSet
from changefeed.model.window import bytes_between
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.same_history import check_same_history
from changefeed.source.mysql import source


@dataclass(frozen=True)
class Status:
    """The status of a pipeline. ``state`` is new (no checkpoint yet), current, behind or error (see ``error``).

    A pipeline is behind if its source's binlog has any event after its checkpoint. On a busy server, it is always
    behind between runs. With continuous runs, ``checkpoint`` is the end of the last sealed window.
    """

    pipeline: str
    state: str
    window: int = 0
    checkpoint: str | None = None
    gtids: str = ""
    server_uuid: str | None = None
    committed_at_ms: int | None = None
    head: str | None = None
    lag_bytes: int | None = None
    error: str | None = None
    parked: tuple[Mapping[str, Any], ...] = ()
    """The parked tables, each with ``table``, ``at``, ``reason`` and ``since_ms``, as in `ParkedRecord`."""
    freshness: Freshness | None = None
    """None if the windows of the last hour have no rows, or if it was not read (`with_freshness`)."""
    freshness_error: str | None = None
    """Why the freshness could not be read."""

    @classmethod
    def in_error(cls, pipeline: str, error: ChangefeedError) -> Status:
        """The status of a pipeline whose status could not be read, with ``error``."""
        return cls(pipeline, "error", error=f"{type(error).__name__}: {error}")

    @property
    def summary(self) -> str:
        """The state as a text for people."""
        match self.state:
            case "new":
                return "no run yet"
            case "current":
                return "nothing new since the last run"
            case "behind" if self.lag_bytes is None:
                return "on another server since the last run"
            case "behind":
                return f"{self.lag_bytes:,} bytes of binlog since the last run"
        return "error"

    @property
    def freshness_summary(self) -> str:
        """The freshness as a text for people; '' if there is none."""
        if self.freshness_error:
            return "freshness not known"
        return self.freshness.summary if self.freshness else ""

    @property
    def parked_summary(self) -> str:
        """The parked tables as a text for people; '' if there are none."""
        names = ", ".join(each["table"] for each in self.parked)
        return f"parked: {names}" if names else ""

    def to_json(self) -> dict[str, Any]:
        """The status as plain values, for the command line and the REST API."""
        return asdict(self)


def status(connections: PipelineConnections, store: CheckpointStore, *, kafka_error: str = "") -> Status:
    """Read the pipeline's status. Raises nothing: an error is in ``error`` of the status.

    If Kafka is known to be away, ``kafka_error`` is the error, and Kafka is not asked.
    """
    found = _status(connections, store, kafka_error)
    if connections.pipeline.on_table_error == "stop":
        return found  # without Kafka
    if kafka_error:
        return replace(found, state="error", error=found.error or kafka_error)
    try:
        return replace(found, parked=_parked(connections))
    except ChangefeedError as problem:
        return replace(found, state="error", error=found.error or f"{type(problem).__name__}: {problem}")


def with_freshness(found: Status, connections: PipelineConnections) -> Status:
    """The status ``found``, with the freshness of the last hour from the commit log. Raises nothing: an error is in
    ``freshness_error``, and the state is that of the source and the checkpoint."""
    if found.state in ("new", "error"):
        return found
    from changefeed.pipeline.windows import read_freshness  # loads the client of Kafka

    try:
        return replace(found, freshness=read_freshness(connections))
    except ChangefeedError as problem:
        return replace(found, freshness_error=f"{type(problem).__name__}: {problem}")


def _parked(connections: PipelineConnections) -> tuple[Mapping[str, Any], ...]:
    from changefeed.pipeline.parking import read_parked  # loads the client of Kafka

    return tuple(
        {"table": record.table, "at": record.at, "reason": record.reason, "since_ms": record.since_ms}
        for record in read_parked(connections)
    )


def _status(connections: PipelineConnections, store: CheckpointStore, kafka_error: str) -> Status:
    pipeline = connections.pipeline
    checkpoint = None
    head = None
    try:
        checkpoint = store.load(pipeline.name)
        if checkpoint is not None and pipeline.windows is not None and not kafka_error:
            checkpoint = _last_sealed(connections, checkpoint)
        with connections.session() as session:
            uuid = source.server_uuid(session)
            at = source.head(session)
            head = at.coordinates
            files = source.binlog_files(session)
        if checkpoint is None and kafka_error:
            return Status(pipeline.name, "error", server_uuid=uuid, head=str(head), error=kafka_error)
        if checkpoint is None:
            return _without_checkpoint(connections, uuid, head)
        if uuid != checkpoint.server_uuid and checkpoint.gtids:
            return _after_failover(checkpoint, at)
        check_same_history(checkpoint, uuid, head, files)
        lag = bytes_between(files, checkpoint.coordinates, head)
        state, error = ("behind" if lag else "current"), None
    except ChangefeedError as problem:
        lag, state, error = None, "error", f"{type(problem).__name__}: {problem}"
    return Status(
        pipeline=pipeline.name,
        state=state,
        window=checkpoint.window if checkpoint else 0,
        checkpoint=str(checkpoint.coordinates) if checkpoint else None,
        gtids=checkpoint.gtids if checkpoint else "",
        server_uuid=checkpoint.server_uuid if checkpoint else None,
        committed_at_ms=checkpoint.committed_at_ms if checkpoint else None,
        head=str(head) if head else None,
        lag_bytes=lag,
        error=error,
    )


def _last_sealed(connections: PipelineConnections, stored: Checkpoint) -> Checkpoint:
    """The end of the last sealed window, if it is after the ``stored`` checkpoint, which a continuous run moves only
    every ten seconds; else that checkpoint, also if Kafka cannot be read."""
    from changefeed.pipeline.windows import last_stable_state, latest_checkpoint  # load the client of Kafka

    try:
        state = last_stable_state(connections)
        latest = latest_checkpoint(stored.pipeline, state)
    except ChangefeedError:
        return stored
    if latest is None or latest[0].window <= stored.window or latest[0].window not in state.seals:
        return stored
    return replace(latest[0], committed_at_ms=state.sealed_at_ms(latest[0].window))


def _without_checkpoint(connections: PipelineConnections, uuid: str, head: BinlogCoordinates) -> Status:
    """The status of a pipeline without a checkpoint: new, or an error if the commit log has an earlier run."""
    from changefeed.pipeline.windows import commit_log_state, describe_lost_checkpoint  # load the client of Kafka

    lost = describe_lost_checkpoint(connections, commit_log_state(connections))
    name = connections.pipeline.name
    return Status(name, "error" if lost else "new", server_uuid=uuid, head=str(head), error=lost)


def _after_failover(checkpoint: Checkpoint, head: source.Head) -> Status:
    """The status after a failover: the next run finds its position by GTIDs, so the lag in bytes is not known.

    It is current only if the servers' sets are equal: a server with fewer transactions misses published ones.
    """
    is_current = GtidSet.parse(checkpoint.gtids) == GtidSet.parse(head.gtids)
    return Status(
        pipeline=checkpoint.pipeline,
        state="current" if is_current else "behind",
        window=checkpoint.window,
        checkpoint=str(checkpoint.coordinates),
        gtids=checkpoint.gtids,
        server_uuid=checkpoint.server_uuid,
        committed_at_ms=checkpoint.committed_at_ms,
        head=str(head.coordinates),
    )
