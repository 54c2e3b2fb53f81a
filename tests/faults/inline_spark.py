"""What ingest asks of Spark for a window of one slice, in this process: a kill costs seconds then, not a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

Batches = Iterable[pa.RecordBatch]


class InlineFrame:
    def __init__(self, batches: Callable[[], Batches]) -> None:
        self._batches = batches

    def mapInArrow(self, function: Callable[[Batches], Iterator[pa.RecordBatch]], _schema: str) -> InlineFrame:
        return InlineFrame(lambda: function(iter(self._batches())))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for batch in self._batches() for row in batch.to_pylist()]


class InlineSpark:
    """Stands in for a SparkSession with one core."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(set=lambda *_: None, get=lambda _name, default: default)
        tracker = SimpleNamespace(getJobIdsForGroup=lambda _: [])
        self.sparkContext = SimpleNamespace(
            defaultParallelism=1,
            parallelize=lambda rows, _: rows,
            setJobGroup=lambda *_: None,
            statusTracker=lambda: tracker,
            accumulator=lambda value: SimpleNamespace(value=value, add=lambda _: None),
        )

    def createDataFrame(self, rows: list[tuple[Any, ...]], schema: str) -> InlineFrame:
        names = [column.split()[0] for column in schema.split(",")]
        values = [dict(zip(names, row, strict=True)) for row in rows]
        return InlineFrame(lambda: [pa.RecordBatch.from_pylist(values)] if values else [])
