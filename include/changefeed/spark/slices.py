"""The slices of a window, shared out among Spark's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changefeed.window import Slice

SliceStage = Callable[[Sequence[Slice]], Iterator[pa.RecordBatch]]
"""Slices of one task -> batches of rows."""


def over_tasks(spark: SparkSession, tasks: Sequence[Sequence[Slice]], stage: SliceStage, schema: str) -> DataFrame:
    """What ``stage`` makes of the slices: in a Spark partition, and so a task, for each of ``tasks``.

    They travel with the stage: rows of a DataFrame that Python made would come out of a second Python worker beside
    each task's own.
    """

    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch["id"].to_pylist():
                yield from stage(tasks[task])

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(of_task, schema)


def shared_out(slices: Sequence[Slice], most: int) -> list[list[Slice]]:
    """The slices of each of at most ``most`` tasks: the largest first, each to the task that has least to read, so that
    no core waits for a straggler."""
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
