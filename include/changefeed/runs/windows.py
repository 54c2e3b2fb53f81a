"""The last windows of a pipeline, as its commit log has them sealed."""

from __future__ import annotations

from changefeed.endpoints.endpoints import Endpoints
from changefeed.kafka.commit_log import CommitLogState
from changefeed.manifest import Manifest


def commit_log_state(endpoints: Endpoints, identity: str | None = None) -> CommitLogState:
    """What the commit log says; empty before the pipeline's first run. Raises BrokerUnavailableError."""
    log = endpoints.commit_log(identity)
    return log.read() if log.exists() else CommitLogState()


def windows(endpoints: Endpoints, limit: int = 20) -> list[Manifest]:
    """Manifests of the last ``limit`` windows, latest first. Raises BrokerUnavailableError."""
    seals = commit_log_state(endpoints).seals
    return [seals[number] for number in sorted(seals, reverse=True)[:limit]]
