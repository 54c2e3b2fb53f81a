"""The dump of a slice, wherever the window's binlog is read from."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.model.window import Slice
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.server_ids import NO_SERVER_ID
from changefeed.spark.stages.decode_task import DecodeTask, task_number


def dump_of(task: DecodeTask, piece: Slice, *, beside: bool = False) -> Iterable[bytes]:
    """The events of ``piece``: as the scout kept them, or over a connection of its own, or out of the archive.

    ``beside`` another dump of the same task it names no server_id, as a server drops the older of two with the same.
    """
    if not beside and task.scouted is not None and (kept := task.scouted.of(piece)) is not None:
        return kept
    if task.archive is not None:
        return ArchivedBinlogs(task.archive).chunks(piece.file, piece.start, piece.end)
    server_id = NO_SERVER_ID if beside else task.server_ids.of_task(task_number())
    source = task.pipeline.source
    return DumpStream(
        task.session(),
        file=piece.file,
        start=piece.start,
        end=piece.end,
        server_id=server_id,
        identity=task.files.get(piece.file),
        heartbeat_seconds=source.heartbeat_seconds,
        reader_name=f"changefeed/{task.pipeline.name}" if source.register_as_replica else "",
        max_bytes_per_second=source.max_bytes_per_second,
    )


def kept_dump_of(task: DecodeTask, piece: Slice) -> Iterable[bytes]:
    """As `dump_of`, for the driver: where it can be, what passes is kept for the tasks of ``piece``'s slices."""
    dump = dump_of(task, piece, beside=True)
    return dump if task.scouted is None else task.scouted.passing(dump, piece)
