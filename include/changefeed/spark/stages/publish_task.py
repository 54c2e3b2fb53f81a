"""Tasks that publish batches: the values that they need, which are pickled with the task, and their methods."""

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
from changefeed.kept_clients import keep_clients
from changefeed.model import fault_point
from changefeed.model.binlog_order import BinlogOrder, join_runs
from changefeed.model.manifest import TopicPartitionReceipt
from changefeed.model.slice_report import SliceReport
from changefeed.model.topic_name import commit_log_topic
from changefeed.model.window import HighWaterMark, Slice, Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.failover import check_ordered, check_rising
from changefeed.pipeline.open_windows import check_published, progress_in_window
from changefeed.records.block_filter import BlockFilter
from changefeed.records.filter_chain import FilterChain
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.stages.decode import encoder_of
from changefeed.spark.stages.drivers_task import DriversTask
from changefeed.spark.stages.expected import CompletenessCheck, DecodedCounts, SliceCounts
from changefeed.spark.stages.messages import PublishedPartition, StoredBatch, TaskMessage
from changefeed.spark.stages.published_filter import PartlyPublishedFilter, PublishedFilter
from changefeed.spark.stages.transaction_outcomes import TransactionOutcomes, resolve_transactions

MOST_ORDER_BYTES = 900_000
"""The largest stored order of transactions; by default a topic accepts records of up to a megabyte."""


@dataclass(frozen=True, kw_only=True)
class PublishTask(DriversTask):
    """Publishes batches to the topics of a pipeline.

    ``identity`` owns the transactional ids: the pipeline's name, or a backfill's identity. ``attempt`` is the fencing
    token of this attempt. ``topics`` are the existing topics.
    """

    connections: PipelineConnections
    topics: WindowTopics
    identity: str
    attempt: str
    copies: bool = False
    """Whether Spark may start a second copy of a slow task (spark.speculation)."""

    def publish(self, number: int, stored: Iterable[StoredBatch]) -> Sequence[TaskMessage]:
        """Publish the ``stored`` batches of Spark task ``number``, and return the receipts.

        Raises what `Publisher` raises, and SparkFailedError if a batch is missing; no batch after it is published.
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
        """The publisher of Spark task ``number``; the other arguments are those of `Publisher`."""
        if self.pipeline.windows is not None:
            keep_clients()  # the next window's task in this worker reads the commit log on from here
        return Publisher(
            self.connections.kafka,
            self.identity,
            number,
            window,
            commit_log_topic(self.pipeline.name),
            self.topics.known,
            self.pipeline.kafka.publish_settings,
            source=source,
            attempt=self.attempt,
            dead_letter=self.pipeline.dead_letter_topic,
            on_stage=fault_point.reach,
            units_of=units_of,
            beside=beside,
            numbering=numbering_of(self.connections.routes.format(0)) if units_of is None else None,
            topics_are_of_tables=self.pipeline.on_table_error == "park" and not self.pipeline.transforms,
        )

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline; for a backfill, with the backfill's settings."""
        return self.connections.pipeline

    @property
    def is_latest(self) -> bool:
        """Whether no newer attempt has begun, so that only a copy of this task can have fenced it."""
        return self.connections.commit_log(self.identity).read().attempt == self.attempt


@dataclass(frozen=True, kw_only=True)
class WindowPublishTask(PublishTask):
    """Publishes the batches of ``window``; ``earlier_progress`` is the progress of earlier attempts by topic-partition.

    Before a retry publishes its first message, the messages of earlier attempts are compared with those that are
    decoded now: by `compare` in its own stage, or in `publish` if one task publishes everything.
    """

    window: Window
    earlier_progress: Mapping[TopicPartition, Progress] = field(default_factory=dict)
    high_water_marks: tuple[HighWaterMark, ...] = ()
    """After a failover: the old server's high-water mark of each topic-partition."""
    orders: Mapping[int, BinlogOrder] = field(default_factory=dict)
    """The old server's order of transactions, by the number of a window in ``high_water_marks``."""
    order: OrderRecord | None = None
    """The order of the window's transactions, known when all slices are decoded; None if it is not needed."""
    transaction_outcomes: TransactionOutcomes = field(default_factory=TransactionOutcomes)
    """The rows that are not published, known when all slices are decoded."""
    assigned_tasks: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The number of the Spark task that publishes a topic-partition."""
    expected: SliceCounts = field(default_factory=dict)
    """The decoded counts, which show missing messages."""
    tables: tuple[TableName, ...] = ()
    """The captured tables that the server has."""

    def with_decoded(
        self,
        slices: Sequence[Slice],
        reports: Sequence[SliceReport],
        decoded: DecodedCounts,
        assigned_tasks: Mapping[TopicPartition, int],
    ) -> WindowPublishTask:
        """The task with the ``decoded`` counts of all ``slices``, and the outcomes of the transactions in their
        ``reports``.

        Raises AccountingError if an earlier attempt published more than was decoded, or, after a failover, if the
        sequence numbers of MariaDB's GTIDs do not increase, or if rows that the old server published in part may be in
        another order on the new one; TopicError if rows of a dropped table would go to another table's topic; and what
        `resolve_transactions` raises.
        """
        check_published(self.window, self.earlier_progress, decoded.messages)
        self._check_topics(reports)
        self.topics.learn({topic for topic, _ in decoded.messages})
        order = _order_of(slices, reports)
        if self.window.failover is not None:
            check_rising(self.window, order)
        if self.high_water_marks:
            check_ordered(self.window, {table for report in reports for table in report.unordered})
        return replace(
            self,
            transaction_outcomes=resolve_transactions(slices, reports),
            assigned_tasks=assigned_tasks,
            expected=decoded.by_slice,
            order=self._order_record(order),
        )

    def _check_topics(self, reports: Iterable[SliceReport]) -> None:
        """Raise TopicError if a dropped table and another table would share a topic that they may not share. Existing
        tables were checked before the window began."""
        existing = {f"{database}.{table}" for database, table in self.tables}
        if gone := {name for report in reports for name in report.rows} - existing:
            names = (tuple(name.split(".", 1)) for name in sorted(gone))
            self.connections.routes.route_tables([*self.tables, *((database, table) for database, table in names)])

    def _order_record(self, order: BinlogOrder) -> OrderRecord | None:
        """The record that a failover in the middle of the window needs; without it such a failover is refused."""
        if self.identity != self.pipeline.name or not order.runs:
            return None
        record = OrderRecord(self.window.number, order)
        return record if len(record.value() or b"") <= MOST_ORDER_BYTES else None

    def publish(self, number: int, stored: Iterable[StoredBatch]) -> list[PublishedPartition]:
        """See `PublishTask`. The ``stored`` batches must be in the order of topic-partition, slice and number.

        Raises AccountingError before anything is published if this is the only task, and the messages that were
        published before, also by an earlier attempt of Spark at this task, differ from the ``stored`` ones.
        """
        chain = self._chain()
        beside = () if self.order is None else (self.order,)
        with self.publisher(number, self.window.number, self.window.server_uuid, beside=beside) as publisher:
            earlier_progress = progress_in_window(self.window, publisher.progress) if self.is_one_task else {}
            if earlier_progress:
                stored = list(stored)
                self._compare(earlier_progress, number, stored)
            receipts = publisher.publish(chain.rest(CompletenessCheck(self._expected_by(number)).check(stored)))
        return list(_receipts(receipts, chain))

    def check_left_out(self, found: Iterable[TopicPartitionReceipt]) -> None:
        """Raise AccountingError unless ``found``, the results of `compare` in all tasks, has exactly the messages that
        the old server published before a failover."""
        counts = {(each.topic, each.partition): each.dropped.get(PartlyPublishedFilter.reason, 0) for each in found}
        for high_water_mark in self.high_water_marks:
            found_messages = counts.get((high_water_mark.topic, high_water_mark.partition), 0)
            if found_messages != high_water_mark.given:
                raise AccountingError(
                    f"expected {high_water_mark.given} messages for partition {high_water_mark.partition} of "
                    f"{high_water_mark.topic!r} on server {self.window.server_uuid} up to transaction "
                    f"{high_water_mark.gtid}, as the old server published in window {high_water_mark.window} of "
                    f"pipeline {self.window.pipeline!r}, found {found_messages}: the binlogs of the two servers do not "
                    "have the same rows (filters of a replica, binlog_row_image, triggers), or rows are filtered or "
                    "routed in another way. Which messages are missing is not known. Nothing was published. Point the "
                    "connection at the old server again and run, or seek the pipeline to where it should resume, which "
                    "may repeat changes."
                )

    @property
    def is_one_task(self) -> bool:
        """Whether one task publishes everything."""
        return len(set(self.assigned_tasks.values())) < 2

    @property
    def must_compare(self) -> bool:
        """Whether the compare stage must run before the publish stage."""
        return self.window.failover is not None or (bool(self.earlier_progress) and not self.is_one_task)

    def compare(self, number: int, stored: Iterable[StoredBatch]) -> list[PublishedPartition]:
        """Compare the messages of earlier attempts with those that Spark task ``number`` would publish.

        Returns the messages that it would leave out, for `check_left_out`. Raises AccountingError if the messages
        differ, SparkFailedError if a batch is missing.
        """
        return self._compare(
            {key: progress for key, progress in self.earlier_progress.items() if self.assigned_tasks[key] == number},
            number,
            stored,
        )

    def _compare(
        self, earlier_progress: Mapping[TopicPartition, Progress], number: int, stored: Iterable[StoredBatch]
    ) -> list[PublishedPartition]:
        window, known = self.window, self.topics.known
        accounts = {
            key: Account(*key, known[key[0]], window.number, window.server_uuid, progress)
            for key, progress in earlier_progress.items()
        }
        expected = self._expected_by(number)
        if window.failover is None:
            expected = {key: counts for key, counts in expected.items() if key in earlier_progress}
        chain = self._chain()
        relevant = (each for each in stored if each.topic_partition in expected)
        for batch in chain.rest(CompletenessCheck(expected).check(relevant)):
            if (account := accounts.get((batch.topic, batch.partition))) is not None:
                account.skip_published(batch)
        for account in accounts.values():
            account.compare()
        return list(_receipts((), chain))

    def _chain(self) -> FilterChain:
        return FilterChain(self.filters, encoder_of(self.pipeline, self.topics))

    def _expected_by(self, number: int) -> SliceCounts:
        """The expected counts of Spark task ``number``."""
        return {key: counts for key, counts in self.expected.items() if self.assigned_tasks[key] == number}

    @property
    def filters(self) -> list[BlockFilter]:
        """The filters that leave messages out of the window's batches, in their order.

        The filter of a failover is the last, because it counts messages as the publisher does, which gets the messages
        that all other filters pass.
        """
        filters = self.transaction_outcomes.filters
        if self.window.failover is not None:
            filters += [
                PublishedFilter(self.window.failover),
                PartlyPublishedFilter(self.high_water_marks, self.orders),
            ]
        return filters


def _order_of(slices: Sequence[Slice], reports: Sequence[SliceReport]) -> BinlogOrder:
    by_number = {report.slice: report for report in reports}
    return BinlogOrder(join_runs(run for slice in slices for run in by_number[slice.number].order))


def _receipts(receipts: Iterable[Receipt], chain: FilterChain) -> Iterator[PublishedPartition]:
    dropped = dict(chain.dropped)
    for receipt in receipts:
        yield PublishedPartition(_window_receipt(receipt, dropped.pop((receipt.topic, receipt.partition), {})))
    for (topic, partition), counts in dropped.items():
        yield PublishedPartition(TopicPartitionReceipt(topic, partition, 0, 0, 0, 0, None, None, dict(counts)))


def _window_receipt(receipt: Receipt, dropped: Mapping[str, int]) -> TopicPartitionReceipt:
    """``receipt`` for the driver, with the offsets of the complete window over all attempts."""
    window = receipt.window if receipt.window and receipt.window.window else None
    return TopicPartitionReceipt(
        topic=receipt.topic,
        partition=receipt.partition,
        messages=receipt.messages,
        already_there=receipt.already_there,
        value_bytes=receipt.value_bytes,
        dead_letters=receipt.dead_letters,
        first_offset=window.first_offset if window else receipt.first_offset,
        last_offset=window.last_offset if window else receipt.last_offset,
        dropped=dict(dropped),
    )
