"""How far a running job is, for people: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

from pyspark.sql import SparkSession
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from changefeed.spark.connect import is_connect

_log = logging.getLogger(__name__)
LINE_EVERY_SECONDS = 10.0


class MessageCount:
    """Messages of the tasks that are done: an accumulator. A Connect server has none; nothing is counted there."""

    def __init__(self, spark: SparkSession) -> None:
        self._sum = None if is_connect(spark) else spark.sparkContext.accumulator(0)

    def add(self, messages: int) -> None:
        """Count ``messages`` more; called in tasks."""
        if self._sum is not None:
            self._sum.add(messages)

    def __str__(self) -> str:
        return f", {self._sum.value:,} messages so far" if self._sum is not None else ""


class Tasks(Protocol):
    """The tasks of the jobs that are shown. Jobs may run at once, each in a thread of its own."""

    total: int

    def expect(self, tasks: int) -> None:
        """Tell that the next job of the calling thread has so many tasks more."""
        ...

    def done(self) -> int:
        """How many of them are done."""
        ...

    def close(self) -> None:
        """Look at no more jobs."""
        ...


@contextmanager
def shown(spark: SparkSession, what: str, total: int = 0, messages: MessageCount | str = "") -> Iterator[Tasks]:
    """Show the tasks of the jobs that run inside the block, until it ends, and the ``messages`` of finished ones.

    ``total`` are the tasks of this thread's job; what is yielded is told of those of others.
    """
    ended = threading.Event()
    tasks: Tasks = _ConnectTasks(spark) if is_connect(spark) else _ClassicTasks(spark, what)
    with closing(tasks):
        if total:
            tasks.expect(total)

        def bar() -> None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, transient=True) as progress:
                task = progress.add_task(what, total=tasks.total)
                while not ended.wait(0.2):
                    progress.update(task, total=tasks.total, completed=tasks.done())

        def lines() -> None:
            while not ended.wait(LINE_EVERY_SECONDS):
                _log.info("%s: %d of %d tasks done%s", what, tasks.done(), tasks.total, messages)

        watcher = threading.Thread(target=bar if sys.stderr.isatty() else lines, daemon=True)
        watcher.start()
        try:
            yield tasks
        finally:
            ended.set()
            watcher.join()


class _ClassicTasks:
    """Each thread's job has a job group of its own, by which Spark's status tracker finds its stages."""

    def __init__(self, spark: SparkSession, what: str) -> None:
        self._context, self._what, self.total = spark.sparkContext, what, 0
        self._tasks: dict[str, int] = {}

    def expect(self, tasks: int) -> None:
        group = f"changefeed-{self._what}-{uuid.uuid4().hex}"
        self._context.setJobGroup(group, f"changefeed: {self._what}")
        self._tasks[group] = tasks
        self.total += tasks

    def done(self) -> int:
        return sum(self._done_of(group, tasks) for group, tasks in list(self._tasks.items()))

    def _done_of(self, group: str, tasks: int) -> int:
        tracker = self._context.statusTracker()
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job))
            for stage in info.stageIds
        ]
        ours = [stage for stage in stages if stage and stage.numTasks == tasks]  # others move the rows
        return max(ours, key=lambda stage: stage.stageId).numCompletedTasks if ours else 0

    def close(self) -> None:
        pass


class _ConnectTasks:
    """The server tells of the stages of each operation while it runs."""

    def __init__(self, spark: Any) -> None:
        self._spark, self.total = spark, 0
        self._sizes: set[int] = set()
        self._done: dict[str, int] = {}
        spark.registerProgressHandler(self._take)

    def expect(self, tasks: int) -> None:
        self._sizes.add(tasks)
        self.total += tasks

    def _take(self, stages: list[Any], operation_id: str, **_: Any) -> None:
        ours = [stage.num_completed_tasks for stage in stages if stage.num_tasks in self._sizes]  # others move the rows
        self._done[operation_id] = max(ours, default=self._done.get(operation_id, 0))

    def done(self) -> int:
        return min(self.total, sum(list(self._done.values())))

    def close(self) -> None:
        self._spark.removeProgressHandler(self._take)
