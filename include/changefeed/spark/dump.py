"""The dump of a slice, wherever the window's binlog is read from."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.server_ids import NO_SERVER_ID
from changefeed.spark.job import IngestJob, task_number
from changefeed.window import Slice


def dump_of(job: IngestJob, piece: Slice, *, beside: bool = False) -> Iterable[bytes]:
    """The events of ``piece``: as the scout kept them, or over a connection of its own, or out of the archive.

    ``beside`` another dump of the same task it names no server_id, as a server drops the older of two with the same.
    """
    if not beside and job.scouted is not None and (kept := job.scouted.of(piece)) is not None:
        return kept
    if job.archive is not None:
        return ArchivedBinlogs(job.archive).chunks(piece.file, piece.start, piece.end)
    server_id = NO_SERVER_ID if beside else job.server_ids.of_task(task_number())
    return DumpStream(
        job.session(),
        file=piece.file,
        start=piece.start,
        end=piece.end,
        server_id=server_id,
        identity=job.files.get(piece.file),
        heartbeat_seconds=job.pipeline.source.heartbeat_seconds,
    )


def kept_dump_of(job: IngestJob, piece: Slice) -> Iterable[bytes]:
    """As `dump_of`, for the driver: where it can be, what passes is kept for the tasks of ``piece``'s slices."""
    dump = dump_of(job, piece, beside=True)
    return dump if job.scouted is None else job.scouted.passing(dump, piece)
