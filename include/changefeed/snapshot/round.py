"""Runs the rounds of a snapshot: Spark tasks read chunks, and publish them while the pipeline publishes no window."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from changefeed.binlog.search.finder import Finder
from changefeed.errors import (
    BinlogGoneError,
    ChangefeedError,
    PipelineBusyError,
    RetryableError,
    SchemaError,
    SourceError,
)
from changefeed.kafka.commit_log.records import BegunRecord, DependencyRecord
from changefeed.kafka.commit_log.snapshots import (
    ChunkRecord,
    DefinitionsRead,
    PlannedChunk,
    SnapshotRecord,
    TableProgress,
)
from changefeed.kafka.log_keys import TextCipher
from changefeed.kafka.topics import TopicLimits, topic_limits
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model import fault_point
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.parking import check_none_parked
from changefeed.pipeline.topics import table_topics
from changefeed.settings.message_rules import rules_digest
from changefeed.snapshot.changed_keys import MOST_KEYS, ChangedKeys
from changefeed.snapshot.chunks import ChunkPublishTask, PublishedChunk, ReadChunk, ReadTask, read_chunks
from changefeed.snapshot.follower_announcer import Announcer
from changefeed.snapshot.hidden_bounds import without_bounds
from changefeed.snapshot.ownership import Claim, Ownership
from changefeed.snapshot.planning import SnapshotPlan, check_begun, check_row_images
from changefeed.snapshot.published_position import PublishedEnd, PublishedPosition, is_covered
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.catalog import table_schemas
from changefeed.source.mysql.session import Session
from changefeed.spark.failures import raise_spark_failures
from changefeed.spark.stages.batch_store import BatchStore, batch_store
from changefeed.spark.stages.messages import Failure
from changefeed.spark.stages.publish import publish_batches
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)

PROGRESS_TIMEOUT_SECONDS = 900.0
"""The maximum time without a published chunk. Then the snapshot fails; if it is run again, it continues."""


class NothingPublishedError(PipelineBusyError):
    """No chunk of the round can be published, and the chunks must be read again; the message says why."""


@dataclass(frozen=True)
class Round:
    """The result of the round of ``snapshot``.

    It has the chunks that were ``read``, by number, the ``errors`` of the other chunks, and the records of the
    ``published`` chunks.
    """

    snapshot: SnapshotRecord
    read: Mapping[int, ReadChunk]
    errors: Sequence[ChangefeedError]
    published: Sequence[ChunkRecord] = ()


@dataclass
class RoundRunner:
    """Reads and publishes the rounds of the snapshot ``plan``, one after the other. ``session`` is with its server.

    ``reading`` is the number of tasks that read at once. ``cipher`` encrypts keys of rows in the commit log. Between
    rounds, the runner stores the keys that changed, and the tables with changed keys.
    """

    spark: SparkTarget
    connections: PipelineConnections
    plan: SnapshotPlan
    session: Session
    ownership: Ownership
    position: PublishedPosition
    announcer: Announcer
    reading: int
    beside: Executor
    cipher: TextCipher | None = None
    _changed: ChangedKeys | None = field(default=None, init=False)
    _changing: set[str] = field(default_factory=set, init=False)

    def run(self, planned: SnapshotRecord, base: BinlogCoordinates) -> Round:
        """Read the round of ``planned``, publish the chunks that may be published, and return the result.

        ``base`` is the result of `base`.

        Raises NothingPublishedError or TooManyChangedKeysError if the round must be retried. Other errors end the
        snapshot.
        """
        limits = self.beside.submit(topic_limits, self.connections.kafka, self._topics(planned))
        changed = self._changed_since(base, planned.round)
        changed.read_to(source.head(self.session).coordinates)  # raises early if the pipeline lags too far
        self._changing |= changed.tables
        with self.spark.local_folder() as folder:
            task, store = self._read_task(base, planned, limits.result(), folder), batch_store(self.spark, folder)
            try:
                return self._read_and_publish(store, task, planned, changed)
            finally:
                store.clear()

    def base(self) -> BinlogCoordinates:
        """Wait for the position before which all changes are published and visible in all later views; return it.

        Raises PipelineBusyError after PROGRESS_TIMEOUT_SECONDS, or if the source is a different server now.
        """
        check_row_images(self.session)
        expected = self.announcer.server_uuid
        if (uuid := source.server_uuid(self.session)) != expected:
            raise PipelineBusyError(f"expected server {expected}, found server {uuid}: run the snapshot again")
        deadline = time.monotonic() + PROGRESS_TIMEOUT_SECONDS
        while (base := self.position.visible_position(self.session, uuid)) is None:
            if time.monotonic() > deadline:
                raise PipelineBusyError(
                    f"transactions that pipeline {self.connections.pipeline.name!r} has published cannot be seen "
                    f"on the source for {PROGRESS_TIMEOUT_SECONDS:g} seconds: their commits hang, perhaps on the "
                    "acknowledgement of a replica. Run again when they are through."
                )
            time.sleep(0.2)
        return base

    def replaced_tables(self, snapshot: SnapshotRecord, base: BinlogCoordinates) -> dict[str, str]:
        """The tables of the round of ``snapshot`` that must be read from their beginning again, each with the reason.

        Such a table was replaced or emptied before ``base``, or it is not known whether it was.
        """
        waiting = {chunk.table_name for chunk in snapshot.round}
        found: dict[str, str] = {}
        starts: dict[str, BinlogCoordinates] = {}
        for table in snapshot.tables:
            if table.name in waiting and table.definitions is not None:
                try:
                    starts[table.name] = self._resolve_ddl_position(table.definitions)
                except BinlogGoneError as error:
                    found[table.name] = f"whether it was replaced is not known any more: {error}"
        start, uuid = min(starts.values(), default=base), self.announcer.server_uuid
        ddl_changes = ChangedKeys(self.connections, uuid, start, {})
        try:
            ddl_changes.read_to(base)
        except BinlogGoneError as error:
            return found | dict.fromkeys(starts, f"whether it was replaced is not known any more: {error}")
        for name, start in starts.items():
            at = ddl_changes.last_replacement(name)
            if at is not None and at >= start:
                found[name] = f"it was replaced or emptied at {at}"
        return found

    def _resolve_ddl_position(self, known: DefinitionsRead) -> BinlogCoordinates:
        """The position of ``known`` in the binlog of the session's server. Raises BinlogGoneError if it is unknown."""
        if known.server_uuid == self.announcer.server_uuid:
            return known.coordinates
        if not known.gtids:
            raise BinlogGoneError(f"{known.at} of server {known.server_uuid} has no GTIDs to be found by")
        return Finder(ServerBinlogs(self.session)).after_gtids(GtidSet.parse(known.gtids)).coordinates

    def _topics(self, planned: SnapshotRecord) -> set[str]:
        pipeline, names = self.connections.pipeline, {(chunk.database, chunk.table) for chunk in planned.round}
        topics = {topic for name, topic in table_topics(pipeline, self.session).items() if name in names}
        return topics | ({topic} if (topic := pipeline.dead_letter_topic) else set())

    def _changed_since(self, base: BinlogCoordinates, chunks: Iterable[PlannedChunk]) -> ChangedKeys:
        """The changed keys of the tables of ``chunks`` from ``base`` on, up to the position that was read so far."""
        names = {(chunk.database, chunk.table) for chunk in chunks if chunk.has_key}
        schemas, known = table_schemas(self.session, names), self._changed
        if known is None or known.schemas != schemas or known.end < base:
            most_keys = self.plan.request.changed_keys or MOST_KEYS
            known = ChangedKeys(self.connections, self.announcer.server_uuid, base, schemas, most_keys)
        known.forget(base)
        self._changed = known
        return known

    def _read_task(
        self, base: BinlogCoordinates, planned: SnapshotRecord, limits: Mapping[str, TopicLimits], folder: str | None
    ) -> ReadTask:
        connections = self.connections
        return ReadTask(
            connections=connections,
            server_uuid=self.announcer.server_uuid,
            topics=WindowTopics(connections.kafka, limits, create=connections.pipeline.topics.create),
            identity=self.plan.identity,
            frozen_at_ms=int(time.time() * 1000),
            folder=folder,
            base=base,
            keys={table.name: table.key for table in planned.tables},
            condition=self.plan.request.condition,
            condition_columns=self.plan.request.asked,
            changing=frozenset(self._changing),
        )

    def _read_and_publish(
        self, store: BatchStore, task: ReadTask, planned: SnapshotRecord, changed: ChangedKeys
    ) -> Round:
        chunks = planned.round
        shares = [chunks[number :: self.reading] for number in range(min(self.reading, len(chunks)))]
        read, errors = self._read(store, task, shares)
        for error in errors:
            _log.warning("a chunk has to be read again: %s", error)
        if not read:
            raise NothingPublishedError(str(errors[0]))
        fault_point.reach("after_decode")
        reached = source.head(self.session)
        changed.read_to(reached.coordinates)
        with self.ownership.claim(4 * PROGRESS_TIMEOUT_SECONDS) as claim:
            tables = self._publishable(claim, changed, {each.table_name for each in chunks if each.number in read})
            # When a key of a table changed for the first time, the keys of its rows were not stored: read them again.
            tables -= self._changing - task.changing
            if not tables:
                return Round(planned, read, errors)
            ddl_read = DefinitionsRead(self.announcer.server_uuid, str(reached.coordinates), reached.gtids)
            planned = _with_ddl_read(planned, tables, ddl_read)
            self._note_begun(claim, changed, planned)
            publishable = {each.number for each in chunks if each.table_name in tables} & read.keys()
            publish = ChunkPublishTask(
                connections=self.connections,
                topics=task.topics,
                identity=self.connections.pipeline.name,
                attempt=claim.attempt,
                copies=self.spark.may_copy_tasks,
                snapshot=self.plan.identity,
                shares=[
                    [(each, read[each.number]) for each in share if each.number in publishable] for share in shares
                ],
                changed={table: changed.keys(table) for table in tables},
                changing=task.changing,
            )
            published = self._publish(store, publish)
            self.position.remember(claim.state)  # no window was published since
        return Round(planned, read, errors, published)

    def _read(
        self, store: BatchStore, task: ReadTask, shares: Sequence[Sequence[PlannedChunk]]
    ) -> tuple[dict[int, ReadChunk], list[ChangefeedError]]:
        """Read each share of ``shares`` in a task. Return the chunks that were read, and the errors of the others."""
        read: dict[int, ReadChunk] = {}
        errors: list[ChangefeedError] = []
        with raise_spark_failures(f"snapshot {self.plan.identity!r}"):
            messages = store.decode(shares, lambda of_task: read_chunks(task, of_task))
        for message in messages:
            if isinstance(message, ReadChunk):
                read[message.number] = message
            elif isinstance(message, Failure):
                if not isinstance(message.error, RetryableError | SourceError | SchemaError):
                    raise message.error
                errors.append(message.error)
        task.topics.learn({count.topic for chunk in read.values() for count in chunk.counts})
        return read, errors

    def _publishable(self, claim: Claim, changed: ChangedKeys, tables: set[str]) -> set[str]:
        """The ``tables`` whose rows may be published at the end of the pipeline's published changes.

        Raises NothingPublishedError if the round must be read again.
        """
        rules = self.announcer.rules
        position = self.position.of(claim.state, self.announcer.server_uuid)
        check_begun(claim.state.of(BegunRecord), rules)
        # Their missing changes come later, and would follow newer rows.
        check_none_parked(self.connections.pipeline.name, claim.state, f"snapshot {self.plan.identity!r}", tables)
        uuid = self.announcer.server_uuid
        if not is_covered(claim.state, uuid, changed.start, position.end, rules_digest(rules), tables):
            self._changed = None
            raise NothingPublishedError(
                f"windows between {changed.start} and {position.end.coordinates} were published with other settings, "
                "without a table of the round, which was parked, or skipped by a seek: the round is read again"
            )
        changed.read_to(position.reach)
        self._changing |= changed.tables
        return self._without_ddl_since(changed, position, tables)

    def _without_ddl_since(self, changed: ChangedKeys, position: PublishedEnd, tables: set[str]) -> set[str]:
        defined = {table: at for table in tables if (at := changed.last_ddl(table)) is not None}
        if left := tables - defined.keys():
            return left
        table, at = next(iter(defined.items()))
        raise NothingPublishedError(
            f"{table} was altered or emptied at {at}, and pipeline {self.connections.pipeline.name!r} has published "
            f"changes up to {position.end.coordinates}: its rows are read when that statement is published"
        )

    def _note_begun(self, claim: Claim, changed: ChangedKeys, planned: SnapshotRecord) -> None:
        """Write the changes that the round depends on, and its chunks, to the logs before the round is published."""
        names = tuple(sorted(table.name for table in planned.tables))
        rules, uuid = self.announcer.rules, self.announcer.server_uuid
        claim.pipeline_log.keep(
            DependencyRecord(self.plan.identity, uuid, str(changed.end), rules, names, str(changed.gtids)),
            *self.announcer.completed_records(claim.state, planned),
        )
        numbers = {chunk.number for chunk in planned.round}
        kept = without_bounds(planned, self.cipher, self.plan.identity)
        claim.log.keep(kept, forgotten=[done for done in claim.own.of(ChunkRecord) if done.number not in numbers])
        fault_point.reach("after_take_over")

    def _publish(self, store: BatchStore, task: ChunkPublishTask) -> list[ChunkRecord]:
        with raise_spark_failures(f"snapshot {self.plan.identity!r}"):
            messages = store.publish(lambda number, stored: publish_batches(task, number, stored))
        published = []
        for message in messages:
            if isinstance(message, Failure):
                raise message.error
            if isinstance(message, PublishedChunk):
                published.append(message.record)
        return published


def _with_ddl_read(planned: SnapshotRecord, tables: set[str], ddl_read: DefinitionsRead) -> SnapshotRecord:
    """``planned`` with ``ddl_read``, the end of the DDL that was read, in each table of ``tables`` that needs it.

    A table needs it if it is published in more than one transaction, so that only a part of its rows may be published.
    Finished tables do not need it.
    """
    chunks = Counter(chunk.table_name for chunk in planned.round)

    def note(table: TableProgress) -> TableProgress:
        left = chunks[table.name]
        if table.at_end and not left:
            return replace(table, definitions=None)
        is_one = table.at_end and left == 1 and table.definitions is None
        return table if table.name not in tables or is_one else replace(table, definitions=ddl_read)

    return replace(planned, tables=tuple(map(note, planned.tables)))
