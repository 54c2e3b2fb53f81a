"""Where a pipeline stands, and how much time that leaves: its status, lag and retention headroom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from changefeed.checkpoint import CheckpointStore
from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.upkeep.retention import UNKNOWN, Retention, retention_or_none
from changefeed.upkeep.status import Status, status


@dataclass(frozen=True)
class Position:
    """A pipeline's status with its lag and headroom in seconds, which are None where they cannot be read."""

    status: Status
    retention: Retention

    def to_json(self) -> dict[str, Any]:
        """The status, `lag_seconds` and what is known of retention, as the REST API answers them."""
        return {
            **self.status.to_json(),
            "lag_seconds": self.retention.lag_seconds,
            "retention_headroom_seconds": self.retention.headroom_seconds,
            "retention_unlimited": self.retention.unlimited,
        }


def position(endpoints: Endpoints, store: CheckpointStore) -> Position:
    """Read where the pipeline stands; what is wrong is the status's ``error``, and no exception."""
    stands = status(endpoints, store)
    if stands.error or not stands.checkpoint:
        return Position(stands, UNKNOWN)
    return Position(stands, retention_or_none(endpoints, BinlogCoordinates.parse(stands.checkpoint)))
