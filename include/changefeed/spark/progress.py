"""How far a running job is, for people: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_log = logging.getLogger(__name__)
LINE_EVERY_SECONDS = 10.0


@contextmanager
def shown(spark: SparkSession, what: str, total: int) -> Iterator[None]:
    """Show the tasks of the jobs that run inside the block, until it ends."""
    tracker = spark.sparkContext.statusTracker()
    done = threading.Event()
    group = f"changefeed-{what}"
    spark.sparkContext.setJobGroup(group, f"changefeed: {what}")

    def finished() -> int:
        stages = [
            tracker.getStageInfo(stage)
            for job in tracker.getJobIdsForGroup(group)
            if (info := tracker.getJobInfo(job))
            for stage in info.stageIds
        ]
        return min(total, sum(stage.numCompletedTasks for stage in stages if stage))

    def bar() -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, transient=True) as progress:
            task = progress.add_task(what, total=total)
            while not done.wait(0.2):
                progress.update(task, completed=finished())

    def lines() -> None:
        while not done.wait(LINE_EVERY_SECONDS):
            _log.info("%s: %d of %d tasks done", what, finished(), total)

    watcher = threading.Thread(target=bar if sys.stderr.isatty() else lines, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
