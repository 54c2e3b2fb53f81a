"""A stage whose slices all go into one task: what most windows are, and what has to start soon.

Spark's RDDs do it. A DataFrame costs a session of Spark's SQL in the JVM, a plan, generated code and an import of
pandas before its first task begins, 2 CPU seconds; a Connect server, which has all that already, knows nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from changefeed.spark import frame
from changefeed.spark.connect import is_connect
from changefeed.spark.slices import SliceStage
from changefeed.window import Slice


def in_one_task(spark: SparkSession, slices: Sequence[Slice], stage: SliceStage) -> list[tuple[str, str]]:
    """Run ``stage`` over all of ``slices`` in one task of Spark; kind and text of each row that it makes.

    Its rows are of frame.PUBLISHED_SCHEMA.
    """

    def rows(_: Iterable[object]) -> Iterator[tuple[str, str]]:
        for batch in stage(slices):
            yield from zip(batch["kind"].to_pylist(), batch["text"].to_pylist(), strict=True)

    if not is_connect(spark):
        return spark.sparkContext.parallelize(range(1), 1).mapPartitions(rows).collect()
    made = spark.range(0, 1, 1, 1).mapInArrow(lambda _: stage(slices), frame.PUBLISHED_SCHEMA)
    return [(row.kind, row.text) for row in made.collect()]
