"""A writer for the logs of a pipeline; after a process has lost its lease, the writes of its writer fail."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from changefeed.errors import FencedError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.transactions import Transactions
from changefeed.model import fault_point
from changefeed.model.publish_settings import PublishSettings
from changefeed.records.compression import CODECS
from changefeed.records.record_batch import Record, Times, encode_records, record_batch


def driver_id(identity: str) -> str:
    """The transactional id under which the holder of the lease of ``identity`` writes the logs."""
    return f"changefeed.{identity}.driver"


class FencedWriter:
    """Writes records to partition 0 of the logs of ``identity``, each `write` in a Kafka transaction of its own.

    Call `take_over` first: from then on no earlier writer of this identity can write, in any process. Then read the
    logs: as long as `write` succeeds, no other writer has changed them since. If another writer takes over, `write`
    raises FencedError, and none of the records is visible.

    ``topics`` are the topics that it will write to; missing topics are allowed. The broker aborts a transaction after
    ``transaction_seconds``, or sooner if the connection's timeout is shorter. Any error leaves the writer unusable. All
    methods but `close` raise FencedError, TopicError, BadRecordError, SettingsError or BrokerUnavailableError.
    """

    def __init__(
        self, connection: KafkaConnection, identity: str, topics: Sequence[str], transaction_seconds: float
    ) -> None:
        seconds = min(connection.timeout_seconds, transaction_seconds)
        settings = PublishSettings(transaction_seconds=seconds / 2, transaction_timeout_seconds=seconds)
        self._identity, self._keys = identity, connection.log_keys
        self._transactions = Transactions(connection, driver_id(identity), settings, topics)

    def take_over(self) -> None:
        """Fence earlier writers and abort their open transactions."""
        self._transactions.take_over()

    def write(
        self,
        topic: str,
        records: Mapping[bytes, bytes | None],
        purpose: str,
        *,
        compression: str = "none",
        stage: str | None = None,
    ) -> None:
        """Write ``records`` to ``topic``, all of them or none; they replace records with the same keys.

        ``purpose`` ("to ...") begins the message of an error. With a ``compression`` they are one batch.
        ``stage`` names the fault point before the commit, for tests.
        """
        fault_point.reach("before_log_write")
        transactions = self._transactions
        try:
            transactions.open()
            if compression == "none":
                for key, value in records.items():
                    headers = self._keys.headers(topic, key, value)
                    transactions.send(topic, 0, value, key, headers, f"{topic!r}, {purpose}")
            else:
                batch = self._batch(topic, records, compression)
                transactions.send_batch(topic, 0, batch, len(records), f"{topic!r}, {purpose}")
            if stage is not None:
                fault_point.reach(stage)
            transactions.commit(purpose)
        except FencedError as error:
            raise FencedError(
                f"{purpose}: another process took over {self._identity!r}, because this one did not renew its lease "
                "for kafka.lease_seconds, or paused for so long that the brokers aborted its transaction. This process "
                "stops and writes nothing more. The next run finishes its work or begins it again."
            ) from error

    @property
    def is_usable(self) -> bool:
        """Whether no `write` has failed."""
        return self._transactions.is_usable

    def close(self) -> None:
        """Abort the open transaction and close the connections. Never raises."""
        self._transactions.close()

    def _batch(self, topic: str, records: Mapping[bytes, bytes | None], compression: str) -> bytes:
        now_ms, codec = int(time.time() * 1000), CODECS[compression]
        signed = [Record(now_ms, key, value, self._keys.headers(topic, key, value)) for key, value in records.items()]
        return record_batch(codec.compress(encode_records(signed), None), len(records), codec, Times(now_ms, now_ms))
