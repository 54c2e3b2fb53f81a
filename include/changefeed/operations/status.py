"""Where a pipeline stands: its checkpoint against the head of its source."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from changefeed.binlog.search.finder import bytes_between
from changefeed.errors import ChangefeedError
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import check_same_history
from changefeed.pipeline.windows import commit_log_state, lost_checkpoint
from changefeed.source.mysql import source


@dataclass(frozen=True)
class Status:
    """``state`` is new (no checkpoint yet), current, behind, or error; then ``error`` says what is wrong.

    A pipeline is behind as soon as the binlog goes on after its checkpoint: on a busy server between any two runs.
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

    @classmethod
    def in_error(cls, pipeline: str, error: ChangefeedError) -> Status:
        """The status of a pipeline of which nothing is known but what is wrong."""
        return cls(pipeline, "error", error=f"{type(error).__name__}: {error}")

    @property
    def summary(self) -> str:
        """The state in words, for people."""
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

    def to_json(self) -> dict[str, str | int | None]:
        """Plain values, as the command prints them and the REST API answers them."""
        return asdict(self)


def status(connections: PipelineConnections, store: CheckpointStore) -> Status:
    """The pipeline's status; what cannot be read becomes its ``error`` instead of an exception."""
    pipeline = connections.pipeline
    checkpoint = None
    head = None
    try:
        checkpoint = store.load(pipeline.name)
        with connections.session() as session:
            uuid = source.server_uuid(session)
            head = source.head(session).coordinates
            files = source.binlog_files(session)
        if checkpoint is None:
            lost = lost_checkpoint(connections, commit_log_state(connections))
            return Status(pipeline.name, "error" if lost else "new", server_uuid=uuid, head=str(head), error=lost)
        if uuid != checkpoint.server_uuid and checkpoint.gtids:
            return _after_failover(checkpoint, head)
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


def _after_failover(checkpoint: Checkpoint, head: BinlogCoordinates) -> Status:
    """The next run finds the position again by GTID set; how many bytes that leaves is not known before."""
    return Status(
        pipeline=checkpoint.pipeline,
        state="behind",
        window=checkpoint.window,
        checkpoint=str(checkpoint.coordinates),
        gtids=checkpoint.gtids,
        server_uuid=checkpoint.server_uuid,
        committed_at_ms=checkpoint.committed_at_ms,
        head=str(head),
    )
