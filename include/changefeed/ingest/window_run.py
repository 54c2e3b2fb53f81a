"""ingest: a frozen window -> Kafka, and its manifest sealed in the commit log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.errors import BinlogGoneError, SchemaError
from changefeed.ingest.begin import begin_rules, begin_topics, begun_in_part, check_begin
from changefeed.ingest.slicing import Cutting, cut
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.records import BegunRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import TopicSettings, ensure_topics, partition_counts
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model import fault_point
from changefeed.model.file_identity import FileIdentity
from changefeed.model.manifest import Manifest, TopicPartitionReceipt, account
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import BinlogFile, Slice, Window, whole_file_slices
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import marks_of
from changefeed.pipeline.open_windows import given_before, sealed_manifest
from changefeed.pipeline.registered_ids import check_same_ids, ids_by_subject, registered_ids
from changefeed.pipeline.schema_history import (
    history_for,
    keep_learned,
    learn_behind,
    makes_records_of_tables,
    relearn,
    save_history,
    with_statements,
    with_tables,
)
from changefeed.pipeline.topics import table_topics, wanted_topics
from changefeed.pipeline.unknown_tables import answered, check_tables_known, segments
from changefeed.pipeline.windows import check_not_renamed, commit_log_state
from changefeed.settings.message_rules import rules_digest
from changefeed.source.archive.archive import Archive
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.archive.completeness import check_complete
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, window_files
from changefeed.source.mysql.session import Session
from changefeed.spark.failures import named_failures
from changefeed.spark.progress import MessageCount, shown
from changefeed.spark.stages.batch_store import BatchStore, batch_store
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.decoding import Decoding
from changefeed.spark.stages.expected import Decoded
from changefeed.spark.stages.messages import DecodedSlice, Failure, Published, StoredBatch, TaskMessage
from changefeed.spark.stages.publish import (
    check_before_publishing,
    compare_batches,
    decode_and_publish,
    publish_batches,
)
from changefeed.spark.stages.publish_task import WindowPublishTask
from changefeed.spark.stages.statement_follower import RenamedColumnError, UnscoutedError
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)


@dataclass
class _Outcome:
    """What the stages reported to the driver."""

    reports: list[SliceReport] = field(default_factory=list)
    decoded: Decoded = field(default_factory=Decoded)
    receipts: list[TopicPartitionReceipt] = field(default_factory=list)


def ingest(
    spark: SparkTarget,
    connections: PipelineConnections,
    window: Window,
    *,
    identity: str | None = None,
    archive: Archive | None = None,
) -> Manifest:
    """Publish ``window`` and seal it; what an earlier attempt published already is not published again.

    ``identity`` is whose progress it is: the pipeline's, or a backfill's own. ``archive`` has the
    binlog files to read instead of the server's.

    Raises PipelineBusyError, before anything is published, while another run of ``identity`` is alive;
    StaleCheckpointError when the window is out of date, SettingsError or TopicError when it was begun under other
    settings or topics; AccountingError when its bytes or messages do not add up; and whatever a slice or a
    topic-partition stopped with; CheckpointError when the pipeline was renamed since. The checkpoint is not touched in
    any case.
    """
    pipeline = connections.pipeline
    clock = _Clock(window)
    _ = (connections.column_rules, connections.transform_calls)  # a secret that is not set is told before all else
    run = _WindowRun(spark, connections, window, identity or pipeline.name, archive, spark.cores())
    if run.is_pipelines:
        connections.server_ids.check(run.tasks)
    found = run.look()
    with connections.lease(run.identity) as lease:
        fence(lease, run.tasks)
        state, of_pipeline = run.log.read_beside(pipeline.name)
        check_not_renamed(pipeline.name, of_pipeline)
        if (sealed := sealed_manifest(window, state)) is not None:
            return sealed
        begun = run.begin(found, state, of_pipeline, lease)
        found.wait_for_workers()
        clock.end_of("prepare")
        slices, outcome, history = run.publish(found, begun, lease)
        clock.end_of("ingest")
        manifest = account(
            window,
            slices,
            outcome.reports,
            outcome.decoded.messages,
            outcome.receipts,
            clock.seconds,
            compare_gtids=archive is None,
        )
        manifest = replace(manifest, rules=rules_digest(begun.record.rules))
        kept = history if run.is_pipelines else None
        if kept is not None and kept.tables_known:
            manifest = replace(manifest, schemas=save_history(connections, kept, window, outcome.reports, lease))
        fault_point.reached("before_seal")
        lease.log().seal(manifest, state, uncommitted=2 * pipeline.windows_per_run)
        if kept is not None and not kept.tables_known:
            learn_behind(connections, window, lease)
    fault_point.reached("after_seal")
    if manifest.dead_letters:
        _log.warning("window %d: %d records went to the dead-letter topic", window.number, manifest.dead_letters)
    return manifest


class _Clock:
    """The seconds of each phase of a window's run, by name."""

    def __init__(self, window: Window) -> None:
        waited = max(0.0, round(time.time() - window.frozen_at_ms / 1000, 3))  # for Airflow, Spark, windows before it
        self.seconds = {"plan": window.plan_seconds, "start": waited}
        self._last = time.monotonic()

    def end_of(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[phase], self._last = round(now - self._last, 3), now


@dataclass(frozen=True)
class _Found:
    """What was there before the lease was taken: binlog files, tables and topics."""

    files: Sequence[Slice]
    identities: Mapping[str, FileIdentity]
    """By binlog file of the server; of an archive's there are none."""
    tables: Mapping[tuple[str, str], str]
    """Table -> topic."""
    topics: Mapping[str, int]
    """Topic -> partitions."""
    names_come_along: bool
    """Whether the binlog has the names of columns (binlog_row_metadata=FULL)."""
    wait_for_workers: Callable[[], None]


@dataclass(frozen=True)
class _Begun:
    """A window that is begun: what Spark's tasks need, and what is known of it behind the fence."""

    decode: DecodeTask
    publish: WindowPublishTask
    record: BegunRecord
    history: SchemaHistory | None
    """As it is stored, without what the pipeline says of definitions that are unknown."""


@dataclass(frozen=True)
class _WindowRun:
    """An attempt to publish ``window`` as ``identity``, on ``tasks`` cores."""

    spark: SparkTarget
    connections: PipelineConnections
    window: Window
    identity: str
    archive: Archive | None
    tasks: int

    @property
    def is_pipelines(self) -> bool:
        """Whether it is the pipeline's own, and not a backfill's."""
        return self.identity == self.connections.pipeline.name

    @cached_property
    def log(self) -> CommitLog:
        """What says how far the window is published."""
        return self.connections.commit_log(self.identity)

    def look(self) -> _Found:
        """Look at source and Kafka, and make topics that are missing, while Spark's workers start."""
        connections, window, archive = self.connections, self.window, self.archive
        pipeline = connections.pipeline
        with connections.session() as session:
            if archive is None:
                _check_server(session, window)
            listed = source.binlog_files(session) if archive is None else _complete_files(archive, session, window)
            files = list(whole_file_slices(window, listed))
            size_bytes = sum(piece.size_bytes for piece in files)
            wait_for_workers = self.spark.warm_up(min(self.tasks, 1 + size_bytes // pipeline.spark.slice_bytes))
            return _Found(
                files=files,
                topics=_make_topics(connections, window, self.log, wanted_topics(pipeline, session)),
                tables=table_topics(pipeline, session),
                identities={} if archive else window_files(connections.mysql, window, (piece.file for piece in files)),
                names_come_along=source.names_come_along(session),
                wait_for_workers=wait_for_workers,
            )

    def begin(self, found: _Found, state: CommitLogState, of_pipeline: CommitLogState, lease: Lease) -> _Begun:
        """Begin the window, or go on as it was begun; called behind the fence."""
        connections, window = self.connections, self.window
        pipeline = connections.pipeline
        history = self._known_history(of_pipeline)
        ids = registered_ids(connections, history, window)
        record = _begin(connections, window, state, lease.log(), ids_by_subject(ids))
        if self.is_pipelines and history is not None:
            history = keep_learned(connections, history, lease)
        limits = begin_topics(connections, window, state, found.topics, _tables_of_topics(found.tables))
        topics = WindowTopics(connections.kafka, limits, create=pipeline.topics.create)
        decode = DecodeTask(
            connections=connections,
            server_uuid=window.server_uuid,
            topics=topics,
            identity=self.identity,
            frozen_at_ms=window.frozen_at_ms,
            schema_ids=ids,
            start=window.start,
            attempt=lease.attempt,
            history=history and answered(pipeline, history),
            files=found.identities,
            archive=self.archive,
            tables=tuple(TableName(*table) for table in found.tables),
        )
        publish = WindowPublishTask(
            connections=connections,
            topics=topics,
            identity=self.identity,
            attempt=lease.attempt,
            copies=self.spark.may_copy_tasks,
            window=window,
            given=given_before(window, state.progress),
            marks=record.marks,
            orders={mark.window: state.orders[mark.window] for mark in record.marks},
            tables=decode.tables,
        )
        return _Begun(decode, publish, record, history)

    def _known_history(self, of_pipeline: CommitLogState) -> SchemaHistory | None:
        """How the tables are at the window's start; raises SchemaError where that is unknown of one."""
        connections, window, archive = self.connections, self.window, self.archive
        with connections.session() if archive else connections.session_on(window.server_uuid) as session:
            archived = ArchivedBinlogs(archive) if archive else None
            history = history_for(connections, session, window, of_pipeline, archived=archived)
            check_tables_known(connections.pipeline, history, window.start)
        return history

    def publish(
        self, found: _Found, begun: _Begun, lease: Lease
    ) -> tuple[Sequence[Slice], _Outcome, SchemaHistory | None]:
        """Decode and publish; the slices, what was made of them, and the history by which they were decoded.

        That is another one than the window was begun with where a statement leaves tables unknown, and the pipeline
        says what to do about them.
        """
        decode, history = begun.decode, begun.history
        try:
            return (*self._publish(found, decode, begun.publish, lease), history)
        except SchemaError:
            history = _with_unknown_counted(decode, begun.publish, history, lease)
            if history is None:
                raise
            decode = replace(decode, history=answered(decode.pipeline, history))
            return (*self._publish(found, decode, begun.publish, lease), history)

    def _publish(
        self, found: _Found, decode: DecodeTask, publish: WindowPublishTask, lease: Lease
    ) -> tuple[Sequence[Slice], _Outcome]:
        window = self.window
        with named_failures(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head})"
        ):
            return _publish_window(
                self.spark, decode, publish, found.files, self.tasks, lease, names_come_along=found.names_come_along
            )


def _complete_files(archive: Archive, session: Session, window: Window) -> Sequence[BinlogFile]:
    """The files of ``archive``; raises as `check_complete`: they may be others than those that were planned with."""
    archived = ArchivedBinlogs(archive)
    check_complete(archived, ServerBinlogs(session), window.start, window.head)
    return archived.files()


def _with_unknown_counted(
    decode: DecodeTask, publish: WindowPublishTask, history: SchemaHistory | None, lease: Lease
) -> SchemaHistory | None:
    """The history with the rows of tables that a statement of the window leaves unknown, or that were not known before
    they had any, stored, where the pipeline says what to do about all of them; None where there is no such table.

    None, too, where anything of the window is published, here or, before a failover, on another server: its tables must
    be known as they are until it ends. Raises SchemaError, which lists them all, where nothing says what to do.
    """
    window, connections = publish.window, publish.connections
    if history is None or not history.tables_known or publish.identity != connections.pipeline.name or decode.archive:
        return None
    if publish.marks or given_before(window, commit_log_state(connections).progress):
        return None
    known = {(name, since) for name, _, since, _ in segments(history)}
    moved = segments(with_statements(connections, history, window))
    found = {(name, since) for name, _, since, _ in moved if connections.pipeline.tables.matches(*name)}
    uncounted = [
        f"{name.database}.{name.table}"
        for name, table, _, end in segments(history)
        if not table.rows and end is None and connections.pipeline.tables.matches(*name)
    ]
    if found <= known and not uncounted:
        return None
    with connections.session_on(window.server_uuid) as session:
        counted = relearn(connections, session, uncounted, lease)
    check_tables_known(connections.pipeline, counted, window.start)
    return counted


def _begin(
    connections: PipelineConnections,
    window: Window,
    state: CommitLogState,
    log: OwnedLog,
    schema_ids: Mapping[str, int],
) -> BegunRecord:
    """The record of ``window`` as it was begun; written, where this is the first attempt. Called behind the fence."""
    passed = check_begin(connections, window, state)
    for earlier in begun_in_part(window, state):
        check_same_ids(window, earlier.schema_ids, schema_ids)
        schema_ids = {**schema_ids, **earlier.schema_ids}
    begun = BegunRecord(window, begin_rules(connections), marks_of(connections, window, state), schema_ids)
    log.begin(begun, state, passed)
    return begun


def _make_topics(
    connections: PipelineConnections, window: Window, log: CommitLog, wanted: Mapping[str, TopicSettings]
) -> dict[str, int]:
    """Make those of ``wanted`` that are missing, unless one was removed that was given messages before."""
    if len(partition_counts(connections.kafka, wanted)) < len(wanted) and log.exists():
        begin_topics(connections, window, log.read(open_seconds=1.0), wanted)
    return ensure_topics(connections.kafka, wanted, create=connections.pipeline.topics.create)


def _tables_of_topics(tables: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """By topic the tables whose changes go there, for messages."""
    names: dict[str, list[str]] = {}
    for (database, table), topic in tables.items():
        names.setdefault(topic, []).append(f"{database}.{table}")
    return {
        topic: ", ".join(of_topic[:3]) + (f" or {len(of_topic) - 3} others" if of_topic[3:] else "")
        for topic, of_topic in names.items()
    }


def _publish_window(
    spark: SparkTarget,
    decode: DecodeTask,
    publish: WindowPublishTask,
    files: Sequence[Slice],
    tasks: int,
    lease: Lease,
    *,
    names_come_along: bool,
) -> tuple[Sequence[Slice], _Outcome]:
    """Cut, decode and publish.

    Slices of a source without FULL metadata need all statements before them, so all files are scouted. So do slices
    that make records of statements: what ALTER changes may be made in an earlier file. Otherwise files are scouted
    only if rows without names turn up after all.
    """
    pipeline, window = decode.pipeline, publish.window

    def run(decode: DecodeTask, *, scout_all: bool) -> tuple[Sequence[Slice], _Outcome]:
        with spark.local_folder() as folder:
            here = replace(decode, folder=folder)
            with closing(cut(spark, here, files, pipeline.spark.slice_bytes, scout_all=scout_all)) as cuttings:
                return _decode_and_publish(spark, here, publish, cuttings, tasks)

    try:
        return run(decode, scout_all=len(files) > 1 and (not names_come_along or makes_records_of_tables(pipeline)))
    except UnscoutedError as error:
        _log.info("window %d: %s: scouting its statements", window.number, error)
        if decode.history is not None:
            history = with_tables(decode.connections, decode.history, window, lease)
            if isinstance(error, RenamedColumnError):
                history = with_statements(decode.connections, history, window)
                decode = replace(decode, statements_ahead=True)
            check_tables_known(pipeline, history, window.start)
            decode = replace(decode, history=answered(pipeline, history))
        return run(decode, scout_all=True)


def _decode_and_publish(
    spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask, cuttings: Iterator[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    first = next(cuttings)
    if first.is_last and len(first.slices) < 2:
        # Its reader follows all of its statements by itself.
        alone = replace(decode, slices=first.slices, statements_scouted=True)
        return first.slices, _one_slice(spark, alone, publish)
    return _many_slices(spark, decode, publish, chain([first], cuttings), tasks)


def _with_slices(task: DecodeTask, cutting: Cutting) -> DecodeTask:
    """``task`` with the next slices, and with all statements before them where these are known."""
    history = task.history
    for statement in cutting.statements or ():
        history = history.advance(statement) if history else None
    return replace(
        task,
        slices=(*task.slices, *cutting.slices),
        statements_scouted=cutting.statements is not None,
        history=history,
    )


def _check_server(session: Session, window: Window) -> None:
    uuid = source.server_uuid(session)
    if uuid != window.server_uuid:
        raise BinlogGoneError(
            f"window {window.number} of pipeline {window.pipeline!r} was frozen on server {window.server_uuid}, "
            f"found server {uuid}: the connection leads to another server now. Plan again."
        )


def _one_slice(spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask) -> _Outcome:
    outcome = _Outcome()
    with shown(spark, "decode and publish", len(decode.slices)):
        _take(outcome, spark.results_of([decode.slices], lambda slices: decode_and_publish(decode, publish, slices)))
    return outcome


def _many_slices(
    spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask, cuttings: Iterable[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    """Decode all, as it is cut, then bring batches to where one task writes a topic-partition, and publish."""
    outcome, messages = _Outcome(), MessageCount(spark)
    store = batch_store(spark, decode.folder)
    with Decoding(spark, messages, store) as decoding:
        with shown(spark, "decode", messages=messages) as shown_tasks:
            for cutting in cuttings:
                _take(outcome, decoding.ended())  # an error ends the window before the rest of it is scouted
                decode = _with_slices(decode, cutting)
                if cutting.slices:  # the last one may only say that no more come
                    decoding.add(decode, cutting.slices, shown_tasks)
            _take(outcome, decoding.results())
        fault_point.reached("after_decode")
        packed = pack(outcome.decoded.size_bytes, tasks)
        publish = publish.settled(decode.slices, outcome.reports, outcome.decoded, packed)
        if publish.must_compare:
            with shown(spark, "compare", len(set(packed.values()))):
                _compare_stored(store, publish)
        if packed:
            published = MessageCount(spark)
            with shown(spark, "publish", len(set(packed.values())), published):
                _take(outcome, _publish_stored(store, publish, published.add))
    return decode.slices, outcome


def _publish_stored(store: BatchStore, task: WindowPublishTask, count: Callable[[int], None]) -> list[TaskMessage]:
    def stage(number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
        for message in publish_batches(task, number, stored):
            if isinstance(message, Published):
                count(message.receipt.messages)
            yield message

    return store.publish(stage, task.packed)


def _compare_stored(store: BatchStore, task: WindowPublishTask) -> None:
    check_before_publishing(task, store.publish(partial(compare_batches, task), task.packed) if task.packed else ())


def pack(sizes: dict[tuple[str, int], int], tasks: int) -> dict[tuple[str, int], int]:
    """Which task writes which topic-partition: the largest first, each to the task that has least so far."""
    loads = [0] * min(tasks, max(1, len(sizes)))
    packed = {}
    for partition, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        task = loads.index(min(loads))
        loads[task] += size
        packed[partition] = task
    return packed


def _take(outcome: _Outcome, messages: Iterable[TaskMessage]) -> None:
    """Sort the messages of a stage; the first failure among them is raised as what it was."""
    for message in messages:
        match message:
            case Failure():
                raise message.error
            case DecodedSlice():
                outcome.reports.append(message.report)
                outcome.decoded.add(message.counts)
            case Published():
                outcome.receipts.append(message.receipt)
