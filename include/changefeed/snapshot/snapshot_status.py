"""The progress of a snapshot for people: chunks and rows done, rows per second, remaining time."""

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
from changefeed.snapshot.automatic import FIRST_RUN

KEPT_SNAPSHOTS = 20
"""The number of a pipeline's latest snapshots whose records stay in the commit log."""


@dataclass(frozen=True)
class SnapshotStatus:
    """The progress of a snapshot, as the REST API shows it.

    - ``rows``: the number of rows that were read, of about ``estimated_rows``.
    - ``left_out``: the number of them that the snapshot did not publish, because windows publish them.
    - ``seconds_left``: None if it is not known.
    - ``gone``: the dropped tables, whose rows are not all published.
    """

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
        """The status as plain values, for the REST API."""
        return dict(vars(self))


def status_of(identity: str, progress: SnapshotRecord, *, paused: bool = False) -> SnapshotStatus:
    """The status of a snapshot. ``progress`` must include its published chunks (`with_chunks`)."""
    rows = sum(table.rows for table in progress.tables)
    left = sum(
        max(0, table.estimated_rows - table.rows) for table in progress.tables if not _is_done(table.name, progress)
    )
    speed = rows / progress.seconds if progress.seconds > 0 else 0.0
    known = speed > 0 and not progress.finished
    return SnapshotStatus(
        identity=identity,
        began_ms=progress.began_ms,
        finished=progress.finished,
        paused=paused and not progress.finished,
        tables=len(progress.tables),
        tables_done=sum(_is_done(table.name, progress) for table in progress.tables),
        chunks=sum(table.chunks for table in progress.tables),
        rows=rows,
        left_out=sum(table.left_out for table in progress.tables),
        estimated_rows=sum(table.estimated_rows for table in progress.tables),
        rows_per_second=round(speed) if speed > 0 else None,
        seconds_left=0 if progress.finished else round(left / speed) if known else None,
        gone=tuple(table.name for table in progress.tables if table.gone),
    )


def _is_done(name: str, progress: SnapshotRecord) -> bool:
    (table,) = [table for table in progress.tables if table.name == name]
    return table.at_end and not any(chunk.table_name == name for chunk in progress.round)


def progress_line(progress: SnapshotRecord) -> str:
    """The chunks and rows that are done, the rows per second and the remaining time, in one line."""
    status = status_of("", progress)
    line = (
        f"{status.chunks} chunks, {status.rows:,} of about {max(status.rows, status.estimated_rows):,} rows, "
        f"{status.tables_done} of {status.tables} tables done"
    )
    if status.rows_per_second is not None:
        line += f", {status.rows_per_second:,} rows/s"
    if status.gone:
        line += f", dropped meanwhile: {', '.join(status.gone)}"
    return line if status.seconds_left is None else f"{line}, {status.seconds_left} seconds left"


def snapshots(pipeline: str, states: Mapping[str, CommitLogState]) -> list[SnapshotStatus]:
    """The snapshots of ``pipeline`` in its commit log (`CommitLog.read_all`), the latest active first."""
    ours = snapshot_identity(pipeline, "")
    found = []
    for identity, state in reversed(list(states.items())):
        if identity.startswith(ours):
            done, paused = state.of(ChunkRecord), bool(state.of(PauseRecord))
            found += [status_of(identity, each.with_chunks(done), paused=paused) for each in state.of(SnapshotRecord)]
    return found


def finish_snapshot(connections: PipelineConnections, identity: str) -> SnapshotRecord:
    """Return the record of a finished snapshot, and remove all but the KEPT_SNAPSHOTS latest from the commit log.

    The first snapshot's record always stays, because without it the pipeline would take that snapshot again.

    Raises AccountingError if the snapshot is not finished according to the commit log.
    """
    found = commit_log_state(connections, identity).of(SnapshotRecord)
    if not found or not found[0].finished:
        raise AccountingError(
            f"snapshot {identity!r} is not finished according to the commit log, so rows may be missing in Kafka. "
            "Run it again: its task `snapshot`, or `changefeed snapshot` with its --run-id."
        )
    ours = snapshot_identity(connections.pipeline.name, "")
    forget_older(connections, ours, KEPT_SNAPSHOTS, [snapshot_identity(connections.pipeline.name, FIRST_RUN)])
    return found[0]
