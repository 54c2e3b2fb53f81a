"""A snapshot: rounds of chunks that Spark reads and publishes beside the pipeline's windows, to its end.

After the watermarks of DBLog (https://arxiv.org/abs/2010.12597), without a write to the source. Of each round is known,
by coordinates, what the pipeline had published before it (``base``), and how far its reads or any window may reach
(``reach``). A row that no change between them touches stands, as it was read, behind all changes of its key up to
``base`` and before all behind ``reach``. The others are left out: a window publishes their changes, whole rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import replace

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from changefeed import fault_point
from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import (
    FencedError,
    PipelineBusyError,
    RetryableError,
    SchemaError,
    SourceError,
)
from changefeed.kafka.commit_log import CommitLogState
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.log_record import AttemptRecord, BegunRecord, ReliedRecord
from changefeed.kafka.topics import TopicLimits, ensure_topics, topic_limits
from changefeed.kafka.window_topics import WindowTopics
from changefeed.mysql import source
from changefeed.mysql.catalog import table_schemas
from changefeed.mysql.session import Session
from changefeed.pipelines.message_rules import message_rules, rules_digest
from changefeed.runs.topics import table_topics, wanted_topics
from changefeed.snapshot.cutter import ChunkCutter
from changefeed.snapshot.planning import SnapshotPlan, check_begun, check_row_images, check_rules, check_takes_snapshots
from changefeed.snapshot.position import PublishedPosition, is_covered
from changefeed.snapshot.progress import ChunkRecord, PauseRecord, PlannedChunk, SnapshotRecord
from changefeed.spark import frame
from changefeed.spark.announcing import Announcer
from changefeed.spark.changed_keys import MOST_KEYS, ChangedKeys, TooManyChangedKeysError
from changefeed.spark.chunks import ChunkJob, ReadChunk, ReadRound, publish_chunks, read_chunks
from changefeed.spark.conf import BATCH_CONF
from changefeed.spark.expected import Decoded
from changefeed.spark.failures import named_failures
from changefeed.spark.job import IngestJob
from changefeed.spark.local_folder import local_folder
from changefeed.spark.publish import dead_letters_of
from changefeed.spark.session import cores, forget_checkpoint, makes_copies
from changefeed.table_schema import TableSchema
from changefeed.window import Window

_log = logging.getLogger(__name__)

CHUNKS_A_TASK = 6
"""In a round: what is read between two claims of the pipeline."""
PATIENCE_SECONDS = 900.0
"""How long nothing may be published before the snapshot gives up: run again, it goes on."""
_FAILURES = 5
"""Rounds one after the other in which chunks could not be read."""
_ROUND_SECONDS = 10
_PAUSE_SECONDS = 2
"""How often a paused snapshot looks whether it is resumed."""
_STATE_SECONDS = 1.0
"""How long what the pipeline's commit log said, while no window was published, is taken for what it says."""
_KEPT = StorageLevel(useDisk=True, useMemory=True, useOffHeap=False, deserialized=True)


class _NothingPublishedError(PipelineBusyError):
    """Why a round's chunks have to be read again."""


def run_snapshot(spark: SparkSession, endpoints: Endpoints, plan: SnapshotPlan) -> Iterator[SnapshotRecord]:
    """Publish what is left of the snapshot; yields how far it has come after each round, and last when it is finished.

    It may be stopped or killed at any time: run again under the same identity it goes on with the chunks that are not
    in Kafka. Raises PipelineBusyError while another process runs this snapshot, or where windows do not get on;
    SettingsError where settings changed since it began; SchemaError for a table that is gone or has another key.
    """
    pipeline = endpoints.pipeline
    check_takes_snapshots(pipeline)
    with endpoints.session() as session, ThreadPoolExecutor(1, "changefeed-snapshot") as beside:
        topics, lease = wanted_topics(pipeline, session), endpoints.lease(plan.identity)
        run = _SnapshotRun(spark, endpoints, plan, lease.attempt, session, beside)
        ensure_topics(endpoints.kafka, topics, create=pipeline.topics.create)
        with lease:
            yield from run.rounds()


class _SnapshotRun:
    def __init__(
        self,
        spark: SparkSession,
        endpoints: Endpoints,
        plan: SnapshotPlan,
        attempt: str,
        session: Session,
        beside: Executor,
    ) -> None:
        self._spark, self._endpoints, self._plan, self._attempt = spark, endpoints, plan, attempt
        self._session, self._beside = session, beside
        self._uuid = source.server_uuid(session)
        self._log = endpoints.commit_log(plan.identity)
        self._tasks = cores(spark)
        self._position = PublishedPosition(endpoints, plan.checkpoint)
        self._rules = message_rules(endpoints.pipeline)
        self._changed: ChangedKeys | None = None
        self._changing: set[str] = set()
        self._state: tuple[CommitLogState, float] | None = None
        self._records: list[ChunkRecord] = []
        self._paused = False
        request = plan.request
        self._announcer = Announcer(endpoints, plan, self._uuid, session, self._position, self._rules)
        self._reading = min(self._tasks, request.connections or self._tasks)
        self._most_rows = request.rows_per_second and request.rows_per_second * _ROUND_SECONDS
        self._cutter = ChunkCutter(session, request.chunk_rows)
        self._first = beside.submit(self._cut, plan.stands)  # MySQL is asked while Kafka is
        for name, rows in BATCH_CONF.items():
            spark.conf.set(name, rows)

    def _cut(self, snapshot: SnapshotRecord) -> SnapshotRecord:
        return self._cutter.round(snapshot, self._reading * CHUNKS_A_TASK, self._most_rows)

    def rounds(self) -> Iterator[SnapshotRecord]:
        request, begin = self._plan.request, self._plan.stands
        snapshot = self._taken_over()
        wait([self._first])  # it has the session
        self._announcer.announce(snapshot, self._base, self._check_own, PATIENCE_SECONDS)
        moved, failures, waits_for = time.monotonic(), 0, ""
        while not snapshot.is_done:
            if self._paused:
                self._wait_for_resumption()
                moved = time.monotonic()
            begun, waits = time.monotonic(), False
            planned = self._first.result() if snapshot == begin else self._cut(snapshot)
            before = sum(table.rows for table in snapshot.tables)
            try:
                read, published = self._round(planned)
                failures = failures + 1 if read.errors else 0
                if failures > _FAILURES:
                    raise read.errors[0]
                tables = {table.name: table for table in planned.tables}
                for chunk in planned.round:
                    if done := read.chunks.get(chunk.number):
                        self._cutter.took(tables[chunk.table_name], done.rows, done.size_bytes, done.seconds)
                if published:
                    moved = time.monotonic()
            except (_NothingPublishedError, TooManyChangedKeysError) as error:
                published, waits = [], True
                if time.monotonic() - moved > PATIENCE_SECONDS:
                    raise PipelineBusyError(str(error)) from error
                if str(error) != waits_for:
                    waits_for = str(error)
                    _log.warning("the snapshot waits: %s", error)
                time.sleep(1)
            spent = time.monotonic() - begun
            # A time that it waited is no time that rows took: what is left would seem to take longer and longer.
            worked = 0.0 if waits else spent
            snapshot = replace(planned.with_chunks(published), seconds=planned.seconds + worked)
            yield snapshot
            if request.rows_per_second is not None:
                rows = sum(table.rows for table in snapshot.tables) - before
                time.sleep(max(0.0, rows / request.rows_per_second - spent))
        if not snapshot.finished:
            self._announcer.complete(snapshot)
            finished = replace(snapshot, finished=True)
            self._log.keep(finished, self._records)
            yield finished

    def _wait_for_resumption(self) -> None:
        _log.warning("snapshot %r is paused, and goes on when it is resumed", self._plan.identity)
        while self._paused:
            time.sleep(_PAUSE_SECONDS)
            self._check_own(self._log.read())
        _log.warning("snapshot %r goes on", self._plan.identity)

    def _fence(self, lease: Lease) -> str:
        endpoints = self._endpoints
        writer, topic = lease.writer, self._log.topic
        return fence(endpoints.kafka, endpoints.pipeline.name, self._tasks, topic, lease.attempt, writer)

    def _check_own(self, own: CommitLogState) -> None:
        """Raises FencedError where another process runs the snapshot since; notes whether somebody paused it."""
        if own.attempt != self._attempt:
            raise FencedError(f"another process runs snapshot {self._plan.identity!r} since; this one stops")
        self._paused = bool(own.of(PauseRecord))

    def _taken_over(self) -> SnapshotRecord:
        """How far the snapshot has come, when no earlier process of it can publish any more."""
        endpoints, name = self._endpoints, self._endpoints.pipeline.name
        with endpoints.lease(brief=True, patience_seconds=PATIENCE_SECONDS) as lease:
            self._fence(lease)
            replace(self._log, writer=lease.writer).keep(AttemptRecord(self._attempt))
            state, own = endpoints.commit_log().read_beside(self._plan.identity)
            self._check_own(own)
            self._state = state, time.monotonic()
        begun, self._records = own.of(SnapshotRecord), own.of(ChunkRecord)
        snapshot = (begun[0] if begun else self._plan.stands).with_chunks(self._records)
        check_rules(snapshot, self._rules, self._plan.identity, name)
        return snapshot

    # --- a round

    def _round(self, planned: SnapshotRecord) -> tuple[ReadRound, list[ChunkRecord]]:
        limits = self._beside.submit(topic_limits, self._endpoints.kafka, self._topics(planned))
        base = self._base()
        schemas = self._schemas(planned.round)
        changed = self._changed_since(base, schemas)
        changed.read_to(source.head(self._session).coordinates)  # of a pipeline far behind, before rows are read
        self._changing |= changed.tables
        with local_folder(self._spark) as folder:
            job = self._job(base, planned, limits.result(), folder)
            return self._read_and_published(job, planned, changed)

    def _read_and_published(
        self, job: ChunkJob, planned: SnapshotRecord, changed: ChangedKeys
    ) -> tuple[ReadRound, list[ChunkRecord]]:
        read = self._read(job, planned.round)
        try:
            wanted = {chunk.number: chunk for chunk in planned.round if chunk.number in read.chunks}
            for error in read.errors:
                _log.warning("a chunk has to be read again: %s", error)
            if not wanted:
                raise _NothingPublishedError(str(read.errors[0]))
            fault_point.reached("after_decode")
            changed.read_to(source.head(self._session).coordinates)
            return read, self._publish(job, planned, read, wanted, changed)
        finally:
            forget_checkpoint(read.batches)

    def _base(self) -> BinlogCoordinates:
        """What the pipeline has published, and each view from now on shows."""
        check_row_images(self._session)
        if (uuid := source.server_uuid(self._session)) != self._uuid:
            raise PipelineBusyError(f"the source was server {self._uuid}, and is {uuid} now: run the snapshot again")
        now = time.monotonic()
        deadline = now + PATIENCE_SECONDS
        state = self._state[0] if self._state is not None and now - self._state[1] < _STATE_SECONDS else None
        while (base := self._position.visible(self._session, self._uuid, state)) is None:
            state = None
            if time.monotonic() > deadline:
                raise PipelineBusyError(
                    f"transactions that pipeline {self._endpoints.pipeline.name!r} has published cannot be seen on the "
                    f"source for {PATIENCE_SECONDS:g} seconds: their commits hang, on an acknowledgement of a replica "
                    "perhaps. Run again when they are through."
                )
            time.sleep(0.2)
        return base

    def _schemas(self, chunks: Iterable[PlannedChunk]) -> dict[tuple[str, str], TableSchema]:
        """The tables of ``chunks`` that have a key."""
        names = {(chunk.database, chunk.table) for chunk in chunks if chunk.has_key}
        return table_schemas(self._session, names)

    def _changed_since(self, base: BinlogCoordinates, schemas: dict[tuple[str, str], TableSchema]) -> ChangedKeys:
        known = self._changed
        if known is None or known.schemas != schemas or known.end < base:
            most_keys = self._plan.request.changed_keys or MOST_KEYS
            known = ChangedKeys(self._endpoints, self._uuid, base, schemas, most_keys)
        known.forget(base)
        self._changed = known
        return known

    def _topics(self, planned: SnapshotRecord) -> set[str]:
        pipeline, names = self._endpoints.pipeline, {(chunk.database, chunk.table) for chunk in planned.round}
        topics = {topic for name, topic in table_topics(pipeline, self._session).items() if name in names}
        return topics | ({topic} if (topic := dead_letters_of(pipeline)) else set())

    def _job(
        self,
        base: BinlogCoordinates,
        planned: SnapshotRecord,
        limits: Mapping[str, TopicLimits],
        folder: str | None,
    ) -> ChunkJob:
        endpoints = self._endpoints
        now_ms = int(time.time() * 1000)
        window = Window(endpoints.pipeline.name, 0, self._uuid, base, base, "", "", now_ms)
        ingest = IngestJob(
            endpoints=endpoints,
            window=window,
            topics=WindowTopics(endpoints.kafka, limits, create=endpoints.pipeline.topics.create),
            attempt="",
            identity=self._plan.identity,
            folder=folder,
            copies=makes_copies(self._spark),
        )
        keys = {table.name: table.key for table in planned.tables}
        return ChunkJob(ingest, base, keys, self._plan.request.condition, frozenset(self._changing))

    def _read(self, job: ChunkJob, chunks: Sequence[PlannedChunk]) -> ReadRound:
        shared = [chunks[number :: self._reading] for number in range(min(self._reading, len(chunks)))]

        def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for task in batch["id"].to_pylist():
                    yield from read_chunks(job, shared[task])

        tasks = self._spark.range(0, len(shared), 1, len(shared))
        batches = tasks.mapInArrow(of_task, frame.DECODED_SCHEMA).localCheckpoint(eager=False, storageLevel=_KEPT)
        read = ReadRound(batches, {}, [])
        with named_failures(job.ingest.window):
            rows = batches.where("kind in ('sizes', 'read', 'error')").select("kind", "text").collect()
        decoded = Decoded()
        for row in rows:
            if row.kind == "sizes":
                decoded.add_text(row.text)
                continue
            if row.kind == "read":
                chunk = ReadChunk(**orjson.loads(row.text))
                read.chunks[chunk.number] = chunk
                continue
            error = frame.error_from(row.text)
            if not isinstance(error, RetryableError | SourceError | SchemaError):
                raise error
            read.errors.append(error)
        job.ingest.topics.learn({topic for topic, _ in decoded.messages})
        return read

    def _publish(
        self,
        job: ChunkJob,
        planned: SnapshotRecord,
        read: ReadRound,
        wanted: dict[int, PlannedChunk],
        changed: ChangedKeys,
    ) -> list[ChunkRecord]:
        """Publish what of ``wanted`` may be, while no window is; the records of the chunks that are in Kafka.

        A table of which a key changed for the first time since the round began is read again, with its rows' keys.
        """
        endpoints, identity = self._endpoints, self._plan.identity
        with endpoints.lease(brief=True, patience_seconds=4 * PATIENCE_SECONDS) as lease:
            attempt = self._fence(lease)
            pipeline_log, log = (replace(each, writer=lease.writer) for each in (endpoints.commit_log(), self._log))
            state, own = pipeline_log.read_beside(identity)
            self._check_own(own)
            position = self._position.of(state, self._uuid)
            check_begun(state.of(BegunRecord), self._rules)
            if not is_covered(state, self._uuid, changed.start, position.end, rules_digest(self._rules)):
                self._changed = None
                raise _NothingPublishedError(
                    f"windows between {changed.start} and {position.end.coordinates} were published by other settings, "
                    "or a seek went over them: the round is read again"
                )
            changed.read_to(position.reach)
            tables = {chunk.table_name for chunk in wanted.values()}
            defined = {table: at for table in tables if (at := changed.defined(table)) is not None}
            wanted = {number: chunk for number, chunk in wanted.items() if chunk.table_name not in defined}
            if not wanted:
                table, at = next(iter(defined.items()))
                raise _NothingPublishedError(
                    f"{table} was defined anew or emptied at {at}, and pipeline {endpoints.pipeline.name!r} has "
                    f"published its changes up to {position.end.coordinates}: its rows are read when that is published"
                )
            self._changing |= changed.tables
            unkept = self._changing - job.changing
            wanted = {number: chunk for number, chunk in wanted.items() if chunk.table_name not in unkept}
            if not wanted:
                return []
            names = tuple(sorted(table.name for table in planned.tables))
            relied = ReliedRecord(identity, self._uuid, str(changed.end), self._rules, names, str(changed.gtids))
            pipeline_log.keep(relied)
            pipeline_log.keep_together(self._announcer.completed(state, planned))
            rounds = {chunk.number for chunk in planned.round}
            log.keep(planned, [done for done in own.of(ChunkRecord) if done.number not in rounds])
            fault_point.reached("after_take_over")
            keys = {table: changed.keys(table) for table in {chunk.table_name for chunk in wanted.values()}}
            begun = replace(job, ingest=replace(job.ingest, attempt=attempt))
            self._records = self._published(begun, read, wanted, keys)
            self._state = state, time.monotonic()  # no window was published since
            return self._records

    def _published(
        self, job: ChunkJob, read: ReadRound, wanted: dict[int, PlannedChunk], keys: dict[str, set[bytes]]
    ) -> list[ChunkRecord]:
        def publish(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return publish_chunks(job, batches, wanted, keys)

        with named_failures(job.ingest.window):
            rows = read.batches.mapInArrow(publish, frame.PUBLISHED_SCHEMA).collect()
        published = []
        for row in rows:
            if row.kind == "error":
                raise frame.error_from(row.text)
            number, values = orjson.loads(row.text)
            published.append(ChunkRecord.from_json([number], values))
        return published
