"""plan: preflight the source and freeze the window that this run will publish."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.connection import ConnectionLookup, MysqlConnection
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import BinlogGoneError
from changefeed.mysql import source
from changefeed.mysql.preflight import preflight
from changefeed.mysql.session import Session
from changefeed.pipeline import Pipeline
from changefeed.window import BinlogFile, Window

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The frozen window, and the checkpoint that it starts from: what `commit` compares with."""

    window: Window
    expected: Checkpoint
    lag_bytes: int


def plan(
    pipeline: Pipeline, lookup: ConnectionLookup, store: CheckpointStore, *, keep_first_checkpoint: bool = True
) -> Plan:
    """Freeze ``[checkpoint, head)``; an empty window means that nothing is new.

    A pipeline without a checkpoint gets its first one here, at its `start`, so that also a start at `latest` is a
    place that the next run goes on from; a dry run leaves it out of the store.

    Raises SourceError or BinlogGoneError where the source cannot serve the
    window, StaleCheckpointError where another run moved the checkpoint meanwhile.
    """
    mysql = MysqlConnection.from_uri(lookup(pipeline.source.connection))
    with Session(mysql) as session:
        preflight(session)
        uuid = source.server_uuid(session)
        head = source.head(session)
        files = source.binlog_files(session)
        checkpoint = store.load(pipeline.name)
        if checkpoint is None:
            checkpoint = _first_checkpoint(pipeline, session, uuid, head)
            if keep_first_checkpoint:
                store.advance(None, checkpoint)
            _log.info("pipeline %s: first checkpoint at %s", pipeline.name, checkpoint.coordinates)
        check_same_history(checkpoint, uuid, head.coordinates, files)
    window = Window(
        pipeline=pipeline.name,
        number=checkpoint.window + 1,
        server_uuid=uuid,
        start=checkpoint.coordinates,
        head=head.coordinates,
        start_gtids=checkpoint.gtids,
        head_gtids=head.gtids,
        frozen_at_ms=int(time.time() * 1000),
    )
    return Plan(window, checkpoint, lag_bytes(checkpoint.coordinates, head.coordinates, files))


def check_same_history(checkpoint: Checkpoint, uuid: str, head: BinlogCoordinates, files: list[BinlogFile]) -> None:
    """Raises BinlogGoneError when the server's binlog is not the one that ``checkpoint`` stands in."""
    what = f"to resume pipeline {checkpoint.pipeline!r}"
    if uuid != checkpoint.server_uuid:
        raise BinlogGoneError(
            f"checkpoint {checkpoint.coordinates} of pipeline {checkpoint.pipeline!r} belongs to server "
            f"{checkpoint.server_uuid}, found server {uuid}: the same coordinates mean other changes there. Point the "
            "connection at the old server, or seek the pipeline to where it should resume on the new one."
        )
    if head.base != checkpoint.coordinates.base:
        raise BinlogGoneError(
            f"binlogs are named {head.base!r} now, and {checkpoint.coordinates} was wanted {what}: log_bin was "
            "changed. Seek the pipeline to where it should resume."
        )
    source.check_present(checkpoint.coordinates, files, what)
    if not head.has_reached(checkpoint.coordinates):
        raise BinlogGoneError(
            f"the server's binlog ends at {head}, before {checkpoint.coordinates} needed {what}: it was reset, or "
            "restored to an older point. Take a snapshot and seek."
        )


def lag_bytes(start: BinlogCoordinates, head: BinlogCoordinates, files: list[BinlogFile]) -> int:
    """Bytes of binlog between two coordinates."""
    between = sum(
        file.size_bytes for file in files if start.number <= BinlogCoordinates(file.name, 0).number < head.number
    )
    return between + head.position - start.position


def _first_checkpoint(pipeline: Pipeline, session: Session, uuid: str, head: source.Head) -> Checkpoint:
    coordinates = source.start_coordinates(session, pipeline.start, head)
    gtids = head.gtids if coordinates == head.coordinates else ""
    if pipeline.start == "earliest":
        gtids = (session.variable("gtid_purged") or "").replace("\n", "")
    return Checkpoint(pipeline.name, 0, uuid, coordinates, gtids, int(time.time() * 1000))
