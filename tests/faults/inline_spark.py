"""A `SparkTarget` in this process, for windows of one slice, snapshots and verify, so that a killed run has no JVM."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Rows = Iterable[Any]
TaskInput = TypeVar("TaskInput")
Result = TypeVar("Result")


class InlineFrame:
    """Replaces a DataFrame of Arrow batches, with one partition."""

    def __init__(self, batches: Callable[[], Rows]) -> None:
        self.batches = batches

    def mapInArrow(self, function: Callable[[Rows], Rows], _schema: str) -> InlineFrame:
        return InlineFrame(lambda: function(iter(self.batches())))

    def localCheckpoint(self, **_: Any) -> InlineFrame:
        return InlineFrame(cache(lambda: list(self.batches())))

    def where(self, condition: str) -> InlineFrame:
        """Rows whose ``kind`` is one of the quoted words of the condition, or none of them if it has a <>."""
        kinds = pa.array(re.findall(r"'(\w+)'", condition))
        chosen = pc.invert if "<>" in condition else lambda mask: mask
        return InlineFrame(
            lambda: (batch.filter(chosen(pc.is_in(batch["kind"], kinds))) for batch in self.batches()),
        )

    def union(self, other: InlineFrame) -> InlineFrame:
        return InlineFrame(lambda: (*self.batches(), *other.batches()))

    def repartition(self, _count: int, *_columns: str) -> InlineFrame:
        return self

    def sortWithinPartitions(self, column: str) -> InlineFrame:
        def ordered() -> Rows:
            batches = list(self.batches())
            return pa.Table.from_batches(batches).sort_by(column).to_batches() if batches else batches

        return InlineFrame(ordered)

    def select(self, *columns: str) -> InlineFrame:
        return InlineFrame(lambda: (batch.select(columns) for batch in self.batches()))

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for batch in self.batches() for row in batch.to_pylist()]


class InlineSession:
    """Replaces a SparkSession."""

    conf = SimpleNamespace(set=lambda *_: None)

    def range(self, start: int, end: int, _step: int, _partitions: int) -> InlineFrame:
        return InlineFrame(lambda: [pa.RecordBatch.from_pydict({"id": range(start, end)})])


class InlineTasks:
    total = 0

    def expect(self, tasks: int) -> None:
        self.total += tasks

    def done(self) -> int:
        return 0

    def close(self) -> None:
        pass


class InlineSpark:
    """A `SparkTarget` with one core."""

    may_copy_tasks = False
    session: Any = InlineSession()
    is_warm = False
    """Whether `warm_up` was called."""

    def cores(self) -> int:
        return 1

    def keep_connected(self) -> None:
        pass

    def local_folder(self) -> AbstractContextManager[str | None]:
        return tempfile.TemporaryDirectory(prefix="changefeed-")

    def warm_up(self, _workers: int) -> Callable[[], None]:
        self.is_warm = True
        return lambda: None

    def results_of(self, tasks: Sequence[TaskInput], stage: Callable[[TaskInput], Iterable[Result]]) -> list[Result]:
        return [result for task in tasks for result in stage(task)]

    def tag_jobs(self, tag: str) -> None:
        pass

    def end_jobs(self, tag: str) -> None:
        pass

    def forget_checkpoint(self, checkpointed: object) -> None:
        pass

    def watch_tasks(self, _what: str) -> InlineTasks:
        return InlineTasks()

    def counter(self) -> None:
        return None
