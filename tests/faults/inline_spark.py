"""What ingest asks of Spark for a window of one slice, in this process: a kill costs seconds then, not a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

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


class InlineSpark:
    """Stands in for a SparkSession with one core."""

    def __init__(self) -> None:
        tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [])
        self.sparkContext = SimpleNamespace(
            defaultParallelism=1,
            getConf=dict,
            parallelize=lambda rows, _: InlineRdd(lambda: rows),
            setJobGroup=lambda *_: None,
            statusTracker=lambda: tracker,
        )
