"""Single records into one partition, without a transaction: how the logs of a pipeline are written."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import kafka.errors

from changefeed.errors import ChangefeedError
from changefeed.kafka.client_internals import end, plain_producer
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.refusal import refused_to_write
from changefeed.kafka.topics import partition_counts

_LARGEST_REQUEST = 100_000_000
"""Kafka's brokers take no larger one by default (socket.request.max.bytes). What is too large, the topic says."""
_CLOSE_SECONDS = 1.0


class RecordWriter:
    """Writes records to partition 0 of ``topic``, in order; a context manager. Threads may share it.

    Each is in Kafka, on all replicas that are in sync, when `write` returns. The same record may be there twice: what
    is written must bear that. It is not idempotent, as that costs a round trip more for each writer.

    Raises BrokerUnavailableError when no broker answers in the connection's time, SettingsError, TopicError.
    """

    def __init__(self, connection: KafkaConnection, topic: str, *, compression: str | None = None) -> None:
        self._connection, self._topic = connection, topic
        milliseconds = int(connection.timeout_seconds * 1000)
        with connection.kafka_python_errors():
            self._producer = plain_producer(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        end(self._producer, _CLOSE_SECONDS)

    def write(self, records: Mapping[bytes, bytes | None], wanted: str) -> int:
        """Write ``records``, of which the same keys are forgotten; return the last one's offset.

        ``wanted`` ("to keep ...") begins the message of what is raised: BadRecordError too, for a record that is larger
        than the topic takes. After an error it is unknown which of them were written.
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
        except kafka.errors.KafkaError as error:
            raise self._refused(error, wanted) from error
        return offset

    def _refused(self, error: kafka.errors.KafkaError, wanted: str) -> ChangefeedError:
        said: Any = error
        if isinstance(error, kafka.errors.KafkaTimeoutError):  # it waits for a topic that is not there, too
            try:
                if not partition_counts(self._connection, [self._topic]):
                    said = kafka.errors.UnknownTopicOrPartitionError(self._topic)
            except ChangefeedError as other:
                return other
        return refused_to_write(said, self._connection.bootstrap, wanted)
