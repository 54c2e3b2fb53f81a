"""What a Spark task needs to publish batches, and how it does: values that travel in the task's closure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from changefeed.ddl.names import TableName
from changefeed.errors import AccountingError
from changefeed.formats.format import numbering_of
from changefeed.kafka.account import Account, Receipt
from changefeed.kafka.commit_log.records import LogRecord, OrderRecord
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model import fault_point
from changefeed.model.binlog_order import BinlogOrder, joined
from changefeed.model.manifest import TopicPartitionReceipt
from changefeed.model.slice_report import SliceReport
from changefeed.model.topic_name import commit_log_topic
from changefeed.model.window import Mark, Slice, Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import check_ordered, check_rising
from changefeed.pipeline.open_windows import check_given, given_before
from changefeed.records.block_filter import BlockFilter
from changefeed.records.filter_chain import FilterChain
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.stages.decode import encoder_of
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.spark.stages.expected import CompletenessCheck, Decoded, SliceCounts
from changefeed.spark.stages.messages import Published, StoredBatch, TaskMessage
from changefeed.spark.stages.published_filter import GivenFilter, PublishedFilter
from changefeed.spark.stages.settlement import Settlement, settle

MOST_ORDER_BYTES = 900_000
"""A longer order of transactions is not stored: by default a topic takes records of a megabyte."""


@dataclass(frozen=True, kw_only=True)
class PublishTask(DriversTask):
    """Publishes batches to the topics of a pipeline.

    ``identity`` is whose transactional ids it has, the pipeline's or a backfill's own; ``attempt`` is the fencing token
    of this attempt to publish under it. ``topics`` are those that exist.
    """

    connections: PipelineConnections
    topics: WindowTopics
    identity: str
    attempt: str
    copies: bool = False
    """Whether Spark may start a second copy of a task that takes long (spark.speculation)."""

    def publish(self, number: int, stored: Iterable[StoredBatch]) -> Sequence[TaskMessage]:
        """Publish what the Spark task of that ``number`` gets of the store; what is in Kafka by then.

        Raises as `Publisher`, and SparkFailedError, with nothing published after it, where a batch is missing.
        """
        raise NotImplementedError

    def publisher(
        self,
        number: int,
        window: int = 0,
        source: str = "",
        units_of: str | None = None,
        beside: Sequence[LogRecord] = (),
    ) -> Publisher:
        """The publisher of the Spark task of that ``number``; see there for the others."""
        return Publisher(
            self.connections.kafka,
            self.identity,
            number,
            window,
            commit_log_topic(self.pipeline.name),
            self.topics.known,
            self.pipeline.kafka.publishing,
            source=source,
            attempt=self.attempt,
            dead_letter=self.pipeline.dead_letter_topic,
            on_stage=fault_point.reached,
            units_of=units_of,
            beside=beside,
            numbering=numbering_of(self.connections.routes.format(0)) if units_of is None else None,
        )

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline, or what of it a backfill runs as."""
        return self.connections.pipeline

    @property
    def is_latest(self) -> bool:
        """Whether no newer attempt has begun, so that it can only be a copy of a task that took over from it."""
        return self.connections.commit_log(self.identity).read().attempt == self.attempt


@dataclass(frozen=True, kw_only=True)
class WindowPublishTask(PublishTask):
    """Publishes the batches of ``window``, of which earlier attempts have ``given`` topic-partitions their first
    messages.

    Before the first message of a retry is published, all that was given is compared with what is decoded now: by
    `compare` in a stage of its own, or in `publish` where one task publishes everything.
    """

    window: Window
    given: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    """After a failover: how far the old server gave each topic-partition."""
    orders: Mapping[int, BinlogOrder] = field(default_factory=dict)
    """By the windows of ``marks``, the old server's order of transactions."""
    order: OrderRecord | None = None
    """The order of its own transactions, known when all slices are decoded; None where nobody needs it."""
    settlement: Settlement = field(default_factory=Settlement)
    """What is not published of the slices, known when all of them are decoded."""
    packed: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The number of the Spark task that gets a topic-partition."""
    expected: SliceCounts = field(default_factory=dict)
    """What the slices were decoded into: nothing is published after a message that is missing."""
    tables: tuple[TableName, ...] = ()
    """Those that the server has and the pipeline captures."""

    def settled(
        self,
        slices: Sequence[Slice],
        reports: Sequence[SliceReport],
        decoded: Decoded,
        packed: Mapping[TopicPartition, int],
    ) -> WindowPublishTask:
        """The task with what was ``decoded`` of all ``slices``, and what their ``reports`` say of their transactions.

        Raises AccountingError where an earlier attempt gave more than was decoded, or where numbers of MariaDB's GTIDs
        do not rise after a failover, or rows may be in another order than on the old server, which gave a part of them;
        TopicError where rows are of a table that is gone and would go to another table's topic; and as `settle`.
        """
        check_given(self.window, self.given, decoded.messages)
        self._check_topics(reports)
        self.topics.learn({topic for topic, _ in decoded.messages})
        order = _order_of(slices, reports)
        if self.window.failover is not None:
            check_rising(self.window, order)
        if self.marks:
            check_ordered(self.window, {table for report in reports for table in report.unordered})
        return replace(
            self,
            settlement=settle(slices, reports),
            packed=packed,
            expected=decoded.by_slice,
            order=self._order_record(order),
        )

    def _check_topics(self, reports: Iterable[SliceReport]) -> None:
        """Raises TopicError where a table that only the binlog has, and another one, get a topic that they may not
        share; those that the server has were compared before the window was begun."""
        there = {f"{database}.{table}" for database, table in self.tables}
        if gone := {name for report in reports for name in report.rows} - there:
            names = (tuple(name.split(".", 1)) for name in sorted(gone))
            self.connections.routes.of_all([*self.tables, *((database, table) for database, table in names)])

    def _order_record(self, order: BinlogOrder) -> OrderRecord | None:
        """What a failover in the middle of the window needs. Without it such a failover is refused."""
        if self.identity != self.pipeline.name or not order.runs:
            return None
        record = OrderRecord(self.window.number, order)
        return record if len(record.value() or b"") <= MOST_ORDER_BYTES else None

    def publish(self, number: int, stored: Iterable[StoredBatch]) -> list[Published]:
        """See `PublishTask`. What is ``stored`` comes in the order of topic-partition, slice and number.

        Raises AccountingError, with nothing published, where this task is the only one, and messages that were given
        before, also by an attempt of Spark's at this very task, are not those that are ``stored``.
        """
        chain = self._chain()
        beside = () if self.order is None else (self.order,)
        with self.publisher(number, self.window.number, self.window.server_uuid, beside=beside) as publisher:
            given = given_before(self.window, publisher.progress) if self.is_one_task else {}
            if given:
                stored = list(stored)
                self._compare(given, number, stored)
            receipts = publisher.publish(chain.rest(CompletenessCheck(self._expected_by(number)).passed(stored)))
        return list(_receipts(receipts, chain))

    def check_left_out(self, found: Iterable[TopicPartitionReceipt]) -> None:
        """Raises AccountingError unless ``found``, what `compare` returned in all tasks, has exactly the messages that
        were given before a failover."""
        counts = {(each.topic, each.partition): each.dropped.get(GivenFilter.reason, 0) for each in found}
        for mark in self.marks:
            there = counts.get((mark.topic, mark.partition), 0)
            if there != mark.given:
                raise AccountingError(
                    f"the old server gave partition {mark.partition} of {mark.topic!r} {mark.given} messages of window "
                    f"{mark.window} of pipeline {self.window.pipeline!r}, up to transaction {mark.gtid}, and on server "
                    f"{self.window.server_uuid} those transactions have {there} messages for it: the two servers' "
                    "binlogs do not have the same rows (filters of a replica, binlog_row_image, triggers), or what "
                    "decides which messages go there says something else on each. Which messages are missing is not "
                    "known. Nothing was published. Point the connection at the old server again and run, or seek the "
                    "pipeline to where it should resume, which may repeat changes."
                )

    @property
    def is_one_task(self) -> bool:
        """Whether one task publishes everything."""
        return len(set(self.packed.values())) < 2

    @property
    def must_compare(self) -> bool:
        """Whether a stage of `compare` comes before the one of `publish`."""
        return self.window.failover is not None or (bool(self.given) and not self.is_one_task)

    def compare(self, number: int, stored: Iterable[StoredBatch]) -> list[Published]:
        """Compare what topic-partitions were ``given`` with what the task of that ``number`` would publish to them.

        Returns what it would leave out of them, for `check_left_out`. Raises AccountingError where what was given is
        not the same, SparkFailedError where a batch is missing.
        """
        return self._compare(
            {key: given for key, given in self.given.items() if self.packed[key] == number}, number, stored
        )

    def _compare(
        self, given: Mapping[TopicPartition, Progress], number: int, stored: Iterable[StoredBatch]
    ) -> list[Published]:
        window, known = self.window, self.topics.known
        accounts = {
            key: Account(*key, known[key[0]], window.number, window.server_uuid, before)
            for key, before in given.items()
        }
        expected = self._expected_by(number)
        if window.failover is None:
            expected = {key: counts for key, counts in expected.items() if key in given}
        chain = self._chain()
        concerned = (each for each in stored if each.topic_partition in expected)
        for batch in chain.rest(CompletenessCheck(expected).passed(concerned)):
            if (account := accounts.get((batch.topic, batch.partition))) is not None:
                account.pass_given(batch)
        for account in accounts.values():
            account.compare()
        return list(_receipts((), chain))

    def _chain(self) -> FilterChain:
        return FilterChain(self.filters, encoder_of(self.pipeline, self.topics))

    def _expected_by(self, number: int) -> SliceCounts:
        """What the task of that ``number`` must get."""
        return {key: counts for key, counts in self.expected.items() if self.packed[key] == number}

    @property
    def filters(self) -> list[BlockFilter]:
        """What leaves messages out of the window's batches, in the order in which they are asked.

        Failover's is the last: it counts messages as the publisher does, which sees what the others leave.
        """
        filters = self.settlement.filters
        if self.window.failover is not None:
            filters += [PublishedFilter(self.window.failover), GivenFilter(self.marks, self.orders)]
        return filters


def _order_of(slices: Sequence[Slice], reports: Sequence[SliceReport]) -> BinlogOrder:
    by_number = {report.slice: report for report in reports}
    return BinlogOrder(joined(run for piece in slices for run in by_number[piece.number].order))


def _receipts(receipts: Iterable[Receipt], chain: FilterChain) -> Iterator[Published]:
    dropped = dict(chain.dropped)
    for receipt in receipts:
        yield Published(_of_window(receipt, dropped.pop((receipt.topic, receipt.partition), {})))
    for (topic, partition), counts in dropped.items():
        yield Published(TopicPartitionReceipt(topic, partition, 0, 0, 0, 0, None, None, dict(counts)))


def _of_window(receipt: Receipt, dropped: Mapping[str, int]) -> TopicPartitionReceipt:
    """A receipt for the driver; offsets are those of the whole window, over all attempts at it."""
    whole = receipt.window if receipt.window and receipt.window.window else None
    return TopicPartitionReceipt(
        topic=receipt.topic,
        partition=receipt.partition,
        messages=receipt.messages,
        already_there=receipt.already_there,
        value_bytes=receipt.value_bytes,
        dead_letters=receipt.dead_letters,
        first_offset=whole.first_offset if whole else receipt.first_offset,
        last_offset=whole.last_offset if whole else receipt.last_offset,
        dropped=dict(dropped),
    )
