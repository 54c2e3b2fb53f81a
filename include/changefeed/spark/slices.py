"""The slices of a window, shared out among Spark's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changefeed.spark import frame
from changefeed.spark.connect import is_connect
from changefeed.window import Slice


def slice_frame(spark: SparkSession, slices: Sequence[Slice], most_tasks: int) -> DataFrame:
    """One row a slice: a Spark partition, and so a task, for each, or ``most_tasks`` of them.

    The largest slices come first, so that no core waits for a straggler.
    """
    tasks = shared_out(slices, most_tasks)
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
