"""Reads from servers, cached for a few seconds, and the last known values while a server does not answer.

All of it is in the memory of this process.
"""

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.errors import ChangefeedError, RetryableError
from changefeed.settings.pipeline import Pipeline

CACHE_SECONDS = 4.0
SLOW_SECONDS = 3.0
"""How long a request waits for servers before it gets the last known values."""


@dataclass
class Staleness:
    """The errors of servers that did not answer a request, by class, and the time of the oldest value in its answer."""

    errors: dict[str, str] = field(default_factory=dict)
    read_at_ms: int | None = None
    """None if no last known value is in the answer."""

    def add(self, error: RetryableError, read_at_ms: int | None) -> None:
        """Add ``error``, and when the value was read that is used instead; None if there is no value."""
        self.add_text(type(error).__name__, str(error), read_at_ms)

    def add_text(self, name: str, text: str, read_at_ms: int | None) -> None:
        """As `add`, for an error of the class ``name``."""
        self.errors.setdefault(name, text)
        if read_at_ms is not None:
            self.read_at_ms = min(read_at_ms, self.read_at_ms or read_at_ms)

    def to_json(self) -> dict[str, Any] | None:
        """Plain values for the REST API; None if all servers answered."""
        return {"errors": self.errors, "read_at_ms": self.read_at_ms} if self.errors else None


@dataclass(frozen=True)
class _Reading:
    pipeline: Pipeline
    since: float
    """Monotonic time of the read."""
    answer: Any
    """A value, or a ChangefeedError."""
    known: Any = None
    known_at_ms: int | None = None

    @property
    def is_unexpired(self) -> bool:
        """Whether it has a value, and `expire` was not called for it."""
        return self.since > -math.inf and not isinstance(self.answer, ChangefeedError)

    @property
    def is_fresh(self) -> bool:
        """Whether it may be used without another read."""
        return time.monotonic() - self.since < CACHE_SECONDS


_readings: dict[tuple[str, str], _Reading] = {}
"""By (what, name of the pipeline)."""
_locks: dict[tuple[str, str], threading.Lock] = {}
_refreshes: dict[tuple[str, str], Future[_Reading]] = {}
"""The last read of each key in the background. At most one is under way."""
_guard = threading.Lock()
_threads = ThreadPoolExecutor(16, "changefeed-readings")


def read_cached(
    what: str,
    pipeline: Pipeline,
    read: Callable[[], Any],
    stale: Staleness | None = None,
    is_known: Callable[[Any], bool] = lambda _: True,
    is_current: Callable[[Any], bool] = lambda _: False,
) -> Any:
    """The result of ``read``, from the cache if it is fresh. Concurrent requests share one read.

    A cached value is used without a read, however old it is, while ``is_current`` says that it cannot have changed.

    With ``stale``, the last known value is returned if a server does not answer now, and ``stale`` has the error. A
    value is known if ``is_known`` says so, and until the pipeline's settings change. Raises the ChangefeedError of the
    read.
    """
    key = (what, pipeline.name)
    reading = _reading(key, pipeline)
    if reading is not None and reading.is_unexpired and is_current(reading.answer):
        return reading.answer
    if stale is None or reading is None or reading.known_at_ms is None:
        reading = _refresh(key, pipeline, read, is_known)
    elif not reading.is_fresh:
        refreshed = _refresh_in_background(key, pipeline, read, is_known)
        if not wait([refreshed], SLOW_SECONDS).done:
            return _use_known(reading, _slow(pipeline), stale)
        reading = refreshed.result()
    if not isinstance(reading.answer, ChangefeedError):
        return reading.answer
    if isinstance(reading.answer, RetryableError) and stale is not None:
        if reading.known_at_ms is not None:
            return _use_known(reading, reading.answer, stale)
        stale.add(reading.answer, None)
    raise reading.answer.with_traceback(None)


def expire(name: str) -> None:
    """Have the state of pipeline ``name`` read again by the next request. The last known values stay."""
    for key in [key for key in _readings if key[1] == name]:
        reading = _readings.get(key)
        if reading is not None:
            _readings[key] = replace(reading, since=-math.inf)


def forget(name: str) -> None:
    """Forget the state of a deleted pipeline."""
    for key in [key for key in _readings if key[1] == name]:
        _readings.pop(key, None)


def _reading(key: tuple[str, str], pipeline: Pipeline) -> _Reading | None:
    reading = _readings.get(key)
    return reading if reading is not None and reading.pipeline == pipeline else None


def last_known(what: str, pipeline: Pipeline) -> tuple[Any, int] | None:
    """The last known value and when it was read, in Unix milliseconds."""
    reading = _reading((what, pipeline.name), pipeline)
    return None if reading is None or reading.known_at_ms is None else (reading.known, reading.known_at_ms)


def _refresh(
    key: tuple[str, str], pipeline: Pipeline, read: Callable[[], Any], is_known: Callable[[Any], bool]
) -> _Reading:
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        reading = _reading(key, pipeline)
        if reading is None or not reading.is_fresh:
            reading = _readings[key] = _read(pipeline, read, is_known, reading)
        return reading


def _refresh_in_background(
    key: tuple[str, str], pipeline: Pipeline, read: Callable[[], Any], is_known: Callable[[Any], bool]
) -> Future[_Reading]:
    with _guard:
        refresh = _refreshes.get(key)
        if refresh is None or refresh.done():
            refresh = _refreshes[key] = _threads.submit(_refresh, key, pipeline, read, is_known)
        return refresh


def _read(
    pipeline: Pipeline, read: Callable[[], Any], is_known: Callable[[Any], bool], before: _Reading | None
) -> _Reading:
    try:
        answer = read()
        known = (answer, int(time.time() * 1000)) if is_known(answer) else None
    except ChangefeedError as error:
        answer, known = error, None
    if known is None and before is not None:
        return replace(before, since=time.monotonic(), answer=answer)
    return _Reading(pipeline, time.monotonic(), answer, *(known or ()))


def _use_known(reading: _Reading, error: RetryableError, stale: Staleness) -> Any:
    stale.add(error, reading.known_at_ms)
    return reading.known


def _slow(pipeline: Pipeline) -> RetryableError:
    return RetryableError(
        f"a server of pipeline {pipeline.name!r} ({pipeline.source.connection} or {pipeline.kafka.connection}) has not "
        f"answered for {SLOW_SECONDS:g} seconds"
    )
