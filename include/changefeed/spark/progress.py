"""How far a running job is, for people: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from changefeed.spark.session import is_connect

_log = logging.getLogger(__name__)
LINE_EVERY_SECONDS = 10.0

Count = Callable[[], int]


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


@contextmanager
def shown(spark: SparkSession, what: str, total: int, messages: MessageCount | str = "") -> Iterator[None]:
    """Show the tasks of the jobs that run inside the block, until it ends, and the ``messages`` of finished ones."""
    done = threading.Event()
    with _connect_tasks(spark, total) if is_connect(spark) else _classic_tasks(spark, what, total) as tasks:

        def finished() -> int:
            return min(total, tasks())

        def bar() -> None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            with Progress(*columns, transient=True) as progress:
                task = progress.add_task(what, total=total)
                while not done.wait(0.2):
                    progress.update(task, completed=finished())

        def lines() -> None:
            while not done.wait(LINE_EVERY_SECONDS):
                _log.info("%s: %d of %d tasks done%s", what, finished(), total, messages)

        watcher = threading.Thread(target=bar if sys.stderr.isatty() else lines, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


@contextmanager
def _classic_tasks(spark: SparkSession, what: str, total: int) -> Iterator[Count]:
    tracker = spark.sparkContext.statusTracker()
    group = f"changefeed-{what}"
    spark.sparkContext.setJobGroup(group, f"changefeed: {what}")

    def finished() -> int:
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job))
            for stage in info.stageIds
        ]
        ours = [stage for stage in stages if stage and stage.numTasks == total]  # others move the rows
        return max(ours, key=lambda stage: stage.stageId).numCompletedTasks if ours else 0

    yield finished


@contextmanager
def _connect_tasks(spark: Any, total: int) -> Iterator[Count]:
    latest = [0]

    def take(stages: list[Any], **_: Any) -> None:
        ours = [stage.num_completed_tasks for stage in stages if stage.num_tasks == total]  # others move the rows
        latest[0] = max(ours, default=latest[0])

    spark.registerProgressHandler(take)
    try:
        yield lambda: latest[0]
    finally:
        spark.removeProgressHandler(take)
