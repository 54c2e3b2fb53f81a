"""Finished batches into Kafka, each message once: what one Spark task does with its topic-partitions or its chunks."""

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
    """Batches that become visible together, and with them ``record``, which says so in the commit log.

    A unit that ``begins_transaction`` is not published in the same transaction as the units before it.
    """

    batches: Iterable[Batch]
    record: Record
    begins_transaction: bool = False


class Publisher:
    """Publishes a task's batches in transactions that carry their own progress; a context manager.

    Entering takes over the transactional id ``changefeed.<identity>.<task>``, which aborts what an earlier run of
    the task left open, and then reads the commit log: in this order, so that nothing can be published by the
    earlier one after its progress was read. Leaving aborts what is open.

    A transaction is closed, by default, when it has the rows or seconds that ``settings`` allow, after any batch; the
    progress of its topic-partitions is written in it. ``units_of`` changes both: a transaction is then closed between
    two `Unit`s only, and what is written are their records, in the log of the identity ``units_of``. A window that
    begins fences this publisher too, so that rows that were read before the window's changes are never after them.

    ``limits`` has each topic that a batch may name (`topics.topic_limits`); it names none that state is kept in but
    the dead letters and schema changes of the pipeline whose ``commit_log_topic`` that is. ``source`` is the UUID of
    the server whose coordinates the batches carry. ``attempt`` is what `fencing.fence` returned to the driver; ''
    leaves the check out. ``beside`` are records of the identity that are written in the first transaction, with its
    progress. ``numbering`` gives each message its number in its topic-partition, which goes on over all windows of the
    identity. ``dead_letter`` is a topic of ``limits`` for records that their topic does not take; without it such a
    record fails the run. ``on_stage`` is called with each of STAGES when it is reached, for tests that kill.

    Raises FencedError when a newer attempt has begun, BrokerUnavailableError, TopicError (unknown, removed or
    shrunk topic, ACLs, a broker without transactions), BadRecordError, AccountingError for batches out of order.
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
            state, own = self._log.read_beside(self._units_of)
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
                f"attempt {self._attempt!r} of {self._identity!r} wanted to publish, but the commit log says that "
                f"{state.attempt!r} has begun since. This attempt stops; the newer one publishes what is missing."
            )

    @property
    def progress(self) -> Mapping[TopicPartition, Progress]:
        """What the commit log says that topic-partitions were given, as of the entering; of units it is empty."""
        return self._progress

    def publish(self, batches: Iterable[Batch]) -> list[Receipt]:
        """Publish ``batches`` and return when the last transaction is committed: one receipt a topic-partition.

        Obligation of the caller: batches of a topic-partition come in binlog order, and no other task has the same
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
        """Publish ``units``, each completely or not at all, and return when the last transaction is committed.

        Returns the records of all that are published, also of those that an earlier copy of this task published.
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
        """Whether the open transaction has the rows or seconds that are allowed."""
        settings = self._settings
        is_old = self._transactions.age_seconds >= settings.transaction_seconds
        return is_old or self._rows >= settings.transaction_rows

    def _publish_batch(self, batch: Batch) -> None:
        begun = time.monotonic()
        account = self._account(batch)
        there = account.pass_given(batch)
        if there < batch.messages:
            account.compare()
            if self._numbering is None:
                parts = chain(self._parts(batch, there))
            else:
                numbered = self._numbered(batch, there, self._numbering)
                parts = chain.from_iterable(self._parts(each, 0) for each in numbered)
            for part in parts:
                self._send(part, account)
        account.seconds += time.monotonic() - begun

    def _numbered(self, batch: Batch, there: int, numbering: Callable[[bytes, int], bytes]) -> Iterator[Batch]:
        """What is left of ``batch`` behind the messages that are ``there``, with their numbers."""
        first = self._next.get((batch.topic, batch.partition), 0)
        block = batch.block()
        messages = [
            message if message.value is None else replace(message, value=numbering(message.value, number))
            for number, message in enumerate(list(block.messages())[there:], start=first)
        ]
        yield from self._encoder.batches(replace(block, payload=pack(messages)), batch.number)

    def _parts(self, batch: Batch, there: int) -> Iterator[Batch]:
        """``batch`` as it can be sent: without the messages that are ``there``, and bad records alone."""
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
        """Send a batch, or its dead letter, in the open transaction or in the next one where that is full."""
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
                    f"{limits.partitions}: it was made again with fewer. Run the window again."
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
            )
        letters = self._limits[self._dead_letter]
        value, headers = record.letter(reason, letters.max_message_bytes)
        key = record.key_of_letter(letters.max_message_bytes)
        partition = record.partition % letters.partitions
        self._others.append(self._transactions.send(self._dead_letter, partition, value, key, headers))
        account.dead_letters += 1
        _log.warning("%s went to %r: %s", record.describe(limits.table), self._dead_letter, reason)

    def _write_records(self) -> None:
        """What the commit log has to say of the open transaction."""
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
        """What the next messages of the topic-partitions of the open transaction are numbered from."""
        if self._numbering is not None:
            for key in self._touched:
                yield NumberRecord(*key, self._next[key], self._limits[key[0]].topic_id)

    def _look_around(self) -> None:
        """Batches are slow to be delivered: is there still something to wait for?

        The client waits for a topic that was removed as it does for a broker that is away.
        """
        try:
            limits = topic_limits(self._connection, {topic for topic, _ in self._touched})
        except BrokerUnavailableError:
            return  # it is waited for
        for topic, partition in self._touched:
            if partition >= limits[topic].partitions:
                raise TopicError(
                    f"topic {topic!r} has {limits[topic].partitions} partitions now, and partition {partition} was "
                    "being published to: it was removed, and made again with fewer. Nothing of the open transaction is "
                    "visible."
                )

    def _close(self) -> None:
        """Commit the open transaction, with the records that say what is in it."""
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
