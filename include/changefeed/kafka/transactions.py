"""The Kafka transactions of one task, one after the other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import kafka.errors

from changefeed.errors import ChangefeedError
from changefeed.kafka.client_internals import Done, FinishedRecords, InnerProducer
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.refusal import write_error
from changefeed.kept_clients import kept_client
from changefeed.model.publish_settings import PublishSettings

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
_SILENCE_MS = 30_000
"""How long a broker may be silent before its connection is closed and the request sent again."""
_RETRY_MS = 20
_RECONNECT_MS = 1000
_ABORT_SECONDS = 3.0


@dataclass(slots=True)
class Delivery:
    """The result of sending a batch or a record; both fields are None until Kafka has accepted or refused it.

    ``offset`` is the offset of the first record.
    """

    purpose: str
    offset: int | None = None
    error: ChangefeedError | None = None


class _NotKeptError(Exception):
    """Says that a producer is closed, and not kept."""


class Transactions:
    """A transactional producer under the transactional id ``name``; nothing is connected before `take_over`. A process
    that keeps its clients keeps the connections of the producer for the next one (`kept_clients`).

    ``topics`` are the topics that it will write to, including the commit log. After any error it is unusable: `close`
    it, and run the task again. All methods that write raise FencedError, TopicError, BadRecordError, SettingsError, or
    BrokerUnavailableError if no broker answers within the transaction's timeout.
    """

    def __init__(
        self, connection: KafkaConnection, name: str, settings: PublishSettings, topics: Iterable[str]
    ) -> None:
        self._connection, self.name, self._topics = connection, name, list(topics)
        self._queue_bytes = settings.queue_bytes
        self._timeout_seconds = settings.transaction_timeout_seconds
        self._inner: InnerProducer | None = None
        self._open = ExitStack()
        self._changed = threading.Condition()
        self._under_way, self._under_way_bytes = 0, 0
        self._error: ChangefeedError | None = None
        self.is_open = self._is_aborted = False
        self._opened_at = 0.0

    def _settings(self) -> dict[str, Any]:
        theirs = self._connection.kafka_python()
        silence_ms = int(self._connection.options.get("socket.timeout.ms", _SILENCE_MS))
        milliseconds = int(self._timeout_seconds * 1000)
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
        """Fence earlier producers of the same name, and abort their open transaction. Call it once, before all other
        methods."""
        settings, topics = self._settings(), self._topics
        purpose = (self.name, settings["transaction_timeout_ms"])
        with self._connection.kafka_python_errors():
            kept = kept_client(self._connection, purpose, lambda: InnerProducer(settings, topics), only_last=True)
            self._inner = self._open.enter_context(kept)
        self._inner.ask_for(topics)
        self._do(self._inner.take_over, "to take over")

    def open(self) -> None:
        """Begin a transaction if none is open."""
        if not self.is_open:
            self._do(self._producer.begin, "to begin a transaction")
            self.is_open, self._opened_at = True, time.monotonic()

    @property
    def is_usable(self) -> bool:
        """Whether it is between two transactions, without an error."""
        return self._error is None and not self.is_open

    @property
    def age_seconds(self) -> float:
        """The age of the open transaction in seconds; 0 without one."""
        return time.monotonic() - self._opened_at if self.is_open else 0.0

    def send_batch(
        self, topic: str, partition: int, batch: bytes | bytearray, messages: int, what: str = ""
    ) -> Delivery:
        """Queue a finished record batch (magic 2) of ``messages`` records, waiting while the queue is full.

        Producer id, epoch, base sequence, transactional bit and CRC-32C are filled in when it is sent; until then the
        caller must not change ``batch``. ``what`` names it in error messages. Raises ValueError if ``batch`` is not
        such a batch.
        """
        delivery = self._delivery(topic, partition, what)
        records = FinishedRecords(batch, messages)
        self._make_room(len(batch), delivery.purpose)
        done = self._under_way_of(delivery, len(batch))
        self._do(lambda: self._producer.send_batch(topic, partition, records, done), delivery.purpose)
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
        """Queue one record, with a key or a value or both, waiting while the queue is full."""
        delivery = self._delivery(topic, partition, what)
        size_bytes = len(value or b"") + len(key or b"")
        self._make_room(size_bytes, delivery.purpose)
        done = self._under_way_of(delivery, size_bytes)
        self._do(lambda: self._producer.send(topic, partition, value, key, headers, done), delivery.purpose)
        return delivery

    def _delivery(self, topic: str, partition: int, what: str) -> Delivery:
        return Delivery(f"to publish to {what or f'partition {partition} of {topic!r}'}")

    def _under_way_of(self, delivery: Delivery, size_bytes: int) -> Done:
        """Count ``delivery`` as under way until the returned function is called."""
        with self._changed:
            self._under_way += 1
            self._under_way_bytes += size_bytes

        def done(first: int | None, refusal: Exception | None) -> None:  # in the sender's thread
            error = None if refusal is None else self._refusal(refusal, delivery.purpose)
            with self._changed:
                self._under_way -= 1
                self._under_way_bytes -= size_bytes
                delivery.offset, delivery.error = first, error
                self._error = self._error or error
                self._changed.notify_all()

        return done

    def _make_room(self, size_bytes: int, purpose: str) -> None:
        self._wait(
            lambda: not self._under_way or self._under_way_bytes + size_bytes <= self._queue_bytes,
            self._timeout_seconds,
            purpose,
        )

    def flush(self, while_waiting: Callable[[], None]) -> None:
        """Wait until Kafka has accepted each record of the transaction; raise an error if it refuses one.

        ``while_waiting`` is called every few seconds. It should raise an error if a topic was removed: kafka-python
        waits for a removed topic as it waits for a broker that is down.
        """
        deadline = time.monotonic() + self._timeout_seconds
        while not self._ready(lambda: not self._under_way, _LOOK_SECONDS):
            while_waiting()
            if time.monotonic() > deadline:
                raise self._refusal(kafka.errors.KafkaTimeoutError("time-out"), "to flush")

    def _wait(self, ready: Callable[[], bool], seconds: float, purpose: str) -> None:
        if not self._ready(ready, seconds):
            raise self._refusal(kafka.errors.KafkaTimeoutError("time-out"), purpose)

    def _ready(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Whether ``ready`` returns true within ``seconds``; raises an error if Kafka has refused a batch or a
        record."""
        with self._changed:
            is_ready = self._changed.wait_for(lambda: self._error is not None or ready(), seconds)
        if self._error is not None:
            raise self._error
        return is_ready

    def commit(self, what: str) -> None:
        """Commit the open transaction, which makes it visible; ``what`` describes its content for the error message.

        It waits for all queued records, and raises an error without a commit if Kafka has refused one. After an error
        in the commit itself it is unknown whether the transaction is visible; the commit log shows it.
        """
        purpose = f"to commit {what}"
        deadline = time.monotonic() + self._timeout_seconds
        self._wait(lambda: not self._under_way, self._timeout_seconds, purpose)
        self._do(lambda: self._producer.commit(max(0.1, deadline - time.monotonic())), purpose)
        self.is_open = False

    def abort(self) -> None:
        """Abort the open transaction, if there is one. Never raises an error: if this fails, the broker aborts it
        later."""
        if not self.is_open:
            return
        self.is_open, self._is_aborted = False, True
        before = self._error
        try:
            self._producer.abort(_ABORT_SECONDS)
        except kafka.errors.KafkaError as error:
            self._error = self._error or self._refusal(error, "to abort")
            _log.warning("transaction of %r was left to time out: %s", self.name, error)
        else:
            self._error = before  # not the error of the queued records that were dropped

    def close(self) -> None:
        """Abort the open transaction, and close or keep the connections. Never raises an error."""
        self.abort()
        inner, self._inner = self._inner, None
        with suppress(_NotKeptError), self._open:
            if self._is_aborted or self._error is not None:
                raise _NotKeptError
            if inner is not None:
                inner.rest()

    @property
    def _producer(self) -> InnerProducer:
        assert self._inner is not None, "take_over comes first"
        return self._inner

    def _do(self, call: Callable[[], Any], purpose: str) -> Any:
        try:
            return call()
        except kafka.errors.KafkaError as error:
            self._error = self._error or self._refusal(error, purpose)
            raise self._error from error

    def _refusal(self, error: Exception, purpose: str) -> ChangefeedError:
        """changefeed's error for kafka-python's ``error``, or for an earlier error that broke the transaction."""
        cause = (self._inner and self._inner.error) or error
        bootstrap = self._connection.bootstrap
        return write_error(cause, bootstrap, f"{purpose} (transactional id {self.name!r})")
