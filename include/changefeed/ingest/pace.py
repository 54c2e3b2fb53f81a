"""When a continuous run begins its next window, how long it tries again after errors, and when it ends."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from changefeed.errors import (
    BrokerLoginError,
    BrokerUnavailableError,
    ChangefeedError,
    NotPublishedError,
    PipelineBusyError,
    RetryableError,
    SourceLoginError,
    SourceUnavailableError,
    SparkFailedError,
    SparkUnavailableError,
)

_log = logging.getLogger(__name__)

MOST_PAUSE_SECONDS = 30.0
"""The longest pause after an error that may pass."""
MOST_BUSY_SECONDS = 2.0
"""The longest pause while another run is in progress, or after one moved the pipeline."""
MOST_FAILING_SECONDS = 300.0
"""How long a run tries again after errors in sequence. Then it fails, which alerts, and Airflow's retry has a new
process and a new Spark session."""
LONG_FAILING_SECONDS = 120.0
"""After errors for so long, a run that another one follows ends with an error: the next one may fail as this one did,
and each would end with success."""
PLAN_SECONDS = 60.0
"""An idle run plans at least this often: so it finds another server behind its address, and writes its heartbeat."""
LAST_PLAN_SECONDS = 2.0
"""The same after the run's time, while it waits for the next run to take over."""
MOST_STEP_SECONDS = 1.0
"""While a run waits, it looks this often whether its settings have changed."""
_ENDS_RUN = (SparkFailedError, SparkUnavailableError)
"""Errors after which this process does not try again: the next one needs another Spark session. After a FencedError it
tries again: the brokers may have aborted a transaction that outlived its timeout while they were down, or a seek took
the lease while this process was suspended. A run that took over is found in the commit log: see `handover`."""


class ReplacedWindowError(RetryableError):
    """A seek, a failover or another run moved the pipeline after a window was planned; the next plan begins there."""


_WAITING = (PipelineBusyError, ReplacedWindowError)
"""Errors that are no failures of the run."""


@dataclass
class Pace:
    """When a continuous run begins its next window, and when it ends; times are of the monotonic clock."""

    every_seconds: float
    run_seconds: float
    wait_seconds: float = 0.0
    """How long the run goes on after ``run_seconds``, so that the next one takes over before it ends."""
    is_stopped: Callable[[], bool] = lambda: False
    """Whether the run is asked to end; called often."""
    _began: float = field(default_factory=lambda: time.monotonic())
    _last: float = -math.inf
    _failures: int = 0
    _failing_since: float = 0.0
    _blocked_since: float = 0.0
    _error: RetryableError | None = None
    _has_succeeded: bool = False
    _has_ended: bool = False

    @property
    def left_seconds(self) -> float:
        """The time that is left of the run."""
        if self._has_ended or self.is_stopped():
            return 0.0
        return max(0.0, self._began + self.run_seconds + self.wait_seconds - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the run begins no further window."""
        return self.left_seconds <= 0

    @property
    def idle_seconds(self) -> float:
        """How long the run may wait for changes before it plans again."""
        return min(PLAN_SECONDS, max(LAST_PLAN_SECONDS, self.left_seconds - self.wait_seconds))

    @property
    def pause_seconds(self) -> float:
        """The time until the next window may begin."""
        return max(0.0, self._last + self.every_seconds - time.monotonic())

    def begin(self, follow: Callable[[], None] = lambda: None) -> bool:
        """Wait until the next window may begin; return whether the run is not over then. Meanwhile ``follow`` is called
        every second, and at the end; it may change the pace."""
        follow()
        while (pause := min(self.pause_seconds, self.left_seconds)) > 0:
            sleep(min(pause, MOST_STEP_SECONDS))
            follow()
        self._last = time.monotonic()
        return not self.is_over

    def change(self, every_seconds: float, run_seconds: float) -> None:
        """Go on with another pace; ``run_seconds`` count from the run's begin."""
        self.every_seconds, self.run_seconds = every_seconds, run_seconds

    def skip_pause(self) -> None:
        """The next window may begin at once, as changes are left."""
        self._last = -math.inf

    def end(self) -> None:
        """Begin no further window."""
        self._has_ended = True

    def succeed(self) -> None:
        """A window was published, or nothing was new."""
        self._failures, self._error, self._has_succeeded = 0, None, True

    def check_end(self) -> None:
        """At the end of the run's time, raise the last error if nothing succeeded for a long time, or in the whole
        run: another run that never ends must not look like success. A run that was asked to end raises any error, but
        not that it waits for another run."""
        if self._error is None:
            return
        if self.is_stopped():
            has_failed = not isinstance(self._error, _WAITING)
        else:
            is_long = time.monotonic() - self._blocked_since >= MOST_FAILING_SECONDS
            has_failed = is_long or not self._has_succeeded
        if has_failed:
            raise self._error

    def check_handed_over(self) -> None:
        """After another run has taken over, raise NotPublishedError if this one had failed for a long time."""
        failing_seconds = time.monotonic() - self._failing_since
        if self._error is not None and failing_seconds >= LONG_FAILING_SECONDS:
            raise NotPublishedError(
                f"another run has taken over, expected this one to publish until then, found that it has failed for "
                f"{failing_seconds:.0f} seconds. The other run goes on, and may fail in the same way. The last error: "
                f"{self._error}"
            ) from self._error

    def check_login(self, error: ChangefeedError) -> None:
        """Raise a retryable error if ``error`` is a refused login that was accepted before in this run: a password
        that was changed since is in the connection, which the next attempt reads again. This process has the old one,
        and further logins with it could lock the user."""
        if not self._has_succeeded:
            return
        for kind, passing in ((SourceLoginError, SourceUnavailableError), (BrokerLoginError, BrokerUnavailableError)):
            if isinstance(error, kind):
                raise passing(
                    f"{error} The login was accepted before in this run, which has read its connection at its start. "
                    "If the password was changed, the next attempt reads the new one."
                ) from error

    def fail(self, error: RetryableError) -> None:
        """Wait after ``error``, longer after each one in sequence. Raise it if the run is over then, or if another
        attempt in this process would not help. That another run is in progress is no failure."""
        if not self._failures:
            self._failing_since = self._blocked_since = time.monotonic()
        self._error = error
        is_waiting = isinstance(error, _WAITING)
        pause = min(2.0 ** min(self._failures, 10), MOST_BUSY_SECONDS if is_waiting else MOST_PAUSE_SECONDS)
        self._failures += 1
        self.skip_pause()  # the pause after the error decides, not `every`
        if isinstance(error, _ENDS_RUN):
            raise error
        if is_waiting:
            self._failing_since = time.monotonic() + pause
        else:
            failing_seconds = time.monotonic() + pause - self._failing_since
            if pause >= self.left_seconds or failing_seconds > MOST_FAILING_SECONDS:
                raise error
        _log.warning("the run tries again in %g seconds, after: %s", pause, error)
        until = time.monotonic() + pause
        while (left := min(until - time.monotonic(), self.left_seconds)) > 0:
            sleep(min(left, MOST_STEP_SECONDS))


def sleep(seconds: float) -> None:
    """Wait for ``seconds``, if they are positive."""
    if seconds > 0:
        time.sleep(seconds)
