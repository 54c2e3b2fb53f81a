"""One task's Kafka transactions, one after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import kafka.errors

from changefeed.errors import ChangefeedError
from changefeed.kafka.client_internals import Done, FinishedRecords, InnerProducer
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.refusal import refused_to_write
from changefeed.model.publish_settings import PublishSettings

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_SILENCE_MS = 30_000
"""How long a broker may be silent before its connection is dropped and the request sent again."""
_RETRY_MS = 20
_RECONNECT_MS = 1000
_ABORT_SECONDS = 3.0
_CLOSE_SECONDS = 1.0


@dataclass(slots=True)
class Delivery:
    """What became of a batch or a record; both are None until Kafka has taken or refused it.

    ``offset`` is that of its first record.
    """

    wanted: str
    offset: int | None = None
    error: ChangefeedError | None = None


class Transactions:
    """A transactional producer under the transactional id ``name``; nothing is connected before `take_over`.

    ``topics`` are those that it will write to, the commit log among them. Any error leaves it unusable: `close`
    it and let the task run again. All that write raise FencedError, TopicError, BadRecordError, SettingsError, or
    BrokerUnavailableError when nothing is heard of Kafka for the transaction's timeout.
    """

    def __init__(
        self, connection: KafkaConnection, name: str, settings: PublishSettings, topics: Iterable[str]
    ) -> None:
        self._connection, self.name, self._topics = connection, name, list(topics)
        self._queue_bytes = settings.queue_bytes
        self._patience_seconds = settings.transaction_timeout_seconds
        self._inner: InnerProducer | None = None
        self._changed = threading.Condition()
        self._under_way, self._under_way_bytes = 0, 0
        self._error: ChangefeedError | None = None
        self.is_open = False
        self._opened_at = 0.0

    def _settings(self) -> dict[str, Any]:
        theirs = self._connection.kafka_python()
        silence_ms = int(self._connection.options.get("socket.timeout.ms", _SILENCE_MS))
        milliseconds = int(self._patience_seconds * 1000)
        return {
            "retry_backoff_ms": _RETRY_MS,
            "reconnect_backoff_max_ms": _RECONNECT_MS,
            **theirs,
            "transactional_id": self.name,
            "transaction_timeout_ms": milliseconds,
            "delivery_timeout_ms": milliseconds,
            "request_timeout_ms": min(max(silence_ms, theirs["request_timeout_ms"]), milliseconds),
            "max_block_ms": theirs["request_timeout_ms"],
            "allow_auto_create_topics": False,
        }

    def take_over(self) -> None:
        """Fence earlier producers of the same name and abort what they left open. Once, before anything else."""
        with self._connection.kafka_python_errors():
            self._inner = InnerProducer(self._settings(), self._topics)
        self._do(self._inner.take_over, "to take over")

    def open(self) -> None:
        """Begin a transaction if none is open."""
        if not self.is_open:
            self._do(self._producer.begin, "to begin a transaction")
            self.is_open, self._opened_at = True, time.monotonic()

    @property
    def age_seconds(self) -> float:
        """How long the open transaction has been open; 0 without one."""
        return time.monotonic() - self._opened_at if self.is_open else 0.0

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray, messages: int, what: str = ""
    ) -> Delivery:
        """Queue a finished record batch (magic 2) of ``messages`` records, waiting while the queue is full.

        Producer id, epoch, base sequence, transactional bit and CRC-32C are filled in when it is sent; until
        then ``batch`` must not be changed. ``what`` names it in error messages. Raises ValueError for bytes that are
        no such batch.
        """
        delivery = self._delivery(topic, partition, what)
        records = FinishedRecords(batch, messages)
        self._make_room(len(batch), delivery.wanted)
        done = self._under_way_of(delivery, len(batch))
        self._do(lambda: self._producer.send_batch(topic, partition, records, done), delivery.wanted)
        return delivery

    def send(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]],
        what: str = "",
    ) -> Delivery:
        """Queue one record, at least one of key and value not None, waiting while the queue is full."""
        delivery = self._delivery(topic, partition, what)
        size_bytes = len(value or b"") + len(key or b"")
        self._make_room(size_bytes, delivery.wanted)
        done = self._under_way_of(delivery, size_bytes)
        self._do(lambda: self._producer.send(topic, partition, value, key, headers, done), delivery.wanted)
        return delivery

    def _delivery(self, topic: str, partition: int, what: str) -> Delivery:
        return Delivery(f"to publish to {what or f'partition {partition} of {topic!r}'}")

    def _under_way_of(self, delivery: Delivery, size_bytes: int) -> Done:
        """Count it as under way, until what is returned is called."""
        with self._changed:
            self._under_way += 1
            self._under_way_bytes += size_bytes

        def done(first: int | None, refusal: Exception | None) -> None:  # in the sender's thread
            error = None if refusal is None else self._refusal(refusal, delivery.wanted)
            with self._changed:
                self._under_way -= 1
                self._under_way_bytes -= size_bytes
                delivery.offset, delivery.error = first, error
                self._error = self._error or error
                self._changed.notify_all()

        return done

    def _make_room(self, size_bytes: int, wanted: str) -> None:
        self._wait(
            lambda: not self._under_way or self._under_way_bytes + size_bytes <= self._queue_bytes,
            self._patience_seconds,
            wanted,
        )

    def flush(self, while_waiting: Callable[[], None]) -> None:
        """Wait until Kafka has taken each record of the transaction; raise when it refuses one.

        ``while_waiting`` is called every few seconds and should raise when waiting is of no use: kafka-python waits for
        a topic that was removed as it does for a broker that is away.
        """
        deadline = time.monotonic() + self._patience_seconds
        while not self._ready(lambda: not self._under_way, _LOOK_SECONDS):
            while_waiting()
            if time.monotonic() > deadline:
                raise self._refusal(kafka.errors.KafkaTimeoutError("time-out"), "to flush")

    def _wait(self, ready: Callable[[], bool], seconds: float, wanted: str) -> None:
        if not self._ready(ready, seconds):
            raise self._refusal(kafka.errors.KafkaTimeoutError("time-out"), wanted)

    def _ready(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Whether it is ``ready``, now or within ``seconds``; raises where Kafka has refused something."""
        with self._changed:
            is_ready = self._changed.wait_for(lambda: self._error is not None or ready(), seconds)
        if self._error is not None:
            raise self._error
        return is_ready

    def commit(self, what: str) -> None:
        """Make the open transaction visible; ``what`` it holds, for the error message.

        Waits for what is on its way, and commits nothing of which Kafka has refused a part. After an error it is
        unknown whether it is visible: the commit log says.
        """
        wanted = f"to commit {what}"
        deadline = time.monotonic() + self._patience_seconds
        self._wait(lambda: not self._under_way, self._patience_seconds, wanted)
        self._do(lambda: self._producer.commit(max(0.1, deadline - time.monotonic())), wanted)
        self.is_open = False

    def abort(self) -> None:
        """Abort the open transaction, if there is one. Never raises: the broker aborts it later otherwise."""
        if not self.is_open:
            return
        self.is_open = False
        before = self._error
        try:
            self._producer.abort(_ABORT_SECONDS)
        except kafka.errors.KafkaError as error:
            self._error = self._error or self._refusal(error, "to abort")
            _log.warning("transaction of %r was left to time out: %s", self.name, error)
        else:
            self._error = before  # and not that what was still queued is dropped

    def close(self) -> None:
        """Abort what is open, and end the connections. Never raises."""
        self.abort()
        if self._inner is not None:
            inner, self._inner = self._inner, None
            try:
                inner.close(_CLOSE_SECONDS)
            except kafka.errors.KafkaError as error:
                _log.debug("the producer %r did not close in order: %s", self.name, error)

    @property
    def _producer(self) -> InnerProducer:
        assert self._inner is not None, "take_over comes first"
        return self._inner

    def _do(self, call: Callable[[], Any], wanted: str) -> Any:
        try:
            return call()
        except kafka.errors.KafkaError as error:
            self._error = self._error or self._refusal(error, wanted)
            raise self._error from error

    def _refusal(self, error: Exception, wanted: str) -> ChangefeedError:
        """Our error for kafka-python's ``error``, or for the one that broke the transaction before it."""
        cause = (self._inner and self._inner.error) or error
        bootstrap = self._connection.bootstrap
        return refused_to_write(cause, bootstrap, f"{wanted} (transactional id {self.name!r})")
