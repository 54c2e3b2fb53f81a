"""A continuous run: windows one after another in one Spark session, each with the changes since the last one.

Between windows it holds one connection to the source, and reads there whether the binlog has grown; Kafka is not used,
except once a minute. Each window is planned, published and sealed as the only window of a run would be. So a snapshot
or a backfill goes between two windows, as between two runs. So does the next run, when it takes over: see `handover`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace

from changefeed.errors import (
    BinlogGoneError,
    ChangefeedError,
    FencedError,
    PipelineBusyError,
    RetryableError,
    SourceUnavailableError,
    SparkFailedError,
    SparkUnavailableError,
    StaleCheckpointError,
)
from changefeed.ingest.commit import commit_sealed
from changefeed.ingest.cut import cut
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.ingest.handover import ALONE, HandedOverError, NoHandover
from changefeed.ingest.window_run import ingest
from changefeed.kafka.kept_clients import keep_clients
from changefeed.kafka.log_compaction import compact_early
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
from changefeed.pipeline.plan import Plan, plan
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
MOST_FAILING_SECONDS = 300.0
"""How long a run tries again after errors in sequence. Then it fails, which alerts, and Airflow's retry has a new
process and a new Spark session."""
PLAN_SECONDS = 60.0
"""An idle run plans at least this often: so it finds another server behind its address, and writes its heartbeat."""
MOST_STEP_SECONDS = 1.0
"""While a run waits, it looks this often whether its settings have changed."""
LAST_PLAN_SECONDS = 2.0
"""The same after the run's time, while it waits for the next run to take over."""
WARM_WORKERS = 4
"""How many of Spark's Python workers start before a run takes over, at most; more start for larger windows."""
_ENDS_RUN = (SparkFailedError, SparkUnavailableError, FencedError)
"""Errors after which this process does not try again: the next one needs another Spark session, or another process goes
on."""


class ReplacedWindowError(RetryableError):
    """A seek, a failover or another run moved the pipeline after a window was planned; the next plan begins there."""


@dataclass
class Pace:
    """When a continuous run begins its next window, and when it ends; times are of the monotonic clock."""

    every_seconds: float
    run_seconds: float
    wait_seconds: float = 0.0
    """How long the run goes on after ``run_seconds``, so that the next one takes over before it ends."""
    _began: float = field(default_factory=lambda: time.monotonic())
    _last: float = -math.inf
    _failures: int = 0
    _failing_since: float = 0.0
    _has_ended: bool = False

    @property
    def left_seconds(self) -> float:
        """The time that is left of the run."""
        if self._has_ended:
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
    def is_failing(self) -> bool:
        """Whether the last window, or the last plan, ended with an error."""
        return self._failures > 0

    def begin(self, follow: Callable[[], None] = lambda: None) -> bool:
        """Wait until the next window may begin; return whether the run is not over then. Meanwhile ``follow`` is called
        every second, and at the end; it may change the pace."""
        follow()
        while (pause := min(self._last + self.every_seconds - time.monotonic(), self.left_seconds)) > 0:
            _sleep(min(pause, MOST_STEP_SECONDS))
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
        self._failures = 0

    def fail(self, error: RetryableError) -> None:
        """Wait after ``error``, longer after each one in sequence. Raise it if the run is over then, or if another
        attempt in this process would not help. That another run is in progress is no failure."""
        if not self._failures:
            self._failing_since = time.monotonic()
        pause = min(2.0 ** min(self._failures, 10), MOST_PAUSE_SECONDS)
        self._failures += 1
        self.skip_pause()  # the pause after the error decides, not `every`
        if isinstance(error, _ENDS_RUN):
            raise error
        if not isinstance(error, PipelineBusyError | ReplacedWindowError):
            failing_seconds = time.monotonic() + pause - self._failing_since
            if pause >= self.left_seconds or failing_seconds > MOST_FAILING_SECONDS:
                raise error
        _log.warning("the run tries again in %g seconds, after: %s", pause, error)
        _sleep(min(pause, self.left_seconds))


def _sleep(seconds: float) -> None:
    if seconds > 0:
        time.sleep(seconds)


def ingest_continuously(
    spark: SparkTarget,
    followed: FollowedSettings,
    checkpoint: Checkpoint,
    max_seconds: int | None = None,
    *,
    handover: NoHandover = ALONE,
) -> Iterator[Manifest]:
    """Publish and seal windows, and yield each manifest, until the pipeline's `windows.run_for` or ``max_seconds`` are
    over. Windows that are sealed after ``checkpoint`` already are not published again.

    With a ``handover`` the run first takes over from an older one, and ends as soon as a newer one has taken over from
    it; until then it goes on for some time after its own.

    Settings that have changed count from the next window on. If only another run can apply them, this one ends.

    The pipeline's own checkpoint does not move: see `ingest.commit.commit_sealed`. After an error that may pass, the
    run tries again for some time. Raises what `plan`, `cut` and `ingest` raise; the yielded windows stay sealed.
    Yields nothing if the setting `windows` was removed since the run was planned.
    """
    connections = followed.connections
    settings = connections.pipeline.windows
    if settings is None:
        _log.warning("pipeline %s has no setting `windows` any more: the next run publishes", connections.pipeline.name)
        return
    keep_clients()
    compact_early(connections.kafka, connections.commit_log().topic, alter=connections.pipeline.topics.create)
    run_seconds = min(settings.run_seconds, max_seconds or settings.run_seconds)
    pace = Pace(settings.every_seconds, run_seconds, handover.wait_seconds)
    store, is_behind = HeldCheckpointStore(checkpoint), True

    def follow() -> None:
        if followed.have_changed() and not pace.is_failing:  # a window that failed is finished as it was begun
            _follow(followed, pace, max_seconds)

    while pace.begin(follow):
        connections = followed.connections
        try:
            if is_behind:  # windows are sealed after it, perhaps in files that are purged: a plan would read them
                commit_sealed(connections, store)
            is_behind = True
            if not handover.has_taken_over:
                _take_over(spark, connections, store, handover)
            head = yield from _publish_new(spark, followed, store, pace, handover)
            is_behind = False
            pace.succeed()
            if head is not None:
                wait_for_changes(connections, head, pace, followed.have_changed)
        except HandedOverError:
            break
        except ChangefeedError as error:
            if handover.is_over():
                break
            if not isinstance(error, RetryableError):
                raise
            if isinstance(error, SourceUnavailableError):
                connections.forget_source()
            pace.fail(error)
    else:
        return
    _log.info("another run of pipeline %s has taken over: this one ends", connections.pipeline.name)


def _follow(followed: FollowedSettings, pace: Pace, max_seconds: int | None) -> None:
    """Apply the changed settings, or end the run."""
    windows = followed.connections.pipeline.windows if followed.apply() else None
    if windows is None:
        pace.end()
    else:
        pace.change(windows.every_seconds, min(windows.run_seconds, max_seconds or windows.run_seconds))


def _take_over(
    spark: SparkTarget, connections: PipelineConnections, store: HeldCheckpointStore, handover: NoHandover
) -> None:
    """Take over from an older run, which goes on until this one can publish at once: with workers that have started,
    and the logs in memory."""
    wait_for_workers = spark.warm_up(min(spark.cores(), WARM_WORKERS))
    plan(connections, store, keep_first_checkpoint=False)
    wait_for_workers()
    handover.take_over()


def _plan(connections: PipelineConnections, store: HeldCheckpointStore, handover: NoHandover) -> Plan:
    """The next plan, after all sealed windows. Raises HandedOverError if another run has taken over."""
    planned = plan(connections, store)
    handover.check(planned)
    return planned


def _publish_new(
    spark: SparkTarget,
    followed: FollowedSettings,
    store: HeldCheckpointStore,
    pace: Pace,
    handover: NoHandover,
) -> Generator[Manifest, None, BinlogCoordinates | None]:
    """Publish what is new, or a part of it if the settings change, and return None; if nothing is new, return the
    source's head."""
    connections = followed.connections
    try:
        planned = _plan(connections, store, handover)
        if planned.unfinished and commit_sealed(connections, store):  # sealed by another run meanwhile
            planned = _plan(connections, store, handover)
        if planned.is_empty:
            write_heartbeat(connections, Heartbeat.of_idle(planned))
            return planned.window.head
        expected = planned.expected
        settings = connections.pipeline.windows
        max_rows = settings.max_rows if settings is not None else None
        for window in cut(connections, planned, RunBounds(), max_rows=max_rows).windows:
            manifest = _ingest(spark, connections, window, handover)
            after = Checkpoint.after(window, int(time.time() * 1000), manifest.gtids)
            store.advance(expected, after)
            expected = after
            yield manifest
            if pace.is_over or followed.have_changed():
                break
        if expected.coordinates != planned.window.head:
            pace.skip_pause()
    except StaleCheckpointError as error:
        raise ReplacedWindowError(str(error)) from error
    return None


def _ingest(spark: SparkTarget, connections: PipelineConnections, window: Window, handover: NoHandover) -> Manifest:
    """As `ingest`; raises ReplacedWindowError if the address leads to another server since the plan, HandedOverError if
    another run has taken over."""
    try:
        return ingest(spark, connections, window, check=handover.check)
    except BinlogGoneError as error:
        with connections.session() as session:
            if source.server_uuid(session) == window.server_uuid:
                raise
        raise ReplacedWindowError(str(error)) from error


def wait_for_changes(
    connections: PipelineConnections,
    known: BinlogCoordinates,
    pace: Pace,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Return when the source's binlog does not end at ``known`` any more, ``is_over`` returns True, the run is over, or
    it is time to plan again.

    Raises SourceUnavailableError if the connection is lost, or the server does not answer.
    """
    poll_seconds = min(max(LEAST_POLL_SECONDS, pace.every_seconds), PLAN_SECONDS)
    until = time.monotonic() + pace.idle_seconds
    limits = replace(connections.mysql.answer_limits, answer_seconds=connections.mysql.answer_limits.connect_seconds)
    with Session(replace(connections.mysql, answer_limits=limits)) as session:
        next_poll = 0.0
        while not (pace.is_over or is_over()) and (now := time.monotonic()) < until:
            if now >= next_poll:
                if source.head_coordinates(session) != known:
                    return
                next_poll = now + poll_seconds
            _sleep(min(poll_seconds, MOST_STEP_SECONDS, pace.left_seconds))
