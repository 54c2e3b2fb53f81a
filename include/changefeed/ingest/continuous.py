"""A continuous run: windows one after another in one Spark session, each with the changes since the last one.

Between windows it holds one connection to the source, and reads there whether the binlog has grown; Kafka is not used,
except once a minute. Each window is planned, published and sealed as the only window of a run would be, and gives the
lease to a process that waits for it. So a seek or a round of a snapshot goes between two windows, as between two runs.
So does the next run, when it takes over: see `handover`. A backfill has its own lease, and goes on beside windows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from changefeed.binlog.search.prepared_rows import PreparedRows
from changefeed.errors import (
    BinlogGoneError,
    ChangefeedError,
    RenamedError,
    RetryableError,
    SourceUnavailableError,
    StaleCheckpointError,
)
from changefeed.ingest.commit import commit_sealed
from changefeed.ingest.cut import cut
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.ingest.handover import ALONE, HandedOverError, NoHandover
from changefeed.ingest.pace import MOST_STEP_SECONDS, PLAN_SECONDS, Pace, ReplacedWindowError, sleep
from changefeed.ingest.window_run import ingest
from changefeed.kafka.kept_lease import KeptLease
from changefeed.kafka.log_compaction import compact_early
from changefeed.kept_clients import keep_clients
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
from changefeed.pipeline.plan import Plan, plan
from changefeed.pipeline.windows import commit_log_state
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget
from changefeed.state.held_store import HeldCheckpointStore

_log = logging.getLogger(__name__)

LEAST_POLL_SECONDS = 0.1
"""The source is asked for its head at most this often."""
WARM_WORKERS = 4
"""How many of Spark's Python workers start before a run takes over, at most; more start for larger windows."""


def ingest_continuously(
    spark: SparkTarget,
    followed: FollowedSettings,
    checkpoint: Checkpoint,
    max_seconds: int | None = None,
    *,
    handover: NoHandover = ALONE,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Manifest]:
    """Publish and seal windows, and yield each manifest, until the pipeline's `windows.run_for` or ``max_seconds`` are
    over, or ``is_stopped``. Windows that are sealed after ``checkpoint`` already are not published again.

    With a ``handover`` the run first takes over from an older one, and ends as soon as a newer one has taken over from
    it; until then it goes on for some time after its own. It also ends when the pipeline gets another name.

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
    pace = Pace(settings.every_seconds, run_seconds, handover.wait_seconds, is_stopped)
    with closing(KeptLease()) as lease:
        run = _Run(spark, followed, HeldCheckpointStore(checkpoint), handover, pace, max_seconds, lease)
        yield from run.publish_windows()


@dataclass
class _Run:
    """A run with its checkpoint, and with the lease that its windows share."""

    spark: SparkTarget
    followed: FollowedSettings
    store: HeldCheckpointStore
    handover: NoHandover
    pace: Pace
    max_seconds: int | None
    lease: KeptLease
    is_behind: bool = field(default=True, init=False)
    """Whether windows may be sealed after the checkpoint."""
    prepared: PreparedRows = field(default_factory=PreparedRows, init=False)
    """The XA transactions that are prepared at the end of the last window, with `max_rows`."""
    is_unfinished: bool = field(default=False, init=False)
    """Whether a window of this run may be begun, and is not sealed: it is finished with the settings that it has."""

    @property
    def connections(self) -> PipelineConnections:
        """The pipeline, with its current settings."""
        return self.followed.connections

    def publish_windows(self) -> Iterator[Manifest]:
        """See `ingest_continuously`."""
        while self.pace.begin(self._follow_settings):
            try:
                yield from self._publish_next()
            except HandedOverError:
                _log.info("another run of pipeline %s has taken over: this one ends", self.connections.pipeline.name)
                self.pace.check_handed_over()
                return
            except RenamedError as error:
                _log.warning("this run ends with success: %s", error)
                return
            except ChangefeedError as error:
                self.lease.close()  # the pause may be long
                if self.handover.is_over():
                    _log.info("another run has taken over: this one ends, after: %s", error)
                    self.pace.check_handed_over()
                    return
                if not isinstance(error, RetryableError):
                    self.pace.check_login(error)
                    raise
                if isinstance(error, SourceUnavailableError):
                    self.connections.forget_source()
                self.pace.fail(error)
        if self.pace.is_stopped():
            _log.info("the run was asked to end: the next one goes on")
        self.pace.check_end()

    def _publish_next(self) -> Iterator[Manifest]:
        """Publish what is new, or wait for changes."""
        if self.is_behind:  # a plan would read the sealed windows, perhaps in files that are purged
            commit_sealed(self.connections, self.store)
        self.is_behind = True
        if not self.handover.has_taken_over:
            self._take_over()
            self.followed.look_now()  # the older run may have published with settings that this job did not get yet
            self._follow_settings()
            if self.pace.is_over or not self.handover.has_taken_over:
                return
        head = yield from self._publish_new()
        self.is_behind = False
        self.pace.succeed()
        if head is not None:
            self._wait_for_changes(head)
        self.lease.close_idle(self.pace.pause_seconds)

    def _follow_settings(self) -> None:
        """Apply the settings of the file if they have changed, or end the run."""
        if self.is_unfinished or not self.followed.have_changed():
            return
        self.lease.close()
        windows = self.connections.pipeline.windows if self.followed.apply() else None
        if windows is None:
            self.pace.end()
        else:
            run_seconds = min(windows.run_seconds, self.max_seconds or windows.run_seconds)
            self.pace.change(windows.every_seconds, run_seconds)

    def _take_over(self) -> None:
        """Take over from an older run, which goes on until this one can publish at once: with workers that have
        started, and the logs in memory. A run that is asked to end meanwhile leaves it alone."""
        wait_for_workers = self.spark.warm_up(min(self.spark.cores(), WARM_WORKERS))
        plan(self.connections, self.store, keep_first_checkpoint=False)
        wait_for_workers()
        if not self.pace.is_stopped():
            self.handover.take_over()

    def _plan(self) -> Plan:
        """The next plan, after all sealed windows. Raises HandedOverError if another run has taken over."""
        planned = plan(self.connections, self.store)
        self.handover.check(planned)
        return planned

    def _publish_new(self) -> Generator[Manifest, None, BinlogCoordinates | None]:
        """Publish what is new, or a part of it if the settings change, and return None; if nothing is new, return the
        source's head."""
        try:
            planned = self._plan()
            if planned.unfinished and commit_sealed(self.connections, self.store):  # sealed by another run meanwhile
                planned = self._plan()
            if self.is_unfinished and not commit_log_state(self.connections).begun:
                self.is_unfinished = False
                if self.followed.have_changed():
                    self.pace.skip_pause()
                    return None
            if planned.is_empty:
                self.is_unfinished = False  # a begun window would end after the checkpoint
                write_heartbeat(self.connections, Heartbeat.of_idle(planned))
                self.spark.keep_connected()
                return planned.window.head
            expected = planned.expected
            settings = self.connections.pipeline.windows
            max_rows = settings.max_rows if settings is not None else None
            frozen = cut(self.connections, planned, RunBounds(), max_rows=max_rows, prepared=self.prepared)
            for window in frozen.windows:
                manifest = self._ingest(window)
                after = Checkpoint.after(window, int(time.time() * 1000), manifest.gtids)
                self.store.advance(expected, after)
                expected = after
                self.pace.succeed()
                yield manifest
                if self.pace.is_over or self.followed.have_changed():
                    break
            if expected.coordinates != planned.window.head:
                self.pace.skip_pause()
        except StaleCheckpointError as error:
            raise ReplacedWindowError(str(error)) from error
        return None

    def _ingest(self, window: Window) -> Manifest:
        """As `ingest`; raises ReplacedWindowError if the address leads to another server since the plan,
        HandedOverError if another run has taken over."""
        self.is_unfinished = True
        try:
            manifest = ingest(self.spark, self.connections, window, check=self.handover.check, kept_lease=self.lease)
        except BinlogGoneError as error:
            with self.connections.session() as session:
                if source.server_uuid(session) == window.server_uuid:
                    raise
            raise ReplacedWindowError(str(error)) from error
        self.is_unfinished = False
        return manifest

    def _wait_for_changes(self, known: BinlogCoordinates) -> None:
        """Return when the source's binlog does not end at ``known`` any more, the settings have changed, the run is
        over, or it is time to plan again. Meanwhile an idle lease is given back.

        Raises SourceUnavailableError if the connection is lost, or the server does not answer.
        """
        pace, mysql = self.pace, self.connections.mysql
        poll_seconds = min(max(LEAST_POLL_SECONDS, pace.every_seconds), PLAN_SECONDS)
        until, next_poll = time.monotonic() + pace.idle_seconds, 0.0
        limits = replace(mysql.answer_limits, answer_seconds=mysql.answer_limits.connect_seconds)
        with Session(replace(mysql, answer_limits=limits)) as session:
            while not (pace.is_over or self.followed.have_changed()) and (now := time.monotonic()) < until:
                if now >= next_poll:
                    if source.head_coordinates(session) != known:
                        return
                    next_poll = now + poll_seconds
                self.lease.close_idle()
                sleep(min(poll_seconds, MOST_STEP_SECONDS, pace.left_seconds))
