"""Writes single records to one partition, without a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import kafka.errors

from changefeed.errors import ChangefeedError
from changefeed.kafka.client_internals import end, plain_producer, producer_is_well
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.refusal import write_error
from changefeed.kafka.topics import partition_counts
from changefeed.kept_clients import kept_client

_LARGEST_REQUEST = 100_000_000
"""By default brokers accept no larger request (socket.request.max.bytes). The topic limits the size of records."""
_CLOSE_SECONDS = 1.0


class _Client:
    """An open producer of single records to ``topic``."""

    def __init__(self, connection: KafkaConnection, topic: str, compression: str | None) -> None:
        milliseconds = int(connection.timeout_seconds * 1000)
        self.producer = plain_producer(
            {
                **connection.kafka_python(),
                "acks": "all",
                "enable_idempotence": False,
                "max_in_flight_requests_per_connection": 1,
                "delivery_timeout_ms": milliseconds,
                "request_timeout_ms": milliseconds,
                "max_block_ms": milliseconds,
                "max_request_size": _LARGEST_REQUEST,
                "compression_type": compression,
                "allow_auto_create_topics": False,
            },
            topic,
        )

    def is_well(self) -> bool:
        """Whether it can be kept; see `kept_clients`."""
        return producer_is_well(self.producer)

    def close(self) -> None:
        """Close the connections."""
        end(self.producer, _CLOSE_SECONDS)


class RecordWriter:
    """Writes records to partition 0 of ``topic``, in order; a context manager. Threads may share it.

    When `write` returns, each record is in Kafka, on all in-sync replicas. A record may be written twice, so its
    readers must accept duplicates: the producer is not idempotent, because that would cost each writer another round
    trip.

    Raises BrokerUnavailableError if no broker answers within the connection's timeout, SettingsError, TopicError.
    """

    def __init__(self, connection: KafkaConnection, topic: str, *, compression: str | None = None) -> None:
        self._connection, self._topic = connection, topic
        self._error: BaseException | None = None
        self._opened = ExitStack()
        with connection.kafka_python_errors():
            client = kept_client(connection, (topic, compression), lambda: _Client(connection, topic, compression))
            self._producer = self._opened.enter_context(client).producer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, or keep them for the next writer (`kept_clients`)."""
        error = self._error  # a producer with undelivered records is not kept
        self._opened.__exit__(type(error) if error else None, error, None)

    def write(self, records: Mapping[bytes, bytes | None], purpose: str) -> int:
        """Write ``records``, which replace records with the same keys; return the offset of the last one.

        ``purpose`` ("to keep ...") begins the messages of errors. Raises BadRecordError for a record larger than the
        topic accepts. After an error it is unknown which records were written.
        """
        offset = -1
        try:
            keys, topic = self._connection.log_keys, self._topic
            sent = [
                self._producer.send(topic, value, key, keys.headers(topic, key, value), partition=0)
                for key, value in records.items()
            ]
            for future in sent:
                offset = future.get(self._connection.timeout_seconds + 1).offset
        except BaseException as error:
            self._error = error
            if isinstance(error, kafka.errors.KafkaError):
                raise self._write_error(error, purpose) from error
            raise
        return offset

    def _write_error(self, error: kafka.errors.KafkaError, purpose: str) -> ChangefeedError:
        reason: Any = error
        if isinstance(error, kafka.errors.KafkaTimeoutError):  # it also waits for a topic that does not exist
            try:
                if not partition_counts(self._connection, [self._topic]):
                    reason = kafka.errors.UnknownTopicOrPartitionError(self._topic)
            except ChangefeedError as other:
                return other
        return write_error(reason, self._connection.bootstrap, purpose)
