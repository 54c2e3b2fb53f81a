"""Progress of running jobs: a line on a terminal, lines in a log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from changefeed.spark.progress_line import LOG_EVERY_SECONDS, Progress, is_shown, log_text, progress_line
from changefeed.spark.target import SparkTarget, Tasks

_log = logging.getLogger(__name__)


class MessageCount:
    """The number of messages of finished tasks, in an accumulator. A Connect server has none, so nothing is counted."""

    def __init__(self, spark: SparkTarget) -> None:
        self._sum = spark.counter()

    def add(self, messages: int) -> None:
        """Count ``messages`` more; called in tasks."""
        if self._sum is not None:
            self._sum.add(messages)

    @property
    def value(self) -> int | None:
        """The messages so far; None if they are not counted."""
        return None if self._sum is None else self._sum.value


@contextmanager
def show_progress(
    spark: SparkTarget, what: str, total: int = 0, messages: MessageCount | None = None, *, logs: bool = True
) -> Iterator[Tasks]:
    """Show the finished tasks of the jobs that run in the block, and the ``messages`` of finished tasks.

    ``total`` is the number of tasks of this thread's job. Other threads announce theirs with `Tasks.expect` of the
    yielded object. Without a terminal there is a line in the log each LOG_EVERY_SECONDS, unless ``logs`` is False.
    """
    with closing(spark.watch_tasks(what)) as tasks:
        if total:
            tasks.expect(total)

        def read() -> Progress:
            return Progress(tasks.done(), tasks.total, "tasks", messages.value if messages else None, "messages")

        with _log_lines(what, read) if logs and not is_shown() else progress_line(what, read):
            yield tasks


@contextmanager
def _log_lines(what: str, read: Callable[[], Progress]) -> Iterator[None]:
    ended = threading.Event()

    def lines() -> None:
        while not ended.wait(LOG_EVERY_SECONDS):
            _log.info("%s", log_text(what, read()))

    watcher = threading.Thread(target=lines, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
