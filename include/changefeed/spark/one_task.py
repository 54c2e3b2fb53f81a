"""A stage whose slices all go into one task: what most windows are, and what has to start soon.

Spark's RDDs do it. A DataFrame costs a session of Spark's SQL in the JVM, a plan, generated code and an import of
pandas before its first task begins, 2 CPU seconds; a Connect server, which has all that already, knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from changefeed.spark import frame
from changefeed.spark.connect import is_connect
from changefeed.window import Slice

Stage = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Batches of frame.SLICE_SCHEMA -> batches of frame.PUBLISHED_SCHEMA."""


def in_one_task(spark: SparkSession, slices: Sequence[Slice], stage: Stage) -> list[tuple[str, str]]:
    """Run ``stage`` over all of ``slices`` in one task of Spark; kind and text of each row that it makes."""

    def rows(_: Iterable[object]) -> Iterator[tuple[str, str]]:
        for batch in stage([frame.slice_batch(slices)]):
            yield from zip(batch["kind"].to_pylist(), batch["text"].to_pylist(), strict=True)

    if not is_connect(spark):
        return spark.sparkContext.parallelize(range(1), 1).mapPartitions(rows).collect()
    made = spark.range(0, 1, 1, 1).mapInArrow(lambda _: stage([frame.slice_batch(slices)]), frame.PUBLISHED_SCHEMA)
    return [(row.kind, row.text) for row in made.collect()]
