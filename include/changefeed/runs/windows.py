"""What a pipeline's commit log says of its windows: which were sealed last, and whether a seek went over a run's."""

from __future__ import annotations

from changefeed.endpoints.endpoints import Endpoints
from changefeed.kafka.commit_log import CommitLogState
from changefeed.manifest import Manifest
from changefeed.runs.planned_run import PlannedRun
from changefeed.seek import SeekRecord

_OPEN_SECONDS = 1.0


def commit_log_state(
    endpoints: Endpoints, identity: str | None = None, *, open_seconds: float | None = None
) -> CommitLogState:
    """What the commit log says (see `CommitLog.read`); empty before the first run. Raises BrokerUnavailableError."""
    log = endpoints.commit_log(identity)
    return log.read(open_seconds=open_seconds) if log.exists() else CommitLogState()


def settled_state(endpoints: Endpoints) -> CommitLogState:
    """What the commit log says before a transaction that stays open, as that of a run that is alive or was killed.

    For who must not wait for that run, and is checked again behind the fence. Raises as `commit_log_state`.
    """
    return commit_log_state(endpoints, open_seconds=_OPEN_SECONDS)


def windows(endpoints: Endpoints, limit: int = 20) -> list[Manifest]:
    """Manifests of the last ``limit`` windows, latest first. Raises BrokerUnavailableError."""
    seals = commit_log_state(endpoints).seals
    return [seals[number] for number in sorted(seals, reverse=True)[:limit]]


def seek_over(endpoints: Endpoints, run: PlannedRun) -> SeekRecord | None:
    """The seek that moved the checkpoint away from where ``run`` begins, after that was planned; None without one.

    Nothing of such a run may be published or committed any more. Raises BrokerUnavailableError.
    """
    begin = str(run.expected.coordinates)
    seeks = commit_log_state(endpoints).seeks.values()
    return next((seek for seek in seeks if seek.number > run.expected.window and seek.before == begin), None)
