"""A round of a snapshot: chunks of its tables, read by Spark's tasks and published while no window is."""

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
from changefeed.kafka.commit_log.records import BegunRecord, ReliedRecord
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
from changefeed.pipeline.topics import table_topics
from changefeed.settings.message_rules import rules_digest
from changefeed.snapshot.announcing import Announcer
from changefeed.snapshot.changed_keys import MOST_KEYS, ChangedKeys
from changefeed.snapshot.chunks import ChunkPublishTask, PublishedChunk, ReadChunk, ReadTask, read_chunks
from changefeed.snapshot.hidden_bounds import without_bounds
from changefeed.snapshot.ownership import Claim, Ownership
from changefeed.snapshot.planning import SnapshotPlan, check_begun, check_row_images
from changefeed.snapshot.published_position import Published, PublishedPosition, is_covered
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.catalog import table_schemas
from changefeed.source.mysql.session import Session
from changefeed.spark.failures import named_failures
from changefeed.spark.stages.batch_store import BatchStore, batch_store
from changefeed.spark.stages.messages import Failure
from changefeed.spark.stages.publish import publish_batches
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)

PATIENCE_SECONDS = 900.0
"""How long nothing may be published before the snapshot gives up: run again, it goes on."""


class NothingPublishedError(PipelineBusyError):
    """Why a round's chunks have to be read again."""


@dataclass(frozen=True)
class Round:
    """What became of the round of ``snapshot``: the chunks that were ``read``, by number, the ``errors`` of those that
    could not be, and the records of those that are ``published``."""

    snapshot: SnapshotRecord
    read: Mapping[int, ReadChunk]
    errors: Sequence[ChangefeedError]
    published: Sequence[ChunkRecord] = ()


@dataclass
class RoundRunner:
    """Reads and publishes the rounds of the snapshot ``plan``, of the server of ``session``, one after the other.

    ``reading`` is how many tasks read at once. Between rounds it remembers the keys that changed since they were read,
    and of which tables any key changed: ``changing``. ``cipher`` encrypts what the commit log keeps of keys of rows.
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
        """Read the round of ``planned``, and publish what of it may be; ``base`` is that of now.

        Raises NothingPublishedError or TooManyChangedKeysError where a later round may be luckier; all else that it
        raises ends the snapshot.
        """
        limits = self.beside.submit(topic_limits, self.connections.kafka, self._topics(planned))
        changed = self._changed_since(base, planned.round)
        changed.read_to(source.head(self.session).coordinates)  # of a pipeline far behind, before rows are read
        self._changing |= changed.tables
        with self.spark.local_folder() as folder:
            task, store = self._read_task(base, planned, limits.result(), folder), batch_store(self.spark, folder)
            try:
                return self._read_and_publish(store, task, planned, changed)
            finally:
                store.clear()

    def base(self) -> BinlogCoordinates:
        """What the pipeline has published, and each view from now on shows."""
        check_row_images(self.session)
        expected = self.announcer.server_uuid
        if (uuid := source.server_uuid(self.session)) != expected:
            raise PipelineBusyError(f"the source was server {expected}, and is {uuid} now: run the snapshot again")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (base := self.position.visible(self.session, uuid)) is None:
            if time.monotonic() > deadline:
                raise PipelineBusyError(
                    f"transactions that pipeline {self.connections.pipeline.name!r} has published cannot be seen "
                    f"on the source for {PATIENCE_SECONDS:g} seconds: their commits hang, on an acknowledgement of a "
                    "replica perhaps. Run again when they are through."
                )
            time.sleep(0.2)
        return base

    def replaced(self, snapshot: SnapshotRecord, base: BinlogCoordinates) -> dict[str, str]:
        """The tables of the round of ``snapshot`` whose published rows do not count any more, each with the reason:
        before ``base`` others took their place, or that is not known."""
        waiting = {chunk.table_name for chunk in snapshot.round}
        found: dict[str, str] = {}
        starts: dict[str, BinlogCoordinates] = {}
        for table in snapshot.tables:
            if table.name in waiting and table.definitions is not None:
                try:
                    starts[table.name] = self._read_to(table.definitions)
                except BinlogGoneError as error:
                    found[table.name] = f"whether it was defined anew is not known any more: {error}"
        start, uuid = min(starts.values(), default=base), self.announcer.server_uuid
        definitions = ChangedKeys(self.connections, uuid, start, {})
        try:
            definitions.read_to(base)
        except BinlogGoneError as error:
            return found | dict.fromkeys(starts, f"whether it was defined anew is not known any more: {error}")
        for name, start in starts.items():
            at = definitions.replaced(name)
            if at is not None and at >= start:
                found[name] = f"it was defined anew, or emptied, at {at}"
        return found

    def _read_to(self, known: DefinitionsRead) -> BinlogCoordinates:
        """Where ``known`` ends in the session's server's binlog. Raises BinlogGoneError where that is not known."""
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
        """The keys of the tables of ``chunks`` that changed: those that are known already, from ``base`` on."""
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
            asked=self.plan.request.asked,
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
        fault_point.reached("after_decode")
        reached = source.head(self.session)
        changed.read_to(reached.coordinates)
        with self.ownership.claim(4 * PATIENCE_SECONDS) as claim:
            tables = self._publishable(claim, changed, {each.table_name for each in chunks if each.number in read})
            # Of a table of which a key changed for the first time the rows are read again, with their keys.
            tables -= self._changing - task.changing
            if not tables:
                return Round(planned, read, errors)
            searched = DefinitionsRead(self.announcer.server_uuid, str(reached.coordinates), reached.gtids)
            planned = _with_definitions(planned, tables, searched)
            self._note_begun(claim, changed, planned)
            wanted = {each.number for each in chunks if each.table_name in tables} & read.keys()
            publish = ChunkPublishTask(
                connections=self.connections,
                topics=task.topics,
                identity=self.connections.pipeline.name,
                attempt=claim.attempt,
                copies=self.spark.may_copy_tasks,
                snapshot=self.plan.identity,
                shares=[[(each, read[each.number]) for each in share if each.number in wanted] for share in shares],
                changed={table: changed.keys(table) for table in tables},
                changing=task.changing,
            )
            published = self._publish(store, publish)
            self.position.remember(claim.state)  # no window was published since
        return Round(planned, read, errors, published)

    def _read(
        self, store: BatchStore, task: ReadTask, shares: Sequence[Sequence[PlannedChunk]]
    ) -> tuple[dict[int, ReadChunk], list[ChangefeedError]]:
        """Have the chunks of each of ``shares`` read by a task; what they were read as, and why others were not."""
        read: dict[int, ReadChunk] = {}
        errors: list[ChangefeedError] = []
        with named_failures(f"snapshot {self.plan.identity!r}"):
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
        """Those of ``tables`` whose rows may be published by what is published of the pipeline now.

        Raises NothingPublishedError where the round has to be read again.
        """
        rules = self.announcer.rules
        position = self.position.of(claim.state, self.announcer.server_uuid)
        check_begun(claim.state.of(BegunRecord), rules)
        if not is_covered(claim.state, self.announcer.server_uuid, changed.start, position.end, rules_digest(rules)):
            self._changed = None
            raise NothingPublishedError(
                f"windows between {changed.start} and {position.end.coordinates} were published by other settings, "
                "or a seek went over them: the round is read again"
            )
        changed.read_to(position.reach)
        self._changing |= changed.tables
        return self._not_defined_since(changed, position, tables)

    def _not_defined_since(self, changed: ChangedKeys, position: Published, tables: set[str]) -> set[str]:
        defined = {table: at for table in tables if (at := changed.defined(table)) is not None}
        if left := tables - defined.keys():
            return left
        table, at = next(iter(defined.items()))
        raise NothingPublishedError(
            f"{table} was defined anew or emptied at {at}, and pipeline {self.connections.pipeline.name!r} has "
            f"published its changes up to {position.end.coordinates}: its rows are read when that is published"
        )

    def _note_begun(self, claim: Claim, changed: ChangedKeys, planned: SnapshotRecord) -> None:
        """Have the logs say, before anything of the round is published, what it depends on and which chunks it has."""
        names = tuple(sorted(table.name for table in planned.tables))
        rules, uuid = self.announcer.rules, self.announcer.server_uuid
        claim.pipeline_log.keep(
            ReliedRecord(self.plan.identity, uuid, str(changed.end), rules, names, str(changed.gtids)),
            *self.announcer.completed(claim.state, planned),
        )
        numbers = {chunk.number for chunk in planned.round}
        kept = without_bounds(planned, self.cipher, self.plan.identity)
        claim.log.keep(kept, forgotten=[done for done in claim.own.of(ChunkRecord) if done.number not in numbers])
        fault_point.reached("after_take_over")

    def _publish(self, store: BatchStore, task: ChunkPublishTask) -> list[ChunkRecord]:
        with named_failures(f"snapshot {self.plan.identity!r}"):
            messages = store.publish(lambda number, stored: publish_batches(task, number, stored))
        published = []
        for message in messages:
            if isinstance(message, Failure):
                raise message.error
            if isinstance(message, PublishedChunk):
                published.append(message.record)
        return published


def _with_definitions(planned: SnapshotRecord, tables: set[str], searched: DefinitionsRead) -> SnapshotRecord:
    """``planned`` with how far definitions of those ``tables`` were ``searched`` that are published in more than one
    transaction, so that some of their rows may be in Kafka without the others. Tables that are done need none."""
    chunks = Counter(chunk.table_name for chunk in planned.round)

    def noted(table: TableProgress) -> TableProgress:
        left = chunks[table.name]
        if table.at_end and not left:
            return replace(table, definitions=None)
        is_one = table.at_end and left == 1 and table.definitions is None
        return table if table.name not in tables or is_one else replace(table, definitions=searched)

    return replace(planned, tables=tuple(map(noted, planned.tables)))
