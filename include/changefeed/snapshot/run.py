"""A snapshot: rounds of chunks that Spark reads and publishes beside the pipeline's windows, to its end.

After the watermarks of DBLog (https://arxiv.org/abs/2010.12597), without a write to the source. Of each round is known,
by coordinates, what the pipeline had published before it (``base``), and how far its reads or any window may reach
(``reach``). A row that no change between them touches stands, as it was read, behind all changes of its key up to
``base`` and before all behind ``reach``. The others are left out: a window publishes their changes, whole rows.
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
from changefeed.pipeline.topics import wanted_topics
from changefeed.settings.message_rules import message_rules
from changefeed.snapshot import announcing
from changefeed.snapshot.announcing import Announcer
from changefeed.snapshot.changed_keys import TooManyChangedKeysError
from changefeed.snapshot.cutter import ChunkCutter
from changefeed.snapshot.hidden_bounds import cipher_of, with_bounds
from changefeed.snapshot.ownership import Ownership
from changefeed.snapshot.planning import SnapshotPlan, check_rules, check_takes_snapshots
from changefeed.snapshot.published_position import PublishedPosition
from changefeed.snapshot.round import PATIENCE_SECONDS, NothingPublishedError, Round, RoundRunner
from changefeed.source.mysql import source
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)

CHUNKS_A_TASK = 6
"""In a round: what is read between two claims of the pipeline."""
_FAILURES = 5
"""Rounds one after the other in which chunks could not be read."""
_ROUND_SECONDS = 10
_PAUSE_SECONDS = 2
"""How often a paused snapshot looks whether it is resumed."""


def run_snapshot(spark: SparkTarget, connections: PipelineConnections, plan: SnapshotPlan) -> Iterator[SnapshotRecord]:
    """Publish what is left of the snapshot; yields how far it has come after each round, and last when it is finished.

    It may be stopped or killed at any time: run again under the same identity it goes on with the chunks that are not
    in Kafka. Raises PipelineBusyError while another process runs this snapshot, or where windows do not get on;
    SettingsError where settings changed since it began; SchemaError for a table that has another key. A table that is
    gone is left out, with a warning.
    """
    pipeline = connections.pipeline
    check_takes_snapshots(pipeline)
    with connections.session() as session, ThreadPoolExecutor(1, "changefeed-snapshot") as beside:
        topics, lease = wanted_topics(pipeline, session), connections.lease(plan.identity)
        run = _snapshot_run(spark, connections, plan, lease.attempt, session, beside)
        first = beside.submit(run.cut, plan.stands)  # MySQL is asked while Kafka is
        ensure_topics(connections.kafka, topics, create=pipeline.topics.create)
        with lease:
            snapshot, records = run.take_over()
            wait([first])  # it has the session
            run.announcer.announce(snapshot, run.runner.base, run.ownership.check, PATIENCE_SECONDS)
            planned = first.result() if snapshot == plan.stands else None
            yield from run.rounds(snapshot, records, planned, lease.log())


def _snapshot_run(
    spark: SparkTarget,
    connections: PipelineConnections,
    plan: SnapshotPlan,
    attempt: str,
    session: Session,
    beside: Executor,
) -> _SnapshotRun:
    tasks, request = spark.cores(), plan.request
    reading = min(tasks, request.connections or tasks)
    position, rules = PublishedPosition(connections, plan.checkpoint), message_rules(connections.pipeline)
    ownership = Ownership(connections, plan.identity, attempt, tasks)
    announcer = Announcer(connections, plan, source.server_uuid(session), session, position, rules)
    cipher = cipher_of(connections)
    runner = RoundRunner(spark, connections, plan, session, ownership, position, announcer, reading, beside, cipher)
    return _SnapshotRun(plan, ownership, announcer, runner, ChunkCutter(session, request.chunk_rows), rules)


@dataclass(frozen=True)
class _SnapshotRun:
    """Round after round of a snapshot, no faster than it was asked for, unless it is paused."""

    plan: SnapshotPlan
    ownership: Ownership
    announcer: Announcer
    runner: RoundRunner
    cutter: ChunkCutter
    rules: Mapping[str, str]

    def take_over(self) -> tuple[SnapshotRecord, list[ChunkRecord]]:
        """How far the snapshot has come, when no earlier process of it can publish any more; its records of chunks."""
        with self.ownership.claim(PATIENCE_SECONDS, takes_over=True) as claim:
            self.runner.position.remember(claim.state)
        begun, records = claim.own.of(SnapshotRecord), claim.own.of(ChunkRecord)
        stands = with_bounds(begun[0] if begun else self.plan.stands, self.runner.cipher, self.plan.identity)
        snapshot = stands.with_chunks(records)
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
        """The snapshot after each round to its end; ``records`` of chunks are in ``log``, ``planned`` is the first."""
        patience = _Patience()
        while not snapshot.is_done:
            if self.ownership.is_paused:
                self._wait_for_resumption()
                patience.moved()
            begun, before = time.monotonic(), _rows(snapshot)
            planned = planned or self.cut(snapshot)
            base = self.runner.base()
            if replaced := self.runner.replaced(planned, base):
                snapshot, planned = self._anew(planned, replaced), None
                continue
            done = self._round(planned, base, patience)
            spent = time.monotonic() - begun
            # A time that it waited is no time that rows took: what is left would seem to take longer and longer.
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
            # Nothing goes on from there.
            tables = tuple(replace(table, at=None, definitions=None) for table in snapshot.tables)
            finished = replace(snapshot, tables=tables, finished=True)
            log.keep(finished, forgotten=records)
            yield finished

    def _anew(self, snapshot: SnapshotRecord, replaced: Mapping[str, str]) -> SnapshotRecord:
        """``snapshot`` with the tables that were ``replaced`` to be read from their beginning."""
        for name, reason in replaced.items():
            _log.warning("table %s is read from its beginning again: %s", name, reason)
        self.cutter.forget(replaced)
        return snapshot.anew(replaced)

    def _round(self, planned: SnapshotRecord, base: BinlogCoordinates, patience: _Patience) -> Round | None:
        """The round of ``planned``; None where it waits for the pipeline, and the round is to be read again."""
        if not planned.round:
            if not planned.is_done:
                patience.wait(PipelineBusyError("its last tables are gone in one moment and there in the next"))
            return Round(planned, {}, ())
        try:
            done = self.runner.run(planned, base)
        except (NothingPublishedError, TooManyChangedKeysError) as error:
            patience.wait(error)
            return None
        patience.take(done)
        tables = {table.name: table for table in planned.tables}
        for chunk in planned.round:
            if read := done.read.get(chunk.number):
                self.cutter.took(tables[chunk.table_name], read.rows, read.size_bytes, read.seconds)
        return done

    def _wait_for_resumption(self) -> None:
        _log.warning("snapshot %r is paused, and goes on when it is resumed", self.plan.identity)
        while self.ownership.is_paused:
            time.sleep(_PAUSE_SECONDS)
            self.ownership.read()
        _log.warning("snapshot %r goes on", self.plan.identity)


class _Patience:
    """How long nothing was published, and in how many rounds chunks could not be read: no longer than there is hope."""

    def __init__(self) -> None:
        self._moved, self._failures, self._waits_for = time.monotonic(), 0, ""

    def moved(self) -> None:
        """The snapshot got on, or was paused until now."""
        self._moved = time.monotonic()

    def take(self, done: Round) -> None:
        """Raises what a chunk could not be read for where that is so for too many rounds."""
        self._failures = self._failures + 1 if done.errors else 0
        if self._failures > _FAILURES:
            raise done.errors[0]
        if done.published:
            self.moved()

    def wait(self, error: PipelineBusyError) -> None:
        """Wait for the pipeline a moment; raises PipelineBusyError where nothing was published for too long."""
        if time.monotonic() - self._moved > PATIENCE_SECONDS:
            raise PipelineBusyError(str(error)) from error
        if str(error) != self._waits_for:
            self._waits_for = str(error)
            _log.warning("the snapshot waits: %s", error)
        time.sleep(announcing.WAIT_SECONDS)


def _rows(snapshot: SnapshotRecord) -> int:
    return sum(table.rows for table in snapshot.tables)
