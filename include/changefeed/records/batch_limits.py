"""What a topic takes, as far as batches for it are made by that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLimits:
    """What a topic takes: batches of up to ``largest_bytes``, and records as old as ``oldest_seconds`` since 1970.

    ``compression`` is that which the broker gives to all of its batches; None where it leaves them as they come.
    """

    largest_bytes: int
    oldest_seconds: int = 0
    compression: str | None = None
