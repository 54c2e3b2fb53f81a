"""How far a snapshot is, for people: chunks and rows done, rows a second, time left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from changefeed.errors import AccountingError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.snapshots import ChunkRecord, PauseRecord, SnapshotRecord
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.old_identities import forget_older
from changefeed.pipeline.windows import commit_log_state

KEPT_SNAPSHOTS = 20
"""So many of a pipeline, the latest ones, are remembered: what they published, or where they go on."""


@dataclass(frozen=True)
class SnapshotStatus:
    """Where a snapshot stands; ``paused`` until somebody resumes it. ``rows`` of about ``estimated_rows`` were read,
    ``left_out`` of them were not published; ``seconds_left`` is None while nothing is known, or as the server's guess
    of rows was too low. ``gone`` are tables that are not there any more, of which not all rows are published."""

    identity: str
    began_ms: int
    finished: bool
    paused: bool
    tables: int
    tables_done: int
    chunks: int
    rows: int
    left_out: int
    estimated_rows: int
    rows_per_second: int | None
    seconds_left: int | None
    gone: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for the REST API."""
        return dict(vars(self))


def status_of(identity: str, stands: SnapshotRecord, *, paused: bool = False) -> SnapshotStatus:
    """The status of a snapshot that `with_chunks` of its round were counted in."""
    rows = sum(table.rows for table in stands.tables)
    left = sum(max(0, table.estimated_rows - table.rows) for table in stands.tables if not _is_done(table.name, stands))
    speed = rows / stands.seconds if stands.seconds > 0 else 0.0
    known = speed > 0 and not stands.finished
    return SnapshotStatus(
        identity=identity,
        began_ms=stands.began_ms,
        finished=stands.finished,
        paused=paused and not stands.finished,
        tables=len(stands.tables),
        tables_done=sum(_is_done(table.name, stands) for table in stands.tables),
        chunks=sum(table.chunks for table in stands.tables),
        rows=rows,
        left_out=sum(table.left_out for table in stands.tables),
        estimated_rows=sum(table.estimated_rows for table in stands.tables),
        rows_per_second=round(speed) if speed > 0 else None,
        seconds_left=0 if stands.finished else round(left / speed) if known else None,
        gone=tuple(table.name for table in stands.tables if table.gone),
    )


def _is_done(name: str, stands: SnapshotRecord) -> bool:
    (table,) = [table for table in stands.tables if table.name == name]
    return table.at_end and not any(chunk.table_name == name for chunk in stands.round)


def progress_line(stands: SnapshotRecord) -> str:
    """Chunks and rows done, rows a second and time left, in one line."""
    status = status_of("", stands)
    line = (
        f"{status.chunks} chunks, {status.rows:,} of about {max(status.rows, status.estimated_rows):,} rows, "
        f"{status.tables_done} of {status.tables} tables done"
    )
    if status.rows_per_second is not None:
        line += f", {status.rows_per_second:,} rows/s"
    if status.gone:
        line += f", not there any more: {', '.join(status.gone)}"
    return line if status.seconds_left is None else f"{line}, {status.seconds_left} seconds left"


def snapshots(pipeline: str, states: Mapping[str, CommitLogState]) -> list[SnapshotStatus]:
    """The snapshots of ``pipeline`` in its commit log (`CommitLog.read_all`), the one that was at work last first."""
    ours = snapshot_identity(pipeline, "")
    found = []
    for identity, state in reversed(list(states.items())):
        if identity.startswith(ours):
            done, paused = state.of(ChunkRecord), bool(state.of(PauseRecord))
            found += [status_of(identity, each.with_chunks(done), paused=paused) for each in state.of(SnapshotRecord)]
    return found


def finish_snapshot(connections: PipelineConnections, identity: str) -> SnapshotRecord:
    """A snapshot that is complete; those that were at work long before it are forgotten.

    Raises AccountingError where the commit log does not say that it is.
    """
    found = commit_log_state(connections, identity).of(SnapshotRecord)
    if not found or not found[0].finished:
        raise AccountingError(
            f"snapshot {identity!r} is not finished by the commit log: not all of its rows are known to be in Kafka. "
            "Run it again: its task `snapshot`, or `changefeed snapshot` with its --run-id."
        )
    forget_older(connections, snapshot_identity(connections.pipeline.name, ""), KEPT_SNAPSHOTS)
    return found[0]
