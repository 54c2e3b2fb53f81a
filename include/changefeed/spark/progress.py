"""Progress of running jobs: a bar on a terminal, lines in a log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from changefeed.spark.target import SparkTarget, Tasks

_log = logging.getLogger(__name__)
LINE_EVERY_SECONDS = 10.0


class MessageCount:
    """The number of messages of finished tasks, in an accumulator. A Connect server has none, so nothing is counted."""

    def __init__(self, spark: SparkTarget) -> None:
        self._sum = spark.counter()

    def add(self, messages: int) -> None:
        """Count ``messages`` more; called in tasks."""
        if self._sum is not None:
            self._sum.add(messages)

    def __str__(self) -> str:
        return f", {self._sum.value:,} messages so far" if self._sum is not None else ""


@contextmanager
def show_progress(spark: SparkTarget, what: str, total: int = 0, messages: MessageCount | str = "") -> Iterator[Tasks]:
    """Show the finished tasks of the jobs that run in the block, and the ``messages`` of finished tasks.

    ``total`` is the number of tasks of this thread's job. Other threads announce theirs with `Tasks.expect` of the
    yielded object.
    """
    ended = threading.Event()
    with closing(spark.watch_tasks(what)) as tasks:
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
