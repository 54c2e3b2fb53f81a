"""Settings for publishing: sizes and times of transactions and batches. Pipelines have the same defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from changefeed.errors import SettingsError

LEVELS = {"lz4": range(-64, 17), "zstd": range(-64, 23), "gzip": range(1, 10)}
"""The levels of the codecs. Below 1 a lower level is faster."""


@dataclass(frozen=True)
class PublishSettings:
    """Settings for publishing.

    - ``transaction_rows``, ``transaction_seconds``: a transaction commits after this many records or seconds, whichever
      comes first. With larger values transactions cost less, and consumers wait longer.
    - ``transaction_timeout_seconds``: the broker aborts a transaction whose producer hangs for this time
      (transaction.timeout.ms). By default the broker allows at most 15 minutes.
    - ``queue_bytes``: limit of the queued batches of one task.
    - ``batch_bytes``: limit of the keys, values and headers of a batch before compression.
    - ``compression_level``: None for the codec's default.
    - ``timestamps``: a record has the time of the row's event, or of publishing.

    Raises SettingsError for values that contradict each other.
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
            raise SettingsError(f"transaction_rows is {self.transaction_rows}: expected at least 1")
        if not 0 < self.transaction_seconds < self.transaction_timeout_seconds:
            raise SettingsError(
                f"transaction_seconds is {self.transaction_seconds:g}: expected more than 0 and less than "
                f"transaction_timeout_seconds, {self.transaction_timeout_seconds:g}, as the broker aborts a "
                "transaction that takes longer"
            )
        levels = LEVELS.get(self.compression, range(0))
        if self.compression_level is not None and self.compression_level not in levels:
            expected = f"expected {levels[0]} to {levels[-1]}" if levels else "it has no levels"
            raise SettingsError(
                f"compression_level is {self.compression_level} and compression is {self.compression!r}: {expected}"
            )
