"""A lease that a continuous run keeps between two windows.

A lease of its own costs a window five records in the commit log and the time of six requests. So the run keeps the last
one while its windows follow one another closely. It gives the lease back when another process claims it, so that an
operation goes between two windows; after an error; and when no window has used it for a while, so that an idle pipeline
writes nothing: it does not repeat a claim that no window uses.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.kafka.lease import Lease
from changefeed.kept_clients import KEPT_SECONDS

IDLE_SECONDS = 2.0
"""How long a lease is kept without a use; less if its claim must be repeated earlier."""


class KeptLease:
    """The lease of the windows of one run. Call `close_idle` while the run waits for changes, `close` at its end."""

    def __init__(self) -> None:
        self._lease: Lease | None = None
        self._opened_at = self._used_at = 0.0

    @contextmanager
    def use(self, new: Lease) -> Iterator[Lease]:
        """The kept lease, or ``new``, for the block. It is kept at the end of the block, unless that raises an error.

        Raises what a lease raises.
        """
        try:
            if self._lease is None or not self._lease.take() or self._is_over(self._lease):
                self.close()
                self._lease = new
                new.__enter__()
                self._opened_at = time.monotonic()
            yield self._lease
            self._used_at = time.monotonic()
            if self._lease.writer.is_usable:
                self._lease.leave()
            else:  # an error that did not end the block
                self.close()
        except BaseException:
            self.close()
            raise

    def _is_over(self, lease: Lease) -> bool:
        return time.monotonic() - self._opened_at >= KEPT_SECONDS or lease.is_wanted()

    def close_idle(self, pause_seconds: float = 0.0) -> None:
        """Give the lease back if no window has used it for a while, or will use it in the next ``pause_seconds``."""
        if self._lease is not None:
            idle_seconds = time.monotonic() - self._used_at + pause_seconds
            if idle_seconds >= min(IDLE_SECONDS, self._lease.repeat_seconds):
                self.close()

    def close(self) -> None:
        """Give the lease back, at once and for good."""
        if self._lease is not None:
            self._lease.give_back()
            self._lease = None
