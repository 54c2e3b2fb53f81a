"""Cutting a window into slices: closed files as they are, larger ones where the scout says."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changefeed.binlog.search.scout import Scouting, numbered, scout
from changefeed.errors import ChangefeedError
from changefeed.reader import Statement
from changefeed.spark import frame
from changefeed.spark.dump import dump_of
from changefeed.spark.job import IngestJob
from changefeed.spark.progress import shown
from changefeed.spark.session import is_connect
from changefeed.window import Slice

_SCOUT_FROM = 1.5
"""How many slices large a file must be for the scout's pass over it to pay."""


def slice_frame(spark: SparkSession, job: IngestJob, slices: Sequence[Slice]) -> DataFrame:
    """One row a slice: a Spark partition, and so a task, for each, or as many as there are server_ids to read with.

    The largest slices come first, so that no core waits for a straggler.
    """
    tasks = shared_out(slices, job.server_ids.tasks(len(slices)))
    rows = [
        (task, piece.number, piece.file, piece.start, piece.end, piece.gtid)
        for task, pieces in enumerate(tasks)
        for piece in pieces
    ]
    if len(tasks) == len(rows) and not is_connect(spark):
        alone = spark.sparkContext.parallelize([row[1:] for row in rows], max(1, len(rows)))
        return spark.createDataFrame(alone, frame.SLICE_SCHEMA)
    local = spark.createDataFrame(rows, f"task int, {frame.SLICE_SCHEMA}")
    by_task = local.repartitionById(len(tasks), F.col("task")) if len(tasks) > 1 else local.coalesce(1)
    return by_task.drop("task")


def shared_out(slices: Sequence[Slice], most: int) -> list[list[Slice]]:
    """The slices of each of at most ``most`` tasks: the largest first, each to the task that has least to read."""
    ordered = sorted(slices, key=lambda piece: -piece.size_bytes)
    if most >= len(ordered):
        return [[piece] for piece in ordered]
    tasks: list[list[Slice]] = [[] for _ in range(most)]
    loads = [(0, number) for number in range(most)]
    for piece in ordered:
        size_bytes, number = heapq.heappop(loads)
        tasks[number].append(piece)
        heapq.heappush(loads, (size_bytes + piece.size_bytes, number))
    return tasks


@dataclass(frozen=True)
class Cutting:
    """A window's slices in binlog order; ``statements`` are all of the window's, or None where not all was scouted."""

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...] | None


def cut(
    spark: SparkSession, job: IngestJob, files: Sequence[Slice], slice_bytes: int, *, scout_all: bool = False
) -> Cutting:
    """Cut a window. ``files`` are its whole-file slices; the large files are scouted in parallel, or all of them.

    Raises what the scout or the connection raises.
    """
    wanted = [piece for piece in files if scout_all or piece.size_bytes > _SCOUT_FROM * slice_bytes]
    if not wanted:
        return Cutting(tuple(files), None)
    scoutings = dict(zip((piece.number for piece in wanted), _scout(spark, job, wanted, slice_bytes), strict=True))
    parts = (scoutings[piece.number].slices if piece.number in scoutings else (piece,) for piece in files)
    slices = numbered(piece for part in parts for piece in part)
    if len(wanted) < len(files):
        return Cutting(tuple(slices), None)
    return Cutting(
        tuple(slices), tuple(statement for scouting in scoutings.values() for statement in scouting.statements)
    )


def _scout(spark: SparkSession, job: IngestJob, large: Sequence[Slice], slice_bytes: int) -> list[Scouting]:
    def scout_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in frame.slices_of(batches):
            try:
                scouting = scout(dump_of(job, piece), piece, slice_bytes)
            except ChangefeedError as error:
                yield frame.published_batch("error", frame.error_text(error))
            else:
                yield frame.published_batch("scouting", orjson.dumps([piece.number, scouting]).decode())

    with shown(spark, "scout", len(large)):
        rows = slice_frame(spark, job, large).mapInArrow(scout_files, frame.PUBLISHED_SCHEMA).collect()
    scoutings: dict[int, Scouting] = {}
    for row in rows:
        if row.kind == "error":
            raise frame.error_from(row.text)
        number, values = orjson.loads(row.text)
        scoutings[number] = Scouting(
            tuple(Slice(**piece) for piece in values["slices"]),
            tuple(Statement(**statement) for statement in values["statements"]),
            values["events"],
        )
    return [scoutings[piece.number] for piece in large]
