"""ingest: a frozen window -> Kafka, and its manifest sealed in the commit log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from changefeed import fault_point
from changefeed.archive.archive import Archive
from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.ddl.names import TableName
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import BinlogGoneError
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_record import BegunRecord
from changefeed.kafka.topics import TopicSettings, ensure_topics, partition_counts
from changefeed.kafka.window_topics import WindowTopics
from changefeed.manifest import Manifest, TopicPartitionReceipt, account
from changefeed.mysql import source
from changefeed.mysql.file_identities import window_files
from changefeed.mysql.session import Session
from changefeed.pipelines.message_rules import message_rules, rules_digest
from changefeed.reader import SliceReport
from changefeed.runs.begin import begin_topics, begun_in_part, check_begin
from changefeed.runs.failover import marks_of
from changefeed.runs.registered_ids import check_same_ids, ids_by_subject, registered_ids
from changefeed.runs.schema_history import (
    history_for,
    keep_learned,
    makes_records_of_tables,
    save_history,
    with_statements,
    with_tables,
)
from changefeed.runs.topics import table_topics, wanted_topics
from changefeed.runs.unfinished import check_given, given_before, sealed_manifest
from changefeed.runs.unknown_tables import answered, check_tables_known
from changefeed.runs.windows import commit_log_state
from changefeed.spark import frame
from changefeed.spark.cutting import Cutting, cut
from changefeed.spark.decoding import Decoding
from changefeed.spark.expected import Decoded
from changefeed.spark.failures import named_failures
from changefeed.spark.filed_batches import FiledBatches
from changefeed.spark.job import IngestJob
from changefeed.spark.local_folder import local_folder
from changefeed.spark.progress import MessageCount, shown
from changefeed.spark.publish import decode_and_publish_batches
from changefeed.spark.session import cores, makes_copies
from changefeed.spark.shuffled_batches import ShuffledBatches
from changefeed.spark.statement_follower import RenamedColumnError, UnscoutedError
from changefeed.spark.tasks import in_tasks
from changefeed.spark.warm_up import warm_up
from changefeed.window import Slice, Window, whole_file_slices

_log = logging.getLogger(__name__)


@dataclass
class _Outcome:
    """What the stages reported to the driver."""

    reports: list[SliceReport] = field(default_factory=list)
    decoded: Decoded = field(default_factory=Decoded)
    receipts: list[TopicPartitionReceipt] = field(default_factory=list)


def ingest(
    spark: SparkSession,
    endpoints: Endpoints,
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
    topic-partition stopped with. The checkpoint is not touched in any case.
    """
    pipeline, kafka = endpoints.pipeline, endpoints.kafka
    identity = identity or pipeline.name
    began = time.monotonic()
    _ = (
        endpoints.column_rules,
        endpoints.transform_calls,
    )  # secrets that nobody has set are told before anything is done
    waited = max(0.0, round(time.time() - window.frozen_at_ms / 1000, 3))  # for Airflow, Spark and windows before it
    tasks = cores(spark)
    if identity == pipeline.name:
        endpoints.server_ids.check(tasks)
    log = endpoints.commit_log(identity)
    with endpoints.session() as session:
        if archive is None:
            _check_server(session, window)
        listed = ArchivedBinlogs(archive).files() if archive is not None else source.binlog_files(session)
        files = list(whole_file_slices(window, listed))
        size_bytes = sum(piece.size_bytes for piece in files)
        wait_for_workers = warm_up(spark, min(tasks, 1 + size_bytes // pipeline.spark.slice_bytes))
        made = _make_topics(endpoints, window, log, wanted_topics(pipeline, session))
        tables = table_topics(pipeline, session)
        identities = {} if archive else window_files(endpoints.mysql, window, (piece.file for piece in files))
        names_come_along = source.names_come_along(session)
    with endpoints.lease(identity) as lease:
        attempt = fence(kafka, identity, tasks, log.topic, lease.attempt)
        state = log.read()
        if (sealed := sealed_manifest(window, state)) is not None:
            return sealed
        pipeline_state = state if identity == pipeline.name else commit_log_state(endpoints)
        with endpoints.session() if archive else endpoints.session_on(window.server_uuid) as session:
            archived = ArchivedBinlogs(archive) if archive else None
            history = history_for(endpoints, session, window, pipeline_state, archived=archived)
            check_tables_known(pipeline, history, window.start)
        ids = registered_ids(endpoints, history, window)
        begun = _begin(endpoints, window, state, log, ids_by_subject(ids))
        if identity == pipeline.name and history is not None:
            history = keep_learned(endpoints, history)
        job = IngestJob(
            endpoints=endpoints,
            window=window,
            topics=WindowTopics(
                kafka,
                begin_topics(endpoints, window, state, made, _tables_of_topics(tables)),
                create=pipeline.topics.create,
            ),
            attempt=attempt,
            identity=identity,
            history=history and answered(pipeline, history),
            files=identities,
            archive=archive,
            copies=makes_copies(spark),
            given=given_before(window, state),
            marks=begun.marks or (),
            schema_ids=ids,
            tables=tuple(TableName(*table) for table in tables),
        )
        wait_for_workers()
        prepared = time.monotonic()
        with named_failures(window):
            slices, outcome = _publish_window(spark, job, files, tasks, names_come_along=names_come_along)
        seconds = {
            "plan": window.plan_seconds,
            "start": waited,
            "prepare": round(prepared - began, 3),
            "ingest": round(time.monotonic() - prepared, 3),
        }
        manifest = account(
            window,
            slices,
            outcome.reports,
            outcome.decoded.messages,
            outcome.receipts,
            seconds,
            compare_gtids=archive is None,
        )
        manifest = replace(manifest, rules=rules_digest(begun.rules))
        if identity == pipeline.name and history is not None:
            manifest = replace(manifest, schemas=save_history(endpoints, history, window, outcome.reports))
        fault_point.reached("before_seal")
        log.seal(manifest, state, uncommitted=2 * pipeline.windows_per_run)
    fault_point.reached("after_seal")
    if manifest.dead_letters:
        _log.warning("window %d: %d records went to the dead-letter topic", window.number, manifest.dead_letters)
    return manifest


def _begin(
    endpoints: Endpoints, window: Window, state: CommitLogState, log: CommitLog, schema_ids: Mapping[str, int]
) -> BegunRecord:
    """The record of ``window`` as it was begun; written, where this is the first attempt. Called behind the fence."""
    log.forget_records(check_begin(endpoints, window, state))
    for earlier in begun_in_part(window, state):
        check_same_ids(window, earlier.schema_ids, schema_ids)
        schema_ids = {**schema_ids, **earlier.schema_ids}
    rules = message_rules(endpoints.pipeline)
    begun = BegunRecord(window, rules, marks_of(endpoints, window, state), schema_ids)
    log.begin(begun, state)
    return begun


def _make_topics(
    endpoints: Endpoints, window: Window, log: CommitLog, wanted: Mapping[str, TopicSettings]
) -> dict[str, int]:
    """Make those of ``wanted`` that are missing, unless one was removed that was given messages before."""
    if len(partition_counts(endpoints.kafka, wanted)) < len(wanted) and log.exists():
        begin_topics(endpoints, window, log.read(open_seconds=1.0), wanted)
    return ensure_topics(endpoints.kafka, wanted, create=endpoints.pipeline.topics.create)


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
    spark: SparkSession, job: IngestJob, files: Sequence[Slice], tasks: int, *, names_come_along: bool
) -> tuple[Sequence[Slice], _Outcome]:
    """Cut, decode and publish.

    Slices of a source without FULL metadata need all statements before them, so all files are scouted. So do slices
    that make records of statements: what ALTER changes may be made in an earlier file. Otherwise files are scouted
    only if rows without names turn up after all.
    """

    def publish(*, scout_all: bool) -> tuple[Sequence[Slice], _Outcome]:
        with local_folder(spark) as folder:
            here = replace(job, folder=folder)
            with closing(cut(spark, here, files, job.pipeline.spark.slice_bytes, scout_all=scout_all)) as cuttings:
                return _decode_and_publish(spark, here, cuttings, tasks)

    try:
        return publish(scout_all=len(files) > 1 and (not names_come_along or makes_records_of_tables(job.pipeline)))
    except UnscoutedError as error:
        _log.info("window %d: %s: scouting its statements", job.window.number, error)
        if job.history is not None:
            history = with_tables(job.endpoints, job.history, job.window, job.identity)
            if isinstance(error, RenamedColumnError):
                history = with_statements(job.endpoints, history, job.window)
                job = replace(job, statements_ahead=True)
            check_tables_known(job.pipeline, history, job.window.start)
            job = replace(job, history=answered(job.pipeline, history))
        return publish(scout_all=True)


def _decode_and_publish(
    spark: SparkSession, job: IngestJob, cuttings: Iterator[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    first = next(cuttings)
    if first.is_last and len(first.slices) < 2:
        # Its reader follows all of its statements by itself.
        alone = replace(job, slices=first.slices, statements_scouted=True)
        return first.slices, _one_slice(spark, alone, first.slices)
    return _many_slices(spark, job, chain([first], cuttings), tasks)


def _with_slices(job: IngestJob, cutting: Cutting) -> IngestJob:
    """``job`` with the next slices, and with all statements before them where these are known."""
    job = replace(job, slices=(*job.slices, *cutting.slices), statements_scouted=cutting.statements is not None)
    history = job.history
    for statement in cutting.statements or ():
        history = history.advance(statement) if history else None
    return replace(job, history=history)


def _check_server(session: Session, window: Window) -> None:
    uuid = source.server_uuid(session)
    if uuid != window.server_uuid:
        raise BinlogGoneError(
            f"window {window.number} of pipeline {window.pipeline!r} was frozen on server {window.server_uuid}, "
            f"found server {uuid}: the connection leads to another server now. Plan again."
        )


def _one_slice(spark: SparkSession, job: IngestJob, slices: Sequence[Slice]) -> _Outcome:
    def decode_and_publish(of_task: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        return decode_and_publish_batches(job, of_task)

    outcome = _Outcome()
    with shown(spark, "decode and publish", len(slices)):
        _take(outcome, in_tasks(spark, [slices], decode_and_publish))
    return outcome


def _many_slices(
    spark: SparkSession, job: IngestJob, cuttings: Iterable[Cutting], tasks: int
) -> tuple[Sequence[Slice], _Outcome]:
    """Decode all, as it is cut, then bring batches to where one task writes a topic-partition, and publish."""
    outcome, messages = _Outcome(), MessageCount(spark)
    batches = ShuffledBatches(spark) if job.folder is None else FiledBatches(spark.sparkContext)
    with Decoding(spark, messages, batches) as decoding:
        with shown(spark, "decode", messages=messages) as shown_tasks:
            for cutting in cuttings:
                _take(outcome, decoding.ended())  # an error ends the window before the rest of it is scouted
                job = _with_slices(job, cutting)
                if cutting.slices:  # the last one may only say that no more come
                    decoding.add(job, cutting.slices, shown_tasks)
            _take(outcome, decoding.results())
        fault_point.reached("after_decode")
        check_given(job.window, job.given, outcome.decoded.messages)
        job = job.settled(outcome.reports)
        job.topics.learn({topic for topic, _ in outcome.decoded.messages})
        packed = pack(outcome.decoded.size_bytes, tasks)
        if packed:
            published = MessageCount(spark)
            with shown(spark, "publish", len(set(packed.values())), published):
                _take(outcome, batches.published(job, packed, outcome.decoded.by_slice, published.add))
    return job.slices, outcome


def pack(sizes: dict[tuple[str, int], int], tasks: int) -> dict[tuple[str, int], int]:
    """Which task writes which topic-partition: the largest first, each to the task that has least so far."""
    loads = [0] * min(tasks, max(1, len(sizes)))
    packed = {}
    for partition, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        task = loads.index(min(loads))
        loads[task] += size
        packed[partition] = task
    return packed


def _take(outcome: _Outcome, results: Iterable[tuple[str, str]]) -> None:
    """Sort the results of a stage; the first error among them is raised as what it was."""
    for kind, text in results:
        match kind:
            case "error":
                raise frame.error_from(text)
            case "report":
                outcome.reports.append(frame.report_from(text))
            case "sizes":
                outcome.decoded.add_text(text)
            case "receipt":
                outcome.receipts.append(TopicPartitionReceipt(**orjson.loads(text)))
