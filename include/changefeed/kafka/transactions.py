"""One task's Kafka transactions, one after the other.

What librdkafka asks of its callers: https://github.com/confluentinc/librdkafka/blob/master/INTRODUCTION.md
(Transactional producer): on an abortable error abort, on a retriable one call again, on a fatal one stop.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from changefeed.errors import ChangefeedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicLimits
from changefeed.publish_settings import PublishSettings

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_LARGEST_MESSAGE_BYTES = 1_000_000_000
"""What librdkafka sends at most."""

Delivered = Callable[[KafkaError | None, Message], None]
Headers = list[tuple[str, bytes]]


class Transactions:
    """A transactional producer. Any error leaves it unusable: `close` it and let the task run again."""

    def __init__(
        self,
        connection: KafkaConnection,
        name: str,
        settings: PublishSettings,
        limits: Sequence[TopicLimits],
    ) -> None:
        self._connection, self.name = connection, name
        sizes = [limit.max_message_bytes for limit in limits] or [settings.batch_bytes]
        largest_bytes = min(_LARGEST_MESSAGE_BYTES, max(1_000_000, *sizes) + 100_000)
        # librdkafka takes no record that is larger than its queue, not even into an empty one. Where topics take such
        # records, the queue is as large as they are, and `make_room` keeps it as small as it was.
        self._queue_bytes, self._queued_bytes = settings.queue_bytes, 0
        self._takes_larger = largest_bytes > settings.queue_bytes
        milliseconds = int(settings.transaction_timeout_seconds * 1000)
        self._patience_seconds = settings.transaction_timeout_seconds
        self.producer: Producer = connection.producer(
            transactional_id=name,
            transaction_timeout_ms=milliseconds,
            message_timeout_ms=milliseconds,  # librdkafka allows no more than the transaction's
            compression_type=settings.compression,
            linger_ms=settings.linger_ms,
            queue_buffering_max_messages=2_000_000,
            queue_buffering_max_kbytes=max(1, (max(settings.queue_bytes, largest_bytes) >> 10) + 1),
            batch_num_messages=100_000,
            # A topic's max.message.bytes is for a whole batch: one that is too large would be refused although
            # each record fits.
            batch_size=max(1, min(settings.batch_bytes, *sizes)),
            # Not librdkafka decides what is too large, but the publisher, by the topic's own limit.
            message_max_bytes=largest_bytes,
        )
        self.is_open = False
        self.opened_at = 0.0

    def take_over(self) -> None:
        """Fence earlier producers of the same name and abort what they left open. Once, before anything else."""
        self._do(
            lambda seconds: self.producer.init_transactions(seconds), "to take over", self._connection.timeout_seconds
        )

    def open(self) -> None:
        """Begin a transaction if none is open."""
        if not self.is_open:
            self._do(lambda _: self.producer.begin_transaction(), "to begin a transaction", 0)
            self.is_open, self.opened_at = True, time.monotonic()

    @property
    def age_seconds(self) -> float:
        """How long the open transaction has been open; 0 without one."""
        return time.monotonic() - self.opened_at if self.is_open else 0.0

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Headers,
        delivered: Delivered | None,
    ) -> None:
        """Queue one record, waiting while the queue is full."""
        produce: Any = self.producer.produce
        while True:
            try:
                # By position: this is called for each record, and names would cost a third more.
                produce(topic, value, key, partition, delivered, None, 0, headers)
                return
            except BufferError:
                self.serve(0.05)
            except KafkaException as error:
                raise self.refused(error, f"to publish to partition {partition} of {topic!r}") from error

    def make_room(self, size_bytes: int) -> None:
        """Wait until ``size_bytes`` more may be queued, of one record or of many, beside what is on its way."""
        if not self._takes_larger:
            return  # librdkafka counts by itself
        if self._queued_bytes and self._queued_bytes + size_bytes > self._queue_bytes:
            while len(self.producer):
                self.serve(0.05)
            self._queued_bytes = 0
        self._queued_bytes += size_bytes

    def serve(self, seconds: float = 0.0) -> None:
        """Take the delivery reports that are there, or come within ``seconds``."""
        self._served(lambda: self.producer.poll(seconds))

    def flush(self, while_waiting: Callable[[], None]) -> None:
        """Wait until each record was delivered or refused, and its report taken.

        ``while_waiting`` is called every few seconds and should raise when waiting is of no use: librdkafka waits for
        a topic that was removed as it does for a broker that is away, and for the abort of a broken transaction.
        """
        deadline = time.monotonic() + self._patience_seconds
        while self._served(lambda: self.producer.flush(_LOOK_SECONDS)):
            while_waiting()
            if time.monotonic() > deadline:
                raise self.refused(KafkaException(KafkaError(KafkaError._MSG_TIMED_OUT)), "to flush")

    def _served(self, call: Callable[[], int]) -> int:
        try:
            return call()
        except KafkaException as error:
            raise self.refused(error, "to publish") from error
        except SystemError as error:
            # confluent-kafka raises a fatal error (we are fenced) while it serves, and goes on to the next delivery
            # report with it; Python then complains of the report's callback.
            if isinstance(error.__cause__, KafkaException):
                raise self.refused(error.__cause__, "to publish") from error.__cause__
            raise

    def commit(self, what: str) -> None:
        """Make the open transaction visible; ``what`` it holds, for the error message.

        After an error it is unknown whether it is visible: the commit log says.
        """
        wanted = f"to commit {what}"
        self._do(lambda seconds: self.producer.commit_transaction(seconds), wanted, self._patience_seconds)
        self.is_open = False

    def abort(self) -> None:
        """Abort the open transaction, if there is one. Never raises: the broker aborts it later otherwise."""
        if not self.is_open:
            return
        self.is_open = False
        try:
            self.producer.purge()
            self.producer.abort_transaction(self._connection.timeout_seconds)
        except KafkaException as error:
            _log.warning("transaction of %r was left to time out: %s", self.name, error.args[0].str())

    def refused(self, error: KafkaException, wanted: str) -> ChangefeedError:
        """Our error for librdkafka's ``error``, when ``wanted`` was tried."""
        if error.args[0].code() == KafkaError._STATE and self.is_open:
            error = self._cause() or error
        return self._connection.refused(error, f"{wanted} (transactional id {self.name!r})")

    def _cause(self) -> KafkaException | None:
        """What broke the transaction: once it is broken nothing can be queued, and only the commit says why."""
        try:
            self.producer.commit_transaction(self._connection.timeout_seconds)
        except KafkaException as cause:
            return cause
        return None  # cannot be: a broken transaction is not committed

    def _do(self, call: Callable[[float], None], wanted: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                call(max(0.1, deadline - time.monotonic()))
                return
            except KafkaException as error:
                said: KafkaError = error.args[0]
                if said.retriable() and not said.txn_requires_abort() and time.monotonic() < deadline:
                    continue
                raise self.refused(error, wanted) from error
