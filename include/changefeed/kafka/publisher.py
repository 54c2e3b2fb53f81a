"""Blocks into Kafka, each message once: what one Spark task does with its topic-partitions."""

from __future__ import annotations

import gc
import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from operator import sub
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException

from changefeed.block import HAS_HEADER, HEADER_SEPARATOR, NULL_KEY, NULL_VALUE, Arrays, Block, split_header
from changefeed.errors import BadRecordError, BrokerUnavailableError, FencedError, TopicError
from changefeed.kafka.account import Account, Receipt
from changefeed.kafka.bad_record import GTID_HEADER, ID_HEADER, OVERHEAD_BYTES, BadRecord
from changefeed.kafka.commit_log import CommitLog, CommitLogState
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import transactional_id
from changefeed.kafka.log_record import ProgressRecord
from changefeed.kafka.progress import Progress, TopicPartition
from changefeed.kafka.topics import TopicLimits, topic_limits
from changefeed.kafka.transactions import Transactions
from changefeed.kafka.window_topics import check_same_topic
from changefeed.publish_settings import PublishSettings

_log = logging.getLogger(__name__)

Row = tuple[int, int, int, int, int, int]
"""Where a message begins in its block's data, where its key, value, event id and GTID end, and its nulls."""

OnStage = Callable[[str], None]
IN_OPEN_TRANSACTION = "in_open_transaction"
AFTER_TRANSACTION_COMMIT = "after_transaction_commit"
STAGES = ("after_take_over", IN_OPEN_TRANSACTION, AFTER_TRANSACTION_COMMIT)


# Records thrown away because of another error, which the commit raises.
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class Publisher:
    """Publishes a task's blocks in transactions that carry their own progress; a context manager.

    Entering takes over the transactional id ``changefeed.<identity>.<task>``, which aborts what an earlier run of
    the task left open, and then reads the commit log: in this order, so that nothing can be published by the
    earlier one after its progress was read. Leaving aborts what is open.

    ``limits`` has each topic that a block may name (`topics.topic_limits`). ``source`` is the UUID of the server
    whose coordinates the blocks carry. ``attempt`` is what `fencing.fence` returned to the driver; '' leaves the
    check out. ``dead_letter`` is a topic of ``limits`` for records that their topic does not take; without it such
    a record fails the run. ``on_stage`` is called with each of STAGES when it is reached, for tests that kill.

    Raises FencedError when a newer attempt has begun, BrokerUnavailableError, TopicError (unknown, removed or
    shrunk topic, ACLs, a broker without transactions), BadRecordError, AccountingError for blocks out of order.
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
    ) -> None:
        self._settings = settings or PublishSettings()
        self._identity, self._window, self._source, self._attempt = identity, window_number, source, attempt
        self._limits, self._dead_letter, self._connection = limits, dead_letter, connection
        self._log = CommitLog(connection, commit_log_topic, identity, self._settings.transaction_timeout_seconds + 30)
        name = transactional_id(identity, task)
        self._transactions = Transactions(connection, name, self._settings, list(limits.values()))
        self._on_stage: OnStage = on_stage or (lambda _stage: None)
        self._progress: Mapping[TopicPartition, Progress] = {}
        self._accounts: dict[TopicPartition, Account] = {}
        self._touched: dict[TopicPartition, Account] = {}
        self._rows = 0

    def __enter__(self) -> Self:
        self._transactions.take_over()
        state = self._log.read()
        self._refuse_newer_attempt(state)
        self._progress = state.progress
        self._on_stage("after_take_over")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._transactions.abort()

    def _refuse_newer_attempt(self, state: CommitLogState) -> None:
        if self._attempt and state.attempt != self._attempt:
            raise FencedError(
                f"attempt {self._attempt!r} of {self._identity!r} wanted to publish, but the commit log says that "
                f"{state.attempt!r} has begun since. This attempt stops; the newer one publishes what is missing."
            )

    def publish(self, blocks: Iterable[Block]) -> list[Receipt]:
        """Publish ``blocks`` and return when the last transaction is committed: one receipt a topic-partition.

        Obligation of the caller: blocks of a topic-partition come in binlog order, and no other task has the same
        topic-partition. Python's cyclic garbage collector is off meanwhile: records are no cycles, and with it on
        publishing takes twice as long.
        """
        collecting = gc.isenabled()
        gc.disable()
        try:
            for block in blocks:
                self._publish_block(block)
                if self._transactions.age_seconds >= self._settings.transaction_seconds:
                    self._close()
            for account in self._accounts.values():
                account.compare()
            self._close()
        except BaseException:
            self._transactions.abort()
            raise
        finally:
            if collecting:
                gc.enable()
        return [account.receipt() for account in self._accounts.values()]

    def _publish_block(self, block: Block) -> None:
        begun = time.monotonic()
        account = self._account(block)
        arrays = block.arrays()
        positions, sequences, count = arrays.positions, arrays.sequences, len(arrays.positions)
        begin = account.begin_of_rest(block.origin, positions, sequences)
        account.already_there += begin
        account.pass_by(positions[:begin], sequences[:begin])
        if begin < count:
            account.compare()
            self._transactions.make_room(len(block.payload))
        while begin < count:
            self._transactions.open()
            end = min(count, begin + self._settings.transaction_rows - self._rows)
            self._touched[account.topic, account.partition] = account
            last = end - 1
            account.move_over(block.origin, (positions[begin], sequences[begin]), (positions[last], sequences[last]))
            account.pass_by(positions[begin:end], sequences[begin:end])
            self._produce(block, arrays, begin, end, account)
            self._rows += end - begin
            begin = end
            if self._rows >= self._settings.transaction_rows:
                self._close()
        self._transactions.serve()
        account.seconds += time.monotonic() - begun

    def _account(self, block: Block) -> Account:
        key = (block.topic, block.partition)
        account = self._accounts.get(key)
        if account is None:
            limits = self._limits.get(block.topic)
            if limits is None:
                raise TopicError(
                    f"topic {block.topic!r} is not among the {len(self._limits)} topics that this run made sure of"
                )
            if not 0 <= block.partition < limits.partitions:
                raise TopicError(
                    f"a block is for partition {block.partition} of topic {block.topic!r}, which has "
                    f"{limits.partitions}: it was made again with fewer. Run the window again."
                )
            given = self._progress.get(key)
            if given is not None:
                check_same_topic(block.topic, limits, {block.partition: given})
            account = Account(block.topic, block.partition, limits, self._window, self._source, given)
            self._accounts[key] = account
        return account

    def _produce(self, block: Block, arrays: Arrays, begin: int, end: int, account: Account) -> None:
        """Queue messages begin to end of a block, the first and the last with a delivery report, for their offsets."""
        ends = arrays.ends
        parts = ends[4 * begin : 4 * end].tolist()
        key_ends, value_ends, id_ends, gtid_ends = parts[0::4], parts[1::4], parts[2::4], parts[3::4]
        starts = [ends[4 * begin - 1] if begin else 0, *gtid_ends[:-1]]
        room = self._limits[block.topic].max_message_bytes - OVERHEAD_BYTES
        bad: set[int] = set()
        if max(map(sub, gtid_ends, starts)) > room:
            bad = {index for index in range(end - begin) if gtid_ends[index] - starts[index] > room}
        nulls = arrays.nulls[begin:end]
        rows = zip(starts, key_ends, value_ends, id_ends, gtid_ends, nulls, strict=True)
        data = bytes(arrays.data)
        value_bytes = sum(value_ends) - sum(key_ends)
        done = 0
        for index in sorted({0, end - begin - 1, *bad}):
            self._produce_quickly(block.topic, block.partition, data, islice(rows, index - done))
            done = index + 1
            at, key_end, value_end, id_end, gtid_end, null = next(rows)
            key = None if null & NULL_KEY else data[at:key_end]
            value = None if null & NULL_VALUE else data[key_end:value_end]
            headers = [(ID_HEADER, data[value_end:id_end])]
            if null & HAS_HEADER:  # a statement's record, which always is a block of its own
                headers += _statement_headers(data[id_end:gtid_end])
            elif id_end < gtid_end:
                headers.append((GTID_HEADER, data[id_end:gtid_end]))
            if index in bad:
                self._bad_record(BadRecord(block.topic, block.partition, key, value, headers), account)
                value_bytes -= value_end - key_end
            else:
                self._transactions.produce(block.topic, value, key, block.partition, headers, account.delivered)
        # A transaction's messages stand together, so where the last one's begin can be searched by halves.
        gtid = data[id_ends[-1] : gtid_ends[-1]]
        first = bisect_left(range(end - begin), True, key=lambda at: data[id_ends[at] : gtid_ends[at]] == gtid)
        name = gtid.partition(HEADER_SEPARATOR)[0].decode("ascii", "replace")
        account.count_transaction(name, end - begin - first, alone=first == 0)
        account.count(end - begin - len(bad), value_bytes)

    def _produce_quickly(self, topic: str, partition: int, data: bytes, rows: Iterable[Row]) -> None:
        """Queue ``rows`` of ``data``: this loop is what publishing costs, so nothing is called in it but `produce`.

        Not `produce_batch`: it drops headers without a word (confluent-kafka-python #2320).
        """
        produce: Any = self._transactions.producer.produce
        try:
            for at, key_end, value_end, id_end, gtid_end, null in rows:
                key = None if null & NULL_KEY else data[at:key_end]
                value = None if null & NULL_VALUE else data[key_end:value_end]
                if id_end == gtid_end:
                    headers = [(ID_HEADER, data[value_end:id_end])]
                else:
                    headers = [(ID_HEADER, data[value_end:id_end]), (GTID_HEADER, data[id_end:gtid_end])]
                try:
                    produce(topic, value, key, partition, None, None, 0, headers)
                except BufferError:
                    self._transactions.produce(topic, value, key, partition, headers, None)
        except KafkaException as error:
            raise self._transactions.refused(error, f"to publish to partition {partition} of {topic!r}") from error

    def _bad_record(self, record: BadRecord, account: Account) -> None:
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
        self._transactions.produce(
            self._dead_letter,
            value,
            record.key_of_letter(letters.max_message_bytes),
            record.partition % letters.partitions,
            headers,
            account.letter_delivered,
        )
        account.dead_letters += 1
        _log.warning("%s went to %r: %s", record.describe(limits.table), self._dead_letter, reason)

    def _write_progress(self) -> None:
        for (topic, partition), account in self._touched.items():
            record = ProgressRecord(topic, partition, account.progress())
            self._transactions.produce(self._log.topic, record.value(), record.key(self._identity), 0, [], None)

    def _look_around(self) -> None:
        """Records are slow to be delivered: is there still something to wait for?

        Progress is written here only to see whether the transaction is whole: a broken one takes no record and does
        not say so otherwise. It is written again at the end of the same transaction, so it does no harm.
        """
        self._write_progress()
        self._refuse_lost_topics()

    def _refuse_lost_topics(self) -> None:
        try:
            limits = topic_limits(self._connection, {topic for topic, _ in self._touched})
        except BrokerUnavailableError:
            return  # the broker is away: librdkafka waits for it
        for topic, partition in self._touched:
            if partition >= limits[topic].partitions:
                raise TopicError(
                    f"topic {topic!r} has {limits[topic].partitions} partitions now, and partition {partition} was "
                    "being published to: it was removed and made again. Nothing of the open transaction is visible."
                )

    def _close(self) -> None:
        """Commit the open transaction, with the progress of what it touched."""
        if not self._transactions.is_open:
            return
        transactions = self._transactions
        transactions.flush(self._look_around)
        for account in self._touched.values():
            if account.refusal is not None and account.refusal.code() not in _PURGED:
                wanted = f"to publish to {account}"
                raise transactions.refused(KafkaException(account.refusal), wanted)
        self._write_progress()
        self._on_stage(IN_OPEN_TRANSACTION)
        transactions.commit(
            f"{self._rows} records up to " + ", ".join(str(account) for account in self._touched.values())
        )
        for account in self._touched.values():
            account.transactions += 1
        self._touched, self._rows = {}, 0
        self._on_stage(AFTER_TRANSACTION_COMMIT)


def _statement_headers(text: bytes) -> list[tuple[str, bytes]]:
    """Headers of a statement's record: its GTID, if it has one, and the format's own header."""
    gtid, header = split_header(text)
    return [*([(GTID_HEADER, gtid)] if gtid else []), header]
