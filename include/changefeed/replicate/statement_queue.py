"""Statements that are sent to a follower one after the other, while the next ones are still being made."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STATEMENTS = 24
"""Made ahead of the one that the server works on."""


class StatementQueue:
    """Runs what it is given in a thread of its own, in order; nothing more behind an error, which whoever comes next
    raises. Who uses the follower's session otherwise waits by `settle` before."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_STATEMENTS)
        self._error: BaseException | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Have ``work`` done behind all that was given before; what that raised is raised here."""
        self._raise()
        self._queue.put(work)

    def settle(self) -> None:
        """Wait until all is done. Raises what it raised."""
        self._queue.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work for as long as the block lasts; what is under way at its end is ended, what waits is dropped where it
        raises."""
        thread = threading.Thread(target=self._run, name="statements", daemon=True)
        thread.start()
        try:
            yield
            self.settle()
        except BaseException as error:
            self._error = self._error or error
            raise
        finally:
            self._queue.put(None)
            thread.join()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            if self._error is None:
                try:
                    work()
                except BaseException as error:  # it is the giver's to raise, whatever it is
                    self._error = error
            self._queue.task_done()
        self._queue.task_done()
