"""How rows go into Kafka: sizes and times of transactions and batches. The defaults are a pipeline's, too."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import SettingsError


@dataclass(frozen=True)
class PublishSettings:
    """How rows go into Kafka.

    A transaction closes after ``transaction_rows`` records or ``transaction_seconds``, whichever comes first: more
    of either costs less and lets readers wait longer. ``transaction_timeout_seconds`` is when the broker aborts a
    transaction whose producer stands still (transaction.timeout.ms; the broker allows 15 minutes by default).
    ``queue_bytes`` bounds the records that one task holds for sending. Raises SettingsError for values that
    contradict each other.
    """

    transaction_rows: int = 200_000
    transaction_seconds: float = 20.0
    transaction_timeout_seconds: float = 120.0
    compression: str = "lz4"
    queue_bytes: int = 64 << 20
    linger_ms: int = 20
    batch_bytes: int = 1_000_000

    def __post_init__(self) -> None:
        if self.transaction_rows < 1:
            raise SettingsError(f"transaction_rows is {self.transaction_rows}: wanted at least 1")
        if not 0 < self.transaction_seconds < self.transaction_timeout_seconds:
            raise SettingsError(
                f"transaction_seconds is {self.transaction_seconds:g}: wanted more than 0 and less than "
                f"transaction_timeout_seconds, {self.transaction_timeout_seconds:g}, as the broker aborts a "
                "transaction that takes longer"
            )
