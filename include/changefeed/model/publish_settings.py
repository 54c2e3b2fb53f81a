"""How rows go into Kafka: sizes and times of transactions and batches. The defaults are a pipeline's, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from changefeed.errors import SettingsError

LEVELS = {"lz4": range(-64, 17), "zstd": range(-64, 23), "gzip": range(1, 10)}
"""The levels of the codecs that have any. Below 1 they are the faster the lower they are."""


@dataclass(frozen=True)
class PublishSettings:
    """How rows go into Kafka.

    A transaction closes after ``transaction_rows`` records or ``transaction_seconds``, whichever comes first: more
    of either costs less and lets readers wait longer. ``transaction_timeout_seconds`` is when the broker aborts a
    transaction whose producer stands still (transaction.timeout.ms; the broker allows 15 minutes by default).
    ``queue_bytes`` bounds the batches that one task holds for sending. A batch has up to ``batch_bytes`` of keys,
    values and headers before it is compressed, at ``compression_level`` or the codec's own default. A record's time is
    that of the row's event, or of publishing, as ``timestamps`` says. Raises SettingsError for values that contradict
    each other.
    """

    transaction_rows: int = 200_000
    transaction_seconds: float = 20.0
    transaction_timeout_seconds: float = 120.0
    compression: str = "lz4"
    queue_bytes: int = 64 << 20
    compression_level: int | None = None
    batch_bytes: int = 3 << 20
    timestamps: Literal["event", "publish"] = "event"

    def __post_init__(self) -> None:
        if self.transaction_rows < 1:
            raise SettingsError(f"transaction_rows is {self.transaction_rows}: wanted at least 1")
        if not 0 < self.transaction_seconds < self.transaction_timeout_seconds:
            raise SettingsError(
                f"transaction_seconds is {self.transaction_seconds:g}: wanted more than 0 and less than "
                f"transaction_timeout_seconds, {self.transaction_timeout_seconds:g}, as the broker aborts a "
                "transaction that takes longer"
            )
        levels = LEVELS.get(self.compression, range(0))
        if self.compression_level is not None and self.compression_level not in levels:
            wanted = f"wanted {levels[0]} to {levels[-1]}" if levels else "it has no levels"
            raise SettingsError(
                f"compression_level is {self.compression_level} and compression is {self.compression!r}: {wanted}"
            )
