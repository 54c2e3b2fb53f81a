"""What ingest asks of Spark for a window of one slice, and a snapshot for its chunks, in this process: a kill costs
seconds then, not a JVM."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import SparkFiles

Rows = Iterable[Any]


class InlineRdd:
    def __init__(self, rows: Callable[[], Rows]) -> None:
        self.rows = rows

    def mapPartitions(self, function: Callable[[Rows], Rows]) -> InlineRdd:
        return InlineRdd(lambda: function(iter(self.rows())))

    def foreachPartition(self, function: Callable[[Rows], None]) -> None:
        function(iter(self.rows()))

    def collect(self) -> list[Any]:
        return list(self.rows())


class InlineFrame:
    """Stands in for a DataFrame of Arrow batches, in one partition."""

    _jdf = Mock()

    def __init__(self, spark: InlineSpark, batches: Callable[[], Rows]) -> None:
        self.sparkSession, self.batches = spark, batches

    def mapInArrow(self, function: Callable[[Rows], Rows], _schema: str) -> InlineFrame:
        return InlineFrame(self.sparkSession, lambda: function(iter(self.batches())))

    def localCheckpoint(self, **_: Any) -> InlineFrame:
        return InlineFrame(self.sparkSession, cache(lambda: list(self.batches())))

    def where(self, condition: str) -> InlineFrame:
        """Of conditions on ``kind``: each of the words in it that stand in quotes, or all others where it has a <>."""
        kinds = pa.array(re.findall(r"'(\w+)'", condition))
        chosen = pc.invert if "<>" in condition else lambda mask: mask
        return InlineFrame(
            self.sparkSession,
            lambda: (batch.filter(chosen(pc.is_in(batch["kind"], kinds))) for batch in self.batches()),
        )

    def union(self, other: InlineFrame) -> InlineFrame:
        return InlineFrame(self.sparkSession, lambda: (*self.batches(), *other.batches()))

    def repartition(self, _count: int, *_columns: str) -> InlineFrame:
        return self

    def sortWithinPartitions(self, column: str) -> InlineFrame:
        def ordered() -> Rows:
            batches = list(self.batches())
            return pa.Table.from_batches(batches).sort_by(column).to_batches() if batches else batches

        return InlineFrame(self.sparkSession, ordered)

    def select(self, *columns: str) -> InlineFrame:
        return InlineFrame(self.sparkSession, lambda: (batch.select(columns) for batch in self.batches()))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for batch in self.batches() for row in batch.to_pylist()]


class InlineSpark:
    """Stands in for a SparkSession with one core."""

    conf = SimpleNamespace(set=lambda *_: None)

    def range(self, start: int, end: int, _step: int, _partitions: int) -> InlineFrame:
        return InlineFrame(self, lambda: [pa.RecordBatch.from_pydict({"id": range(start, end)})])

    def __init__(self) -> None:
        tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [])
        self.sparkContext = SimpleNamespace(
            defaultParallelism=1,
            master="local[1]",
            getConf=dict,
            parallelize=lambda rows, _: InlineRdd(lambda: rows),
            setJobGroup=lambda *_: None,
            statusTracker=lambda: tracker,
        )
        SparkFiles.getRootDirectory = tempfile.gettempdir  # which asks a context of Spark's own
