"""Stages without a shuffle: slices shared out among Spark's tasks, and what those say of them.

Spark's RDDs do it. A DataFrame costs a session of Spark's SQL in the JVM, a plan, generated code and an import of
pandas before its first task begins, 2 CPU seconds; a Connect server, which has all that already, knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from pyspark import SparkContext
from pyspark.sql import SparkSession

from changefeed.spark import frame
from changefeed.spark.connect import is_connect
from changefeed.spark.slices import SliceStage, over_tasks
from changefeed.window import Slice

Given = TypeVar("Given")
Row = TypeVar("Row")


def in_tasks(spark: SparkSession, tasks: Sequence[Sequence[Slice]], stage: SliceStage) -> list[tuple[str, str]]:
    """Run ``stage`` over the slices of each of ``tasks``; kind and text of each row that it makes.

    Its rows are of frame.PUBLISHED_SCHEMA.
    """
    if is_connect(spark):
        made = over_tasks(spark, tasks, stage, frame.PUBLISHED_SCHEMA)
        return [(row.kind, row.text) for row in made.collect()]

    def rows(slices: Sequence[Slice]) -> Iterator[tuple[str, str]]:
        for batch in stage(slices):
            yield from zip(batch["kind"].to_pylist(), batch["text"].to_pylist(), strict=True)

    return rows_of_tasks(spark.sparkContext, tasks, rows)


def rows_of_tasks(context: SparkContext, tasks: Sequence[Given], rows: Callable[[Given], Iterator[Row]]) -> list[Row]:
    """What ``rows`` makes of each of ``tasks``, each in a Spark task of that number, which alone is sent it."""

    def of_task(given: Iterable[Given]) -> Iterator[Row]:
        for each in given:
            yield from rows(each)

    return context.parallelize(tasks, len(tasks)).mapPartitions(of_task).collect()
