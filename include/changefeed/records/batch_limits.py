"""The limits of a topic that affect batches."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a topic.

    - ``largest_bytes``: the largest size of a batch
    - ``oldest_seconds``: the earliest timestamp of a record, in seconds since 1970
    - ``compression``: the compression that the broker sets for the topic; None if the producer chooses it
    """

    largest_bytes: int
    oldest_seconds: int = 0
    compression: str | None = None
