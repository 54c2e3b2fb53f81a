"""Runs a snapshot: rounds of chunks, which Spark reads and publishes between the pipeline's windows.

The algorithm is that of DBLog's watermarks (https://arxiv.org/abs/2010.12597), but without writes to the source.
Each round has two binlog positions:
- ``base``: when the round began, the pipeline had published all changes before it.
- ``reach``: neither the round's reads nor a published window include a change after it.

A row without a change between the two positions is published as it was read. It comes after all changes of its key
before ``base``, and before all changes after ``reach``. A row with a change between them is left out, because a window
publishes the complete row with the change.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from changefeed.errors import PipelineBusyError
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.snapshots import ChunkRecord, SnapshotRecord
from changefeed.kafka.topics import ensure_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.topics import captured_routes, required_topics
from changefeed.settings.message_rules import message_rules
from changefeed.snapshot import follower_announcer
from changefeed.snapshot.changed_keys import TooManyChangedKeysError
from changefeed.snapshot.cutter import ChunkCutter
from changefeed.snapshot.follower_announcer import Announcer
from changefeed.snapshot.hidden_bounds import cipher_of, with_bounds
from changefeed.snapshot.ownership import Ownership
from changefeed.snapshot.planning import SnapshotPlan, check_rules, check_takes_snapshots
from changefeed.snapshot.published_position import PublishedPosition
from changefeed.snapshot.round import PROGRESS_TIMEOUT_SECONDS, NothingPublishedError, Round, RoundRunner
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)

CHUNKS_A_TASK = 6
"""The number of chunks per task in a round. They are read between two claims of the pipeline."""
_FAILURES = 5
"""The maximum number of consecutive rounds with chunks that could not be read."""
_ROUND_SECONDS = 10
_PAUSE_SECONDS = 2
"""The time between two checks of a paused snapshot whether it was resumed."""


def run_snapshot(spark: SparkTarget, connections: PipelineConnections, plan: SnapshotPlan) -> Iterator[SnapshotRecord]:
    """Publish the remaining rows of the snapshot, and yield its progress after each round and at the end.

    A snapshot may be stopped or killed at any time. If it is run again with the same identity, it continues with the
    unpublished chunks. A dropped table is left out, with a warning.

    Raises:
    - PipelineBusyError while another process runs this snapshot, or if the pipeline publishes no windows.
    - SettingsError if settings changed since the snapshot began.
    - SchemaError if a table's primary key changed.
    """
    pipeline = connections.pipeline
    check_takes_snapshots(pipeline)
    tasks = spark.cores()  # a cluster may take minutes, in which MySQL would end an idle session
    with connections.session() as session, ThreadPoolExecutor(1, "changefeed-snapshot") as beside:
        topics, lease = required_topics(pipeline, captured_routes(pipeline, session)), connections.lease(plan.identity)
        run = _snapshot_run(spark, tasks, connections, plan, lease.attempt, session, beside)
        first = beside.submit(run.cut, plan.progress)  # queries MySQL while topics are created
        ensure_topics(connections.kafka, topics, create=pipeline.topics.create)
        with lease:
            snapshot, records = run.take_over()
            wait([first])  # it uses the session
            run.announcer.announce(snapshot, run.runner.base, run.ownership.check, PROGRESS_TIMEOUT_SECONDS)
            planned = first.result() if snapshot == plan.progress else None
            yield from run.rounds(snapshot, records, planned, lease.log())


def _snapshot_run(
    spark: SparkTarget,
    tasks: int,
    connections: PipelineConnections,
    plan: SnapshotPlan,
    attempt: str,
    session: Session,
    beside: Executor,
) -> _SnapshotRun:
    request = plan.request
    reading = min(tasks, request.connections or tasks)
    position, rules = PublishedPosition(connections, plan.checkpoint), message_rules(connections.pipeline)
    ownership = Ownership(connections, plan.identity, attempt, tasks)
    announcer = Announcer(connections, plan, source.server_uuid(session), session, position, rules)
    cipher = cipher_of(connections)
    runner = RoundRunner(spark, connections, plan, session, ownership, position, announcer, reading, beside, cipher)
    return _SnapshotRun(plan, ownership, announcer, runner, ChunkCutter(session, request.chunk_rows), rules)


@dataclass(frozen=True)
class _SnapshotRun:
    """Runs the rounds of a snapshot, within its requested rate, and waits while it is paused."""

    plan: SnapshotPlan
    ownership: Ownership
    announcer: Announcer
    runner: RoundRunner
    cutter: ChunkCutter
    rules: Mapping[str, str]

    def take_over(self) -> tuple[SnapshotRecord, list[ChunkRecord]]:
        """Fence earlier processes of the snapshot, and return its progress and its chunk records."""
        with self.ownership.claim(PROGRESS_TIMEOUT_SECONDS, takes_over=True) as claim:
            self.runner.position.remember(claim.state)
        begun, records = claim.own.of(SnapshotRecord), claim.own.of(ChunkRecord)
        progress = with_bounds(begun[0] if begun else self.plan.progress, self.runner.cipher, self.plan.identity)
        snapshot = progress.with_chunks(records)
        check_rules(snapshot, self.rules, self.plan.identity, self.runner.connections.pipeline.name)
        return snapshot, records

    def cut(self, snapshot: SnapshotRecord) -> SnapshotRecord:
        """``snapshot`` with its next round."""
        most_rows = self.plan.request.rows_per_second and self.plan.request.rows_per_second * _ROUND_SECONDS
        return self.cutter.round(snapshot, self.runner.reading * CHUNKS_A_TASK, most_rows)

    def rounds(
        self,
        snapshot: SnapshotRecord,
        records: Sequence[ChunkRecord],
        planned: SnapshotRecord | None,
        log: OwnedLog,
    ) -> Iterator[SnapshotRecord]:
        """Run all remaining rounds, and yield the snapshot after each round.

        ``records`` are the chunk records in ``log``. ``planned`` is the first round, if it is cut already.
        """
        stall_timer = _StallTimer()
        while not snapshot.is_done:
            if self.ownership.is_paused:
                self._wait_for_resumption()
                stall_timer.note_progress()
            begun, before = time.monotonic(), _rows(snapshot)
            planned = planned or self.cut(snapshot)
            base = self.runner.base()
            if replaced := self.runner.replaced_tables(planned, base):
                snapshot, planned = self._restart_tables(planned, replaced), None
                continue
            done = self._round(planned, base, stall_timer)
            spent = time.monotonic() - begun
            # Waiting time is not counted, because it would increase the estimate of the remaining time.
            worked = spent if done is not None else 0.0
            published = done.published if done is not None else ()
            records = published or records
            noted = done.snapshot if done is not None else planned
            snapshot, planned = replace(noted.with_chunks(published), seconds=noted.seconds + worked), None
            yield snapshot
            if (rate := self.plan.request.rows_per_second) is not None:
                time.sleep(max(0.0, (_rows(snapshot) - before) / rate - spent))
        if not snapshot.finished:
            self.announcer.complete(snapshot)
            # No later round needs the boundaries and the DDL positions.
            tables = tuple(replace(table, at=None, definitions=None) for table in snapshot.tables)
            finished = replace(snapshot, tables=tables, finished=True)
            log.keep(finished, forgotten=records)
            yield finished

    def _restart_tables(self, snapshot: SnapshotRecord, replaced: Mapping[str, str]) -> SnapshotRecord:
        """``snapshot`` with the ``replaced`` tables reset to their beginning."""
        for name, reason in replaced.items():
            _log.warning("table %s is read from its beginning again: %s", name, reason)
        self.cutter.forget(replaced)
        return snapshot.anew(replaced)

    def _round(self, planned: SnapshotRecord, base: BinlogCoordinates, stall_timer: _StallTimer) -> Round | None:
        """Run the round of ``planned``; None if it waited for the pipeline and must be read again."""
        if not planned.round:
            if not planned.is_done:
                stall_timer.wait(PipelineBusyError("its last tables are dropped and created again all the time"))
            return Round(planned, {}, ())
        try:
            done = self.runner.run(planned, base)
        except (NothingPublishedError, TooManyChangedKeysError) as error:
            stall_timer.wait(error)
            return None
        stall_timer.take(done)
        tables = {table.name: table for table in planned.tables}
        for chunk in planned.round:
            if read := done.read.get(chunk.number):
                self.cutter.note_read(tables[chunk.table_name], read.rows, read.size_bytes, read.seconds)
        return done

    def _wait_for_resumption(self) -> None:
        _log.warning("snapshot %r is paused, and continues when it is resumed", self.plan.identity)
        while self.ownership.is_paused:
            time.sleep(_PAUSE_SECONDS)
            self.ownership.read()
        _log.warning("snapshot %r continues", self.plan.identity)


class _StallTimer:
    """Limits the time without a published chunk, and the number of consecutive rounds with unreadable chunks."""

    def __init__(self) -> None:
        self._moved, self._failures, self._waits_for = time.monotonic(), 0, ""

    def note_progress(self) -> None:
        """Restart the time, because a chunk was published or the snapshot was resumed."""
        self._moved = time.monotonic()

    def take(self, done: Round) -> None:
        """Count the result of a round. Raises the error of a chunk after too many rounds with errors."""
        self._failures = self._failures + 1 if done.errors else 0
        if self._failures > _FAILURES:
            raise done.errors[0]
        if done.published:
            self.note_progress()

    def wait(self, error: PipelineBusyError) -> None:
        """Wait a moment for the pipeline. Raises PipelineBusyError if no chunk was published for too long."""
        if time.monotonic() - self._moved > PROGRESS_TIMEOUT_SECONDS:
            raise PipelineBusyError(str(error)) from error
        if str(error) != self._waits_for:
            self._waits_for = str(error)
            _log.warning("the snapshot waits: %s", error)
        time.sleep(follower_announcer.WAIT_SECONDS)


def _rows(snapshot: SnapshotRecord) -> int:
    return sum(table.rows for table in snapshot.tables)
