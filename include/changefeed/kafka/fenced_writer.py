"""Writing the logs of a pipeline so that a process that lost its lease writes nothing more."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from changefeed.errors import FencedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.transactions import Transactions
from changefeed.model import fault_point
from changefeed.model.publish_settings import PublishSettings
from changefeed.records.compression import CODECS
from changefeed.records.record_batch import Record, Times, record_batch, written


def driver_id(identity: str) -> str:
    """The transactional id under which whoever holds the lease of ``identity`` writes the logs."""
    return f"changefeed.{identity}.driver"


class FencedWriter:
    """Writes records to partition 0 of the logs of ``identity``, each `write` in a Kafka transaction of its own.

    `take_over` comes first: from then on no earlier writer of this identity, in whatever process, writes anything.
    What is read after it is so until this writer writes, or another one takes over, which this one then notices: it
    raises FencedError, and none of the records is visible.

    ``topics`` are those that it will write to, as far as they are there. The broker aborts a transaction after
    ``transaction_seconds``, or sooner where the connection waits less long. Any error leaves the writer unusable.
    All methods but `close` raise FencedError, TopicError, BadRecordError, SettingsError or BrokerUnavailableError.
    """

    def __init__(
        self, connection: KafkaConnection, identity: str, topics: Sequence[str], transaction_seconds: float
    ) -> None:
        seconds = min(connection.timeout_seconds, transaction_seconds)
        settings = PublishSettings(transaction_seconds=seconds / 2, transaction_timeout_seconds=seconds)
        self._identity, self._keys = identity, connection.log_keys
        self._transactions = Transactions(connection, driver_id(identity), settings, topics)

    def take_over(self) -> None:
        """Fence earlier writers and abort what they left open."""
        self._transactions.take_over()

    def write(
        self, topic: str, records: Mapping[bytes, bytes | None], wanted: str, *, compression: str = "none"
    ) -> None:
        """Write ``records`` to ``topic``, of which the same keys are forgotten: all of them or none.

        ``wanted`` ("to ...") begins the message of an error. With a ``compression`` they are one batch.
        """
        fault_point.reached("before_log_write")
        transactions = self._transactions
        try:
            transactions.open()
            if compression == "none":
                for key, value in records.items():
                    headers = self._keys.headers(topic, key, value)
                    transactions.send(topic, 0, value, key, headers, f"{topic!r}, {wanted}")
            else:
                batch = self._batch(topic, records, compression)
                transactions.send_batch(topic, 0, batch, len(records), f"{topic!r}, {wanted}")
            transactions.commit(wanted)
        except FencedError as error:
            raise FencedError(
                f"{wanted}: another process took over {self._identity!r}, as this one gave no sign of life for longer "
                "than kafka.lease_seconds, or it stood still for so long that the brokers ended its transaction. This "
                "process stops and writes nothing more; what it had begun the next run finishes, or begins again."
            ) from error

    def close(self) -> None:
        """Abort what is open, and end the connections. Never raises."""
        self._transactions.close()

    def _batch(self, topic: str, records: Mapping[bytes, bytes | None], compression: str) -> bytes:
        now_ms, codec = int(time.time() * 1000), CODECS[compression]
        signed = [Record(now_ms, key, value, self._keys.headers(topic, key, value)) for key, value in records.items()]
        return record_batch(codec.compress(written(signed), None), len(records), codec, Times(now_ms, now_ms))
