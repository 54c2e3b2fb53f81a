"""Progress of running jobs: a line on a terminal, lines in a log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from changefeed.repeated import repeated
from changefeed.spark.progress_line import LOG_EVERY_SECONDS, Parts, Progress, is_shown, log_text, progress_line
from changefeed.spark.target import SparkTarget, Tasks

_log = logging.getLogger(__name__)


class StageCount:
    """The slices or topic-partitions (``name``) of a stage, and the parts and messages of its finished tasks.

    They are counted in accumulators. A Connect server has none, so only what the finished tasks tell is known there.
    """

    def __init__(self, spark: SparkTarget, name: str, total: int = 0) -> None:
        self.name, self.total = name, total
        self._parts, self._messages = spark.counter(), spark.counter()

    def add_messages(self, messages: int) -> None:
        """Count ``messages`` more; called in tasks."""
        if self._messages is not None:
            self._messages.add(messages)

    def add_part(self) -> None:
        """Count one part more; called in tasks."""
        if self._parts is not None:
            self._parts.add(1)

    @property
    def messages(self) -> int | None:
        """The messages so far; None if they are not counted."""
        return None if self._messages is None else self._messages.value

    def parts(self, tasks: Tasks) -> Parts:
        """The parts so far, of a stage with ``tasks``."""
        if self._parts is not None:
            return Parts(self.name, self.total, min(self._parts.value, self.total))  # a repeated task counts again
        return Parts(self.name, self.total, tasks.done() if tasks.total == self.total else None)


@contextmanager
def show_progress(
    spark: SparkTarget, what: str, total: int = 0, count: StageCount | None = None, *, logs: bool = True
) -> Iterator[Tasks]:
    """Show the finished tasks of the jobs that run in the block, and the ``count`` of what they did.

    ``total`` is the number of tasks of this thread's job. Other threads announce theirs with `Tasks.expect` of the
    yielded object. Without a terminal there is a line in the log each LOG_EVERY_SECONDS, unless ``logs`` is False.
    """
    with closing(spark.watch_tasks(what)) as tasks:
        if total:
            tasks.expect(total)

        def read() -> Progress:
            if count is None:
                return Progress(tasks.done(), tasks.total)
            return Progress(tasks.done(), tasks.total, "tasks", count.messages, "messages", count.parts(tasks))

        with _log_lines(what, read) if logs and not is_shown() else progress_line(what, read):
            yield tasks


@contextmanager
def _log_lines(what: str, read: Callable[[], Progress]) -> Iterator[None]:
    with repeated(lambda: _log.info("%s", log_text(what, read())), LOG_EVERY_SECONDS, "changefeed-progress"):
        yield
