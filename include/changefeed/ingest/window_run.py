"""Ingest: publish a frozen window to Kafka, and seal it by writing its manifest to the commit log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.errors import BinlogGoneError, SchemaError, TerminalError
from changefeed.ingest.begin import check_begin, check_begin_topics, find_partly_published, read_begin_rules
from changefeed.ingest.slicing import Cutting, cut_slices
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.owned_log import KEPT_CONTINUOUS_SEALS, KEPT_SEALS, OwnedLog
from changefeed.kafka.commit_log.records import BegunRecord, CompleteTablesRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.kept_lease import KeptLease
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import TopicSettings, ensure_topics, partition_counts
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model import fault_point
from changefeed.model.file_identity import FileIdentity
from changefeed.model.manifest import Manifest, TopicPartitionReceipt, account
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import BinlogFile, Slice, Window, file_slices
from changefeed.pipeline.complete_tables import complete_after, complete_tables, pipeline_snapshots
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import high_water_marks
from changefeed.pipeline.open_windows import progress_in_window, sealed_manifest
from changefeed.pipeline.parking import check_same_parked, left_out_tables, park_tables
from changefeed.pipeline.registered_ids import check_same_ids, ids_by_subject, registered_ids
from changefeed.pipeline.schema_history import (
    history_for,
    learn_after_window,
    needs_tables,
    relearn,
    save_history,
    store_learned,
    with_statements,
    with_tables,
)
from changefeed.pipeline.topics import captured_routes, required_topics
from changefeed.pipeline.unknown_tables import apply_answers, check_tables_known, segments
from changefeed.pipeline.windows import check_not_renamed, commit_log_state
from changefeed.settings.message_rules import rules_digest
from changefeed.source.archive.archive import Archive
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.archive.completeness import check_complete
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, window_files
from changefeed.source.mysql.session import Session
from changefeed.spark.failures import raise_spark_failures
from changefeed.spark.progress import StageCount, show_progress
from changefeed.spark.progress_line import SLICES, TOPIC_PARTITIONS
from changefeed.spark.stages.batch_store import BatchStore, batch_store
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.decoding import Decoding
from changefeed.spark.stages.expected import DecodedCounts
from changefeed.spark.stages.messages import DecodedSlice, Failure, PublishedPartition, StoredBatch, TaskMessage
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
    """The reports, counts and receipts that Spark's tasks sent to the driver."""

    reports: list[SliceReport] = field(default_factory=list)
    decoded: DecodedCounts = field(default_factory=DecodedCounts)
    receipts: list[TopicPartitionReceipt] = field(default_factory=list)


def ingest(
    spark: SparkTarget,
    connections: PipelineConnections,
    window: Window,
    *,
    identity: str | None = None,
    archive: Archive | None = None,
    claim_timeout_seconds: float = 0.0,
    check: Callable[[CommitLogState | Lease], None] = lambda _: None,
    kept_lease: KeptLease | None = None,
) -> Manifest:
    """Publish ``window``, seal it, and return its manifest. Messages of an earlier attempt are not published again.

    The progress is stored under ``identity``: the pipeline's name (the default), or the identity of a backfill. If
    ``archive`` is passed, its binlog files are read instead of the server's. The checkpoint does not move.

    ``check`` is called with the lease, before anything else is written, and then with the pipeline's commit log, before
    the window begins; it may raise an error. A ``kept_lease`` is used, and kept for the next window, if Spark starts no
    copies of tasks: a copy may go on after its window.

    With `on_table_error: park`, a table with an error of its own is parked, and the window begins again without it.

    Raises PipelineBusyError, before anything is published, if another run of ``identity`` is alive, and does not end
    within ``claim_timeout_seconds``;
    StaleCheckpointError if the window does not follow the current progress; SettingsError or TopicError if the window
    was begun with other settings or topics; CheckpointError if the pipeline was renamed since the plan; AccountingError
    if the counts of bytes or messages do not match; and the error of a slice or topic-partition that failed.
    """
    parks = identity is None and connections.pipeline.on_table_error == "park"
    while True:
        try:
            return _ingest(spark, connections, window, identity, archive, claim_timeout_seconds, check, kept_lease)
        except TerminalError as error:
            if not (parks and error.tables):
                raise
            park_tables(connections, window, error)  # each time at least one table more, or the error


def _ingest(
    spark: SparkTarget,
    connections: PipelineConnections,
    window: Window,
    identity: str | None,
    archive: Archive | None,
    claim_timeout_seconds: float,
    check: Callable[[CommitLogState | Lease], None],
    kept_lease: KeptLease | None,
) -> Manifest:
    """See `ingest`; an error of one table is raised."""
    pipeline = connections.pipeline
    clock = _Clock(window)
    _ = (connections.column_rules, connections.transform_calls)  # a missing secret is an error before anything else
    is_new = kept_lease is not None  # a continuous run plans itself
    run = _WindowRun(spark, connections, window, identity or pipeline.name, archive, spark.cores(), is_new=is_new)
    if run.is_pipeline_run:
        connections.server_ids.check(run.tasks)
    inventory = run.take_inventory()
    new_lease = connections.lease(run.identity, timeout_seconds=claim_timeout_seconds)
    with new_lease if kept_lease is None or spark.may_copy_tasks else kept_lease.use(new_lease) as lease:
        check(lease)
        fence(lease, run.tasks)
        state, pipeline_state = run.log.read_with(pipeline.name)
        check_not_renamed(pipeline.name, pipeline_state)
        check(pipeline_state)
        if (sealed := sealed_manifest(window, state)) is not None:
            return sealed
        begun = run.begin(inventory, state, pipeline_state, lease)
        inventory.wait_for_workers()
        clock.end_phase("prepare")
        slices, outcome, history = run.publish(inventory, begun, lease)
        published_at = time.time()
        clock.end_phase("ingest")
        manifest = account(
            window,
            slices,
            outcome.reports,
            outcome.decoded.messages,
            outcome.receipts,
            clock.seconds,
            compare_gtids=archive is None,
            published_at=published_at if run.is_pipeline_run else None,
        )
        manifest = replace(manifest, rules=rules_digest(begun.record.rules), parked=begun.record.parked)
        own_history, complete = history if run.is_pipeline_run else None, None
        if own_history is not None and own_history.tables_known:
            own_history = save_history(connections, own_history, window, outcome.reports, lease)
            manifest = replace(manifest, schemas=own_history.id)
        if run.is_pipeline_run and pipeline.snapshot.new_tables:
            complete = _complete_tables(connections, window, own_history, state)
        fault_point.reach("before_seal")
        keep = KEPT_SEALS if pipeline.windows is None else KEPT_CONTINUOUS_SEALS
        lease.log().seal(manifest, state, keep=keep, uncommitted=2 * pipeline.windows_per_run, complete=complete)
        if own_history is not None and not own_history.tables_known:
            learn_after_window(connections, window, lease)
    fault_point.reach("after_seal")
    if manifest.dead_letters:
        _log.warning("window %d: %d records went to the dead-letter topic", window.number, manifest.dead_letters)
    return manifest


def _complete_tables(
    connections: PipelineConnections, window: Window, history: SchemaHistory | None, state: CommitLogState
) -> CompleteTablesRecord | None:
    before = complete_tables(state)
    if before is None:  # the setting was added while the window waited to be published
        return None
    if history is None or not history.tables_known:
        return before
    return complete_after(
        connections.pipeline, window, history, before, lambda: pipeline_snapshots(connections).values()
    )


class _Clock:
    """Measures the phases of a window's run: ``seconds`` has their durations by name."""

    def __init__(self, window: Window) -> None:
        waited = max(0.0, round(time.time() - window.frozen_at_ms / 1000, 3))  # for Airflow, Spark and earlier windows
        self.seconds = {"plan": window.plan_seconds, "start": waited}
        self._last = time.monotonic()

    def end_phase(self, phase: str) -> None:
        now = time.monotonic()
        self.seconds[phase], self._last = round(now - self._last, 3), now


@dataclass(frozen=True)
class _Inventory:
    """The binlog files, tables and topics of a window, as they were before the lease was acquired."""

    files: Sequence[Slice]
    identities: Mapping[str, FileIdentity]
    """Name of a binlog file of the server -> its identity; empty for an archive."""
    tables: Mapping[tuple[str, str], str]
    """Table -> topic."""
    topics: Mapping[str, int]
    """Topic -> partitions."""
    logs_column_names: bool
    """Whether the binlog has the names of columns (binlog_row_metadata=FULL)."""
    wait_for_workers: Callable[[], None]


@dataclass(frozen=True)
class _BegunWindow:
    """A window that was begun: the Spark tasks of its two stages, and its record in the commit log."""

    decode: DecodeTask
    publish: WindowPublishTask
    record: BegunRecord
    history: SchemaHistory | None
    """The stored schema history. The pipeline's settings for unknown tables are not applied to it."""


@dataclass(frozen=True)
class _WindowRun:
    """An attempt to publish ``window`` in up to ``tasks`` parallel tasks; progress is stored under ``identity``."""

    spark: SparkTarget
    connections: PipelineConnections
    window: Window
    identity: str
    archive: Archive | None
    tasks: int
    is_new: bool = False
    """Whether ``window`` was planned in this process. If its tasks read the newest file of the plan, and so check it,
    the driver does not look at that file again."""

    @property
    def is_pipeline_run(self) -> bool:
        """Whether this is a run of the pipeline; False for a backfill."""
        return self.identity == self.connections.pipeline.name

    @cached_property
    def log(self) -> CommitLog:
        """The commit log of ``identity``."""
        return self.connections.commit_log(self.identity)

    def take_inventory(self) -> _Inventory:
        """The source's files, its tables and the topics. Creates missing topics while Spark's workers start."""
        connections, window, archive = self.connections, self.window, self.archive
        pipeline = connections.pipeline
        with connections.session() as session:
            if archive is None:
                _check_server(session, window)
            listed = self._list_files(session) if archive is None else _complete_files(archive, session, window)
            files = list(file_slices(window, listed))
            size_bytes = sum(slice.size_bytes for slice in files)
            wait_for_workers = self.spark.warm_up(min(self.tasks, 1 + size_bytes // pipeline.spark.slice_bytes))
            routes = captured_routes(pipeline, session)
            names = {slice.file for slice in files}
            known = [window.newest] if self.is_new and window.newest and window.newest.name in names else []
            return _Inventory(
                files=files,
                topics=_create_topics(connections, window, self.log, required_topics(pipeline, routes)),
                tables={name: route.topic for name, route in routes.items()},
                identities={} if archive else window_files(connections.mysql, window, names, known),
                logs_column_names=source.logs_column_names(session),
                wait_for_workers=wait_for_workers,
            )

    def _list_files(self, session: Session) -> list[BinlogFile]:
        """The binlog files of the server; or only the file of a window in one file, which the plan has found there."""
        start, head = self.window.start, self.window.head
        if self.is_new and start.file == head.file:
            return [BinlogFile(head.file, head.position)]  # the server opens each file to list it
        return source.binlog_files(session)

    def begin(
        self, inventory: _Inventory, state: CommitLogState, pipeline_state: CommitLogState, lease: Lease
    ) -> _BegunWindow:
        """Begin the window, or continue it with the record of the attempt that began it. Call it after `fence`."""
        connections, window = self.connections, self.window
        pipeline = connections.pipeline
        parked = left_out_tables(pipeline, pipeline_state) if self.is_pipeline_run else frozenset()
        history = self._known_history(pipeline_state, parked)
        ids = registered_ids(connections, history, window, parked)
        record = _write_begun_record(connections, window, state, lease.log(), ids_by_subject(ids), parked)
        if self.is_pipeline_run and history is not None:
            history = store_learned(connections, history, lease)
        tables = _tables_of_topics(inventory.tables)
        limits = check_begin_topics(connections, window, state, inventory.topics, tables)
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
            history=history and apply_answers(pipeline, history),
            files=inventory.identities,
            archive=self.archive,
            tables=tuple(TableName(*table) for table in inventory.tables),
            parked=parked,
        )
        publish = WindowPublishTask(
            connections=connections,
            topics=topics,
            identity=self.identity,
            attempt=lease.attempt,
            copies=self.spark.may_copy_tasks,
            window=window,
            earlier_progress=progress_in_window(window, state.progress),
            high_water_marks=record.high_water_marks,
            orders={each.window: state.orders[each.window] for each in record.high_water_marks},
            tables=decode.tables,
        )
        return _BegunWindow(decode, publish, record, history)

    def _known_history(self, pipeline_state: CommitLogState, parked: Collection[str]) -> SchemaHistory | None:
        """The schema history up to the window's start; raises SchemaError if a table's schema there is unknown."""
        connections, window, archive = self.connections, self.window, self.archive
        with connections.session() if archive else connections.session_on(window.server_uuid) as session:
            archived = ArchivedBinlogs(archive) if archive else None
            history = history_for(connections, session, window, pipeline_state, archived=archived)
            check_tables_known(connections.pipeline, history, window.start, parked)
        return history

    def publish(
        self, inventory: _Inventory, begun: _BegunWindow, lease: Lease
    ) -> tuple[Sequence[Slice], _Outcome, SchemaHistory | None]:
        """Decode and publish the window; return its slices, their outcome, and the schema history that was used.

        That history differs from the history in ``begun`` if a statement of the window makes columns of a table unknown
        and the pipeline has a setting for such tables.
        """
        decode, history = begun.decode, begun.history
        try:
            return (*self._publish(inventory, decode, begun.publish, lease), history)
        except SchemaError:
            history = _relearn_unknown_tables(decode, begun.publish, history, lease)
            if history is None:
                raise
            decode = replace(decode, history=apply_answers(decode.pipeline, history))
            return (*self._publish(inventory, decode, begun.publish, lease), history)

    def _publish(
        self, inventory: _Inventory, decode: DecodeTask, publish: WindowPublishTask, lease: Lease
    ) -> tuple[Sequence[Slice], _Outcome]:
        window = self.window
        with raise_spark_failures(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head})"
        ):
            return _publish_window(
                self.spark,
                decode,
                publish,
                inventory.files,
                self.tasks,
                lease,
                logs_column_names=inventory.logs_column_names,
            )


def _complete_files(archive: Archive, session: Session, window: Window) -> Sequence[BinlogFile]:
    """The files of ``archive``. Raises what `check_complete` raises: the files may have changed since the plan."""
    archived = ArchivedBinlogs(archive)
    check_complete(archived, ServerBinlogs(session), window.start, window.head)
    return archived.files()


def _relearn_unknown_tables(
    decode: DecodeTask, publish: WindowPublishTask, history: SchemaHistory | None, lease: Lease
) -> SchemaHistory | None:
    """Read unknown tables from the server again; return the new schema history, which is stored.

    These are tables whose columns are unknown after a statement of the window, and unknown tables without counted rows.
    Returns None if there are no such tables, or if a part of the window is published already, from this server or,
    before a failover, from another: its schemas must then not change until the window ends. Raises SchemaError, which
    lists all such tables, if the pipeline has no setting for one of them.
    """
    window, connections = publish.window, publish.connections
    if history is None or not history.tables_known or publish.identity != connections.pipeline.name or decode.archive:
        return None
    if publish.high_water_marks or progress_in_window(window, commit_log_state(connections).progress):
        return None
    captures = connections.pipeline.tables.matches
    unknown_before = {(name, since) for name, _, since, _ in segments(history)}
    after_statements = segments(with_statements(connections, history, window))
    unknown_after = {(name, since) for name, _, since, _ in after_statements if captures(*name)}
    without_rows = [
        f"{name.database}.{name.table}"
        for name, table, _, end in segments(history)
        if not table.rows and end is None and captures(*name)
    ]
    if unknown_after <= unknown_before and not without_rows:
        return None
    with connections.session_on(window.server_uuid) as session:
        relearned = relearn(connections, session, without_rows, lease)
    check_tables_known(connections.pipeline, relearned, window.start, decode.parked)
    return relearned


def _write_begun_record(
    connections: PipelineConnections,
    window: Window,
    state: CommitLogState,
    log: OwnedLog,
    schema_ids: Mapping[str, int],
    parked: Collection[str],
) -> BegunRecord:
    """The begun record of ``window``; the first attempt writes it to the commit log. Call it after `fence`."""
    obsolete = check_begin(connections, window, state)
    left_out = tuple(sorted(parked))
    for earlier in find_partly_published(window, state):
        check_same_parked(window, earlier.parked, left_out)
        check_same_ids(window, earlier.schema_ids, schema_ids)
        schema_ids = {**schema_ids, **earlier.schema_ids}
    high_water = high_water_marks(connections, window, state)
    begun = BegunRecord(window, read_begin_rules(connections), high_water, schema_ids, left_out)
    log.begin(begun, state, obsolete)
    return begun


def _create_topics(
    connections: PipelineConnections, window: Window, log: CommitLog, settings: Mapping[str, TopicSettings]
) -> dict[str, int]:
    """Create the missing topics of ``settings``; return the number of partitions of each topic.

    Raises TopicError if a topic with published messages is missing, because somebody deleted it.
    """
    counts = partition_counts(connections.kafka, settings)
    if len(counts) < len(settings) and log.exists():
        check_begin_topics(connections, window, log.read(open_seconds=1.0), settings)
    return ensure_topics(connections.kafka, settings, create=connections.pipeline.topics.create, known=counts)


def _tables_of_topics(tables: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Topic -> the names of its tables, as text for error messages."""
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
    logs_column_names: bool,
) -> tuple[Sequence[Slice], _Outcome]:
    """Cut the window into slices, decode and publish them; return the slices and their outcome.

    All files are first scouted (searched) for statements if the source does not log FULL metadata, or if the records of
    statements need the tables' schemas, which a statement of an earlier file may change. Otherwise all files are
    scouted only if rows without column names are found.
    """
    pipeline, window = decode.pipeline, publish.window

    def run(decode: DecodeTask, *, scout_all: bool) -> tuple[Sequence[Slice], _Outcome]:
        with spark.local_folder() as folder:
            here = replace(decode, folder=folder)
            with closing(cut_slices(spark, here, files, pipeline.spark.slice_bytes, scout_all=scout_all)) as cuttings:
                return _decode_and_publish(spark, here, publish, cuttings, tasks)

    try:
        return run(decode, scout_all=len(files) > 1 and (not logs_column_names or needs_tables(pipeline)))
    except UnscoutedError as error:
        _log.info("window %d: %s: its files are searched for DDL statements, and decoded again", window.number, error)
        if decode.history is not None:
            history = with_tables(decode.connections, decode.history, window, lease)
            if isinstance(error, RenamedColumnError):
                history = with_statements(decode.connections, history, window)
                decode = replace(decode, statements_ahead=True)
            check_tables_known(pipeline, history, window.start, decode.parked)
            decode = replace(decode, history=apply_answers(pipeline, history))
        return run(decode, scout_all=True)


def _decode_and_publish(
    spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask, cuttings: Iterator[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    first = next(cuttings)
    if first.is_last and len(first.slices) < 2:
        # One task decodes the only slice, so it applies all statements in order without scouting.
        task = replace(decode, slices=first.slices, statements_scouted=True)
        return first.slices, _publish_one_slice(spark, task, publish)
    return _publish_many_slices(spark, decode, publish, chain([first], cuttings), tasks)


def _add_slices(task: DecodeTask, cutting: Cutting) -> DecodeTask:
    """``task`` with the slices of ``cutting`` added, and its statements applied to the schema history if known."""
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
            f"expected server {window.server_uuid}, on which window {window.number} of pipeline {window.pipeline!r} "
            f"was frozen, found {uuid}: the connection leads to another server now. Nothing was published. Plan again."
        )


def _publish_one_slice(spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask) -> _Outcome:
    outcome = _Outcome()
    with show_progress(spark, "decode and publish", len(decode.slices)):
        _collect(outcome, spark.results_of([decode.slices], lambda slices: decode_and_publish(decode, publish, slices)))
    return outcome


def _publish_many_slices(
    spark: SparkTarget, decode: DecodeTask, publish: WindowPublishTask, cuttings: Iterable[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    """Decode slices while later ones are still being cut, then publish each topic-partition in one task."""
    outcome, decoded = _Outcome(), StageCount(spark, SLICES)
    store = batch_store(spark, decode.folder)
    with Decoding(spark, decoded, store) as decoding:
        with show_progress(spark, "decode", count=decoded) as shown_tasks:
            for cutting in cuttings:
                _collect(outcome, decoding.read_ended())  # the first error ends the run, before the rest is scouted
                decode = _add_slices(decode, cutting)
                if cutting.slices:  # the last cutting may be empty
                    decoding.add(decode, cutting.slices, shown_tasks)
            _collect(outcome, decoding.read_remaining())
        fault_point.reach("after_decode")
        assigned_tasks = assign_tasks(outcome.decoded.size_bytes, tasks)
        publish = publish.with_decoded(decode.slices, outcome.reports, outcome.decoded, assigned_tasks)
        if publish.must_compare:
            with show_progress(spark, "compare", len(set(assigned_tasks.values()))):
                _compare_stored(store, publish)
        if assigned_tasks:
            published = StageCount(spark, TOPIC_PARTITIONS, len(assigned_tasks))
            with show_progress(spark, "publish", len(set(assigned_tasks.values())), published):
                _collect(outcome, _publish_stored(store, publish, published))
    return decode.slices, outcome


def _publish_stored(store: BatchStore, task: WindowPublishTask, count: StageCount) -> list[TaskMessage]:
    def stage(number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
        for message in publish_batches(task, number, stored):
            if isinstance(message, PublishedPartition):
                count.add_part()
                count.add_messages(message.receipt.messages)
            yield message

    return store.publish(stage, task.assigned_tasks)


def _compare_stored(store: BatchStore, task: WindowPublishTask) -> None:
    check_before_publishing(
        task, store.publish(partial(compare_batches, task), task.assigned_tasks) if task.assigned_tasks else ()
    )


def assign_tasks(sizes: dict[tuple[str, int], int], tasks: int) -> dict[tuple[str, int], int]:
    """The number of the task that publishes each topic-partition; ``sizes`` are bytes.

    Topic-partitions are assigned by size, the largest first, each to the task with the fewest bytes so far.
    """
    loads = [0] * min(tasks, max(1, len(sizes)))
    assigned_tasks = {}
    for partition, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        task = loads.index(min(loads))
        loads[task] += size
        assigned_tasks[partition] = task
    return assigned_tasks


def _collect(outcome: _Outcome, messages: Iterable[TaskMessage]) -> None:
    """Add the results in the messages of a stage to ``outcome``. Raises the error of the first `Failure`."""
    for message in messages:
        match message:
            case Failure():
                raise message.error
            case DecodedSlice():
                outcome.reports.append(message.report)
                outcome.decoded.add(message.counts)
            case PublishedPartition():
                outcome.receipts.append(message.receipt)
