"""Publishes finished batches to Kafka, each message once: the work of one Spark task."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from types import TracebackType
from typing import Generic, Self, TypeVar

from changefeed.errors import BadRecordError, BrokerUnavailableError, FencedError, TopicError
from changefeed.kafka.account import Account, Receipt
from changefeed.kafka.bad_record import OVERHEAD_BYTES, BadRecord
from changefeed.kafka.commit_log.log import CommitLog, CommitLogState
from changefeed.kafka.commit_log.records import LogRecord, NumberRecord, ProgressRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import transactional_id
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import TopicLimits, topic_limits
from changefeed.kafka.transactions import Delivery, Transactions
from changefeed.kafka.window_topics import check_same_topic
from changefeed.model.publish_settings import PublishSettings
from changefeed.model.topic_name import check_published_to, pipeline_of_commit_log
from changefeed.records.batch import Batch
from changefeed.records.block import pack
from changefeed.records.record_batch import headers_of

_log = logging.getLogger(__name__)

OnStage = Callable[[str], None]
IN_OPEN_TRANSACTION = "in_open_transaction"
AFTER_TRANSACTION_COMMIT = "after_transaction_commit"
STAGES = ("after_take_over", IN_OPEN_TRANSACTION, AFTER_TRANSACTION_COMMIT)
Record = TypeVar("Record", bound=LogRecord)


@dataclass(frozen=True)
class Unit(Generic[Record]):
    """Batches that become visible at once, together with ``record`` in the commit log.

    A unit that ``begins_transaction`` is not published in the same transaction as the units before it.
    """

    batches: Iterable[Batch]
    record: Record
    begins_transaction: bool = False


class Publisher:
    """Publishes a task's batches in transactions that carry their own progress; a context manager.

    At the start of its block it takes over the transactional id ``changefeed.<identity>.<task>``, which aborts the open
    transaction of an earlier run of the task, and then reads the commit log. In this order the earlier run can publish
    nothing after its progress was read. At the end of the block it aborts an open transaction.

    By default a transaction is committed before a batch that would exceed the rows of ``settings``, or after the batch
    with which it reaches the seconds. It has the progress of its topic-partitions. With ``units_of`` a transaction is
    committed only between two `Unit`s, and has their records, in the log of the identity ``units_of``. The start of a
    window fences such a publisher too. So rows that were read before the window's changes are never published after
    them.

    Arguments:

    - ``limits`` has the topics of all batches (`topics.topic_limits`). State topics are not allowed, except the topics
      of dead letters and schema changes of the pipeline of ``commit_log_topic``.
    - ``source`` is the UUID of the server whose coordinates the batches have.
    - ``attempt`` is the result of `fencing.fence` in the driver; with '' the attempt is not checked.
    - ``beside`` are records of the identity that are written in the first transaction, with its progress.
    - ``numbering`` writes into each message its number in its topic-partition; numbers continue over all windows of the
      identity.
    - ``topics_are_of_tables`` says that a topic has records of one table only, so that an error of a record is one of
      the table.
    - ``dead_letter`` is a topic of ``limits`` for records that their topic does not accept; without it such a record
      fails the run.
    - ``on_stage`` is called with each of STAGES when it is reached, for tests that kill the process.

    Raises FencedError if a newer attempt has begun, BrokerUnavailableError, TopicError (unknown, removed or shrunk
    topic, ACLs, a broker without transactions), BadRecordError, AccountingError for batches out of order.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        identity: str,
        task: int,
        window_number: int,
        commit_log_topic: str,
        limits: Mapping[str, TopicLimits],
        settings: PublishSettings | None = None,
        *,
        source: str = "",
        attempt: str = "",
        dead_letter: str | None = None,
        on_stage: OnStage | None = None,
        units_of: str | None = None,
        beside: Sequence[LogRecord] = (),
        numbering: Callable[[bytes, int], bytes] | None = None,
        topics_are_of_tables: bool = False,
    ) -> None:
        self._settings = settings or PublishSettings()
        self._identity, self._window, self._source, self._attempt = identity, window_number, source, attempt
        self._limits, self._dead_letter, self._connection = limits, dead_letter, connection
        self._pipeline = pipeline_of_commit_log(commit_log_topic) or identity
        self._log = CommitLog(connection, commit_log_topic, identity, self._settings.transaction_timeout_seconds + 30)
        name = transactional_id(identity, task)
        self._transactions = Transactions(connection, name, self._settings, [*limits, commit_log_topic])
        from changefeed.records.encoder import BatchEncoder  # only tasks publish, and only they load the kernels

        self._encoder = BatchEncoder(self._settings, lambda topic: limits[topic].for_batches())
        self._on_stage: OnStage = on_stage or (lambda _stage: None)
        self._progress: Mapping[TopicPartition, Progress] = {}
        self._accounts: dict[TopicPartition, Account] = {}
        self._touched: dict[TopicPartition, Account] = {}
        self._units_of = units_of
        self._published_keys: set[bytes | None] = set()
        self._records: list[LogRecord] = []
        self._beside = tuple(beside)
        self._numbering = numbering
        self._topics_are_of_tables = topics_are_of_tables
        self._next: dict[TopicPartition, int] = {}
        self._others: list[Delivery] = []
        self._rows = 0

    def __enter__(self) -> Self:
        self._transactions.take_over()
        if self._units_of is None:
            state = self._log.read()
            self._progress = state.progress
            self._next = {
                (record.topic, record.partition): record.next
                for record in state.of(NumberRecord)
                if record.topic in self._limits and record.topic_id == self._limits[record.topic].topic_id
            }
        else:
            state, own = self._log.read_with(self._units_of)
            self._published_keys = {entry.record.key for entry in own.entries}
        self._refuse_newer_attempt(state)
        self._on_stage("after_take_over")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._transactions.abort()
        self._transactions.close()

    def _refuse_newer_attempt(self, state: CommitLogState) -> None:
        if self._attempt and state.attempt != self._attempt:
            raise FencedError(
                f"attempt {self._attempt!r} of {self._identity!r} tried to publish, but by the "
                f"commit log attempt {state.attempt!r} has begun since. This attempt stops; the newer one publishes "
                "the rest."
            )

    @property
    def progress(self) -> Mapping[TopicPartition, Progress]:
        """The progress of topic-partitions in the commit log at the start of the block; empty for a publisher of
        units."""
        return self._progress

    def publish(self, batches: Iterable[Batch]) -> list[Receipt]:
        """Publish ``batches``; after the commit of the last transaction return a receipt for each topic-partition.

        The caller must pass the batches of a topic-partition in binlog order, and no other task may have the same
        topic-partition.
        """
        try:
            for batch in batches:
                self._publish_batch(batch)
                if self._transactions.age_seconds >= self._settings.transaction_seconds:
                    self._close()
            for account in self._accounts.values():
                account.compare()
            self._close()
        except BaseException:
            self._transactions.abort()
            raise
        return [account.receipt() for account in self._accounts.values()]

    def publish_units(self, units: Iterable[Unit[Record]]) -> list[Record]:
        """Publish ``units``, each completely or not at all; after the commit of the last transaction return their
        records.

        Units that an earlier copy of this task published are not published again; the result has their records, too.
        """
        assert self._units_of is not None, "only a publisher of units writes their records"
        done = []
        try:
            for unit in units:
                if unit.record.key(self._units_of) not in self._published_keys:
                    if unit.begins_transaction or self._is_full:
                        self._close()
                    self._transactions.open()
                    for batch in unit.batches:
                        self._publish_batch(batch)
                    self._records.append(unit.record)
                done.append(unit.record)
            self._close()
        except BaseException:
            self._transactions.abort()
            raise
        return done

    @property
    def _is_full(self) -> bool:
        """Whether the open transaction has reached the maximum of rows or seconds."""
        settings = self._settings
        is_old = self._transactions.age_seconds >= settings.transaction_seconds
        return is_old or self._rows >= settings.transaction_rows

    def _publish_batch(self, batch: Batch) -> None:
        begun = time.monotonic()
        account = self._account(batch)
        there = account.skip_published(batch)
        if there < batch.messages:
            account.compare()
            if self._numbering is None:
                parts = chain(self._parts(batch, there))
            else:
                numbered = self._with_numbers(batch, there, self._numbering)
                parts = chain.from_iterable(self._parts(each, 0) for each in numbered)
            for part in parts:
                self._send(part, account)
        account.seconds += time.monotonic() - begun

    def _with_numbers(self, batch: Batch, there: int, numbering: Callable[[bytes, int], bytes]) -> Iterator[Batch]:
        """The messages of ``batch``, with their numbers, after the first ``there`` ones, which are published
        already."""
        first = self._next.get((batch.topic, batch.partition), 0)
        block = batch.block()
        messages = [
            message if message.value is None else replace(message, value=numbering(message.value, number))
            for number, message in enumerate(list(block.messages())[there:], start=first)
        ]
        yield from self._encoder.batches(replace(block, payload=pack(messages)), batch.number)

    def _parts(self, batch: Batch, there: int) -> Iterator[Batch]:
        """``batch`` in parts to send: without its first ``there`` messages, which are published, and with each bad
        record alone."""
        room = self._limits[batch.topic].max_message_bytes
        if not there and len(batch.records) <= room and batch.largest_bytes <= room - OVERHEAD_BYTES:
            yield batch
            return
        block = batch.block()
        messages = list(block.messages())[there:]
        for is_bad, run in groupby(messages, key=lambda message: message.size_bytes > room - OVERHEAD_BYTES):
            for part in [[message] for message in run] if is_bad else [list(run)]:
                yield from self._encoder.batches(replace(block, payload=pack(part)))

    def _send(self, batch: Batch, account: Account) -> None:
        """Send a batch, or its dead letter, in the open transaction; if that is full, in the next one."""
        if self._units_of is None and self._rows and self._rows + batch.messages > self._settings.transaction_rows:
            self._close()
        self._transactions.open()
        self._touched[account.topic, account.partition] = account
        account.move_over(batch)
        if batch.largest_bytes > self._limits[batch.topic].max_message_bytes - OVERHEAD_BYTES:
            self._bad_record(batch, account)
        else:
            delivery = self._transactions.send_batch(
                batch.topic, batch.partition, batch.records, batch.messages, what=str(account)
            )
            account.count(batch, delivery, are_letters=batch.topic == self._dead_letter)
        self._rows += batch.messages
        key = (batch.topic, batch.partition)
        self._next[key] = self._next.get(key, 0) + batch.messages

    def _account(self, batch: Batch) -> Account:
        key = (batch.topic, batch.partition)
        account = self._accounts.get(key)
        if account is None:
            check_published_to(batch.topic, self._pipeline)
            limits = self._limits.get(batch.topic)
            if limits is None:
                raise TopicError(
                    f"topic {batch.topic!r} is not among the {len(self._limits)} topics that this run made sure of"
                )
            if not 0 <= batch.partition < limits.partitions:
                raise TopicError(
                    f"a batch is for partition {batch.partition} of topic {batch.topic!r}, which has "
                    f"{limits.partitions}: it was created again with fewer partitions. Run the window again."
                )
            given = self._progress.get(key)
            if given is not None:
                check_same_topic(batch.topic, limits, {batch.partition: given})
            account = Account(batch.topic, batch.partition, limits, self._window, self._source, given)
            self._accounts[key] = account
        return account

    def _bad_record(self, batch: Batch, account: Account) -> None:
        (message,) = batch.block().messages()
        record = BadRecord(batch.topic, batch.partition, message.key, message.value, headers_of(message))
        limits = self._limits[record.topic]
        reason = (
            f"its {record.size_bytes} bytes are more than max.message.bytes {limits.max_message_bytes} of topic "
            f"{record.topic!r}"
        )
        if self._dead_letter is None:
            raise BadRecordError(
                f"{record.describe(limits.table)} does not fit: {reason}. Nothing of its transaction is visible and "
                "the checkpoint stays before it. Raise max.message.bytes of the topic (and of the broker's replicas), "
                "or set on_bad_record: dead_letter."
            ).of_tables(*([limits.table] if limits.table and self._topics_are_of_tables else []))
        letters = self._limits[self._dead_letter]
        value, headers = record.letter(reason, letters.max_message_bytes)
        key = record.key_of_letter(letters.max_message_bytes)
        partition = record.partition % letters.partitions
        self._others.append(self._transactions.send(self._dead_letter, partition, value, key, headers))
        account.dead_letters += 1
        _log.warning("%s went to %r: %s", record.describe(limits.table), self._dead_letter, reason)

    def _write_records(self) -> None:
        """Write the records of the open transaction to the commit log, in that transaction."""
        identity, records = self._units_of, self._records
        if identity is None:
            identity = self._identity
            progress = [ProgressRecord(*partition, account.progress()) for partition, account in self._touched.items()]
            records = [*progress, *self._numbers(), *self._beside]
            self._beside = ()
        topic = self._log.topic
        for record in records:
            key, value = record.key(identity), record.value()
            headers = self._connection.log_keys.headers(topic, key, value)
            self._others.append(self._transactions.send(topic, 0, value, key, headers))

    def _numbers(self) -> Iterator[NumberRecord]:
        """Records of the next message number of each topic-partition in the open transaction."""
        if self._numbering is not None:
            for key in self._touched:
                yield NumberRecord(*key, self._next[key], self._limits[key[0]].topic_id)

    def _look_around(self) -> None:
        """Raise TopicError if a topic of the open transaction was removed; called while the delivery of batches takes
        long.

        Without this check kafka-python waits for a removed topic as it waits for a broker that is down.
        """
        touched = set(self._touched)
        if self._dead_letter is not None:
            touched.add((self._dead_letter, self._limits[self._dead_letter].partitions - 1))
        try:
            limits = topic_limits(self._connection, {topic for topic, _ in touched})
        except BrokerUnavailableError:
            return  # the client waits for the broker
        for topic, partition in touched:
            if partition >= limits[topic].partitions:
                raise TopicError(
                    f"topic {topic!r} has {limits[topic].partitions} partitions now, and partition {partition} was "
                    "being published to: it was removed, and created again with fewer partitions. Nothing of the open "
                    "transaction is visible."
                )

    def _close(self) -> None:
        """Commit the open transaction, with its records in the commit log."""
        if not self._transactions.is_open:
            return
        transactions = self._transactions
        transactions.flush(self._look_around)
        for account in self._touched.values():
            account.take_deliveries()
        self._write_records()
        self._on_stage(IN_OPEN_TRANSACTION)
        transactions.flush(self._look_around)
        for delivery in self._others:
            if delivery.error is not None:
                raise delivery.error
        transactions.commit(
            f"{self._rows} records up to " + ", ".join(str(account) for account in self._touched.values())
        )
        for account in self._touched.values():
            account.transactions += 1
        self._touched, self._records, self._others, self._rows = {}, [], [], 0
        self._on_stage(AFTER_TRANSACTION_COMMIT)
