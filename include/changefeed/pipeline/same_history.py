"""Compares a checkpoint with the binlog of its source, by what a few statements read."""

from __future__ import annotations

from changefeed.errors import BinlogGoneError
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile
from changefeed.source.mysql import source


def check_same_history(checkpoint: Checkpoint, uuid: str, head: BinlogCoordinates, files: list[BinlogFile]) -> None:
    """Raise BinlogGoneError if the server's binlog is not the binlog of ``checkpoint``."""
    what = f"to resume pipeline {checkpoint.pipeline!r}"
    if uuid != checkpoint.server_uuid:
        raise BinlogGoneError(
            f"checkpoint {checkpoint.coordinates} of pipeline {checkpoint.pipeline!r} belongs to server "
            f"{checkpoint.server_uuid}, found server {uuid}: the same coordinates mean other changes there. Point the "
            "connection at the old server, or seek the pipeline to where it should resume on the new one."
        )
    if head.base != checkpoint.coordinates.base:
        raise BinlogGoneError(
            f"binlogs are named {head.base!r} now, expected {checkpoint.coordinates} {what}: log_bin was "
            "changed. Seek the pipeline to where it should resume."
        )
    source.check_present(checkpoint.coordinates, files, what)
    if not head.has_reached(checkpoint.coordinates):
        raise BinlogGoneError(
            f"the server's binlog ends at {head}, before {checkpoint.coordinates} needed {what}: it was reset, or "
            "restored to an older point. Seek the pipeline to where it should resume."
        )
