"""Open the dump of a slice: from the server, from an archive, or from the bytes that the scout stored."""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.model.window import Slice
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.server_ids import NO_SERVER_ID
from changefeed.spark.stages.decode_task import DecodeTask, task_number


def open_dump(task: DecodeTask, slice: Slice, *, beside: bool = False) -> Iterable[bytes]:
    """The events of ``slice``: from the scout's stored bytes, from the archive, or over a new connection.

    ``beside`` must be true if the task has another dump open: the new one has no server_id, because a server ends the
    older of two dumps with the same id.
    """
    if not beside and task.scouted_bytes is not None and (stored := task.scouted_bytes.of(slice)) is not None:
        return stored
    if task.archive is not None:
        return ArchivedBinlogs(task.archive).chunks(slice.file, slice.start, slice.end)
    server_id = NO_SERVER_ID if beside else task.server_ids.of_task(task_number())
    source = task.pipeline.source
    return DumpStream(
        task.session(),
        file=slice.file,
        start=slice.start,
        end=slice.end,
        server_id=server_id,
        identity=task.files.get(slice.file),
        heartbeat_seconds=source.heartbeat_seconds,
        reader_name=f"changefeed/{task.pipeline.name}" if source.register_as_replica else "",
        max_bytes_per_second=source.max_bytes_per_second,
    )


def open_stored_dump(task: DecodeTask, slice: Slice) -> Iterable[bytes]:
    """Like `open_dump`, for the scout in the driver: if possible, the bytes are stored for the tasks that decode
    them."""
    dump = open_dump(task, slice, beside=True)
    return dump if task.scouted_bytes is None else task.scouted_bytes.store(dump, slice)
