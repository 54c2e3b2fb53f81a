"""A continuous run: windows one after another in one Spark session, each with the changes since the last one.

Between windows it holds one connection to the source, and reads there whether the binlog has grown; Kafka is not used.
Each window is planned, published and sealed as the only window of a run would be. So a seek, a snapshot or a backfill
goes between two windows, as between two runs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from changefeed.errors import RetryableError, SettingsError, StaleCheckpointError
from changefeed.ingest.cut import cut
from changefeed.ingest.window_run import ingest
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget
from changefeed.state.held_store import HeldCheckpointStore

_log = logging.getLogger(__name__)

LEAST_POLL_SECONDS = 0.1
"""The source is asked for its head at most this often."""
MOST_PAUSE_SECONDS = 30.0
"""The longest pause after an error that may pass."""


@dataclass
class Pace:
    """When a continuous run begins its next window, and when it ends; times are of the monotonic clock."""

    every_seconds: float
    run_seconds: float
    _began: float = field(default_factory=lambda: time.monotonic())
    _next: float = 0.0
    _failures: int = 0

    @property
    def left_seconds(self) -> float:
        """The time that is left of the run."""
        return max(0.0, self._began + self.run_seconds - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the run begins no further window."""
        return self.left_seconds <= 0

    def begin(self) -> None:
        """Wait until the next window may begin."""
        _sleep(min(self._next - time.monotonic(), self.left_seconds))
        self._next = time.monotonic() + self.every_seconds

    def succeed(self) -> None:
        """A window was published, or nothing was new."""
        self._failures = 0

    def fail(self, error: RetryableError) -> None:
        """Wait after ``error``, longer after each one in sequence; raise it if the run is over then."""
        pause = min(2.0**self._failures, MOST_PAUSE_SECONDS)
        self._failures += 1
        if pause >= self.left_seconds:
            raise error
        _log.warning("the run tries again in %g seconds, after %s: %s", pause, type(error).__name__, error)
        _sleep(pause)


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def ingest_continuously(
    spark: SparkTarget, connections: PipelineConnections, checkpoint: Checkpoint, max_seconds: int | None = None
) -> Iterator[Manifest]:
    """Publish and seal windows from ``checkpoint`` on, and yield each manifest, until the pipeline's `windows.run_for`
    or ``max_seconds`` are over.

    The pipeline's own checkpoint does not move: see `ingest.commit.commit_sealed`. After an error that may pass, the
    run tries again until its time is over. Raises what `plan`, `cut` and `ingest` raise; the yielded windows stay
    sealed. Raises SettingsError if the pipeline has no setting `windows`.
    """
    settings = connections.pipeline.windows
    if settings is None:
        raise SettingsError(f"pipeline {connections.pipeline.name!r} has no setting `windows`, by which a run goes on")
    pace = Pace(settings.every_seconds, min(settings.run_seconds, max_seconds or settings.run_seconds))
    store = HeldCheckpointStore(checkpoint)
    while not pace.is_over:
        try:
            pace.begin()
            yield from _publish_new(spark, connections, store, pace)
            pace.succeed()
        except (RetryableError, _Replaced) as error:
            pace.fail(error)


class _Replaced(RetryableError):
    """A seek or another run moved the pipeline after a window was planned; the next plan begins there."""


def _publish_new(
    spark: SparkTarget, connections: PipelineConnections, store: HeldCheckpointStore, pace: Pace
) -> Iterator[Manifest]:
    """Publish what is new, or wait for new changes if there are none."""
    planned = plan(connections, store)
    if planned.is_empty:
        wait_for_changes(connections, planned.window.head, pace)
        return
    expected = planned.expected
    try:
        for window in cut(connections, planned, RunBounds()).windows:
            manifest = ingest(spark, connections, window)  # of a window that is sealed already, its manifest
            after = Checkpoint.after(window, int(time.time() * 1000), manifest.gtids)
            store.advance(expected, after)
            expected = after
            yield manifest
            if pace.is_over:
                return
    except StaleCheckpointError as error:
        raise _Replaced(str(error)) from error


def wait_for_changes(connections: PipelineConnections, known: BinlogCoordinates, pace: Pace) -> None:
    """Return when the source's binlog does not end at ``known`` any more, or the run is over.

    Raises SourceUnavailableError if the connection is lost.
    """
    poll_seconds = max(LEAST_POLL_SECONDS, pace.every_seconds)
    with connections.session() as session:
        while not pace.is_over and _head(session) == known:
            _sleep(min(poll_seconds, pace.left_seconds))


def _head(session: Session) -> BinlogCoordinates:
    return source.head(session).coordinates
