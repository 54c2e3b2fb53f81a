"""Handover: the continuous run that began last publishes, and an older one ends with success.

Airflow starts the job of the next run while the last one still publishes. When the new job is ready, with Spark and its
workers started, it writes a record to the commit log, under the lease. The older job reads the log with each plan and
before it begins a window, finds that record, and ends. So changes wait for the rest of a window, and not for the start
of a job; and after the record no older run begins a window.

`changefeed sign` writes such a record too, if the older run does not have the new key of the commit log. That run finds
it before it writes anything under the lease, and also if it cannot read the rest of the log any more.

The order of runs is that of their leases in the commit log; no clocks are compared. A plan may still find the record of
an earlier run, while a transaction is open in the log.
"""

from __future__ import annotations

import logging

from changefeed.errors import ChangefeedError
from changefeed.ingest.cut import cut
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import TakeoverRecord
from changefeed.kafka.lease import Lease
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import Plan, plan
from changefeed.settings.requests.run import RunBounds

_log = logging.getLogger(__name__)

MOST_WAIT_SECONDS = 90.0
"""How long a run goes on after its time until the next one has taken over. Airflow and Spark start a job in 10 to 20
seconds; on a cluster that is busy it may take longer."""
_ONE_RUN = (None, "@once")
"""Schedules without a next run."""


class HandedOverError(Exception):
    """Another run has taken over: this one ends, with success."""


class NoHandover:
    """The part of a run that takes over from no other, and ends when its own time is over."""

    @property
    def wait_seconds(self) -> float:
        """How long the run goes on after its time, if no other takes over."""
        return 0.0

    @property
    def has_taken_over(self) -> bool:
        """Whether `take_over` has succeeded."""
        return True

    def take_over(self) -> None:
        """From now on this run publishes, and no older one begins a window."""

    def check(self, found: CommitLogState | Lease | Plan) -> None:
        """Raise HandedOverError if a later run has taken over, by what was ``found`` in the commit log."""

    def is_over(self) -> bool:
        """Whether another run has taken over; False also if the commit log cannot be read now."""
        return False


class Handover(NoHandover):
    """The part of a continuous run that takes over from the one before it, and hands over to the next one."""

    def __init__(self, connections: PipelineConnections, *, waits: bool = True) -> None:
        """Without ``waits`` it ends when its time is over, also if no other run has taken over."""
        self._connections, self._waits = connections, waits
        self._number: int | None = None

    @property
    def wait_seconds(self) -> float:
        """See `NoHandover`."""
        has_next = self._waits and self._connections.pipeline.schedule not in _ONE_RUN
        return MOST_WAIT_SECONDS if has_next else 0.0

    @property
    def has_taken_over(self) -> bool:
        """See `NoHandover`."""
        return self._number is not None

    def take_over(self) -> None:
        """See `NoHandover`. Waits for the window that another run publishes now.

        Raises PipelineBusyError if that takes longer than `kafka.lease_seconds`, and what a lease raises.
        """
        with _lease_of_takeover(self._connections) as lease:
            lease.log().keep(TakeoverRecord(lease.number))
        self._number = lease.number

    def check(self, found: CommitLogState | Lease | Plan) -> None:
        """See `NoHandover`."""
        if self._number is None or found.last_takeover <= self._number:
            return
        if isinstance(found, Lease) and self._connections.commit_log().last_takeover() <= self._number:
            return
        raise HandedOverError

    def is_over(self) -> bool:
        """See `NoHandover`."""
        if self._number is None:
            return False
        try:
            return self._connections.commit_log().last_takeover() > self._number
        except ChangefeedError as error:
            _log.warning("whether another run has taken over is not known: %s", error)
        return False


def plan_after_takeover(
    connections: PipelineConnections, planned: Plan, bounds: RunBounds, store: CheckpointStore
) -> Plan | None:
    """The plan of a run that ends at a position, if ``bounds`` have one: it takes over from a continuous run, which
    would publish what is frozen here, and is planned again; else ``planned``. None if the other run has passed the
    position since the plan.

    The other run goes on if a bound is refused or passed, or if there are no new changes before it. Raises what `cut`,
    `Handover.take_over` and `plan` raise.
    """
    if connections.pipeline.windows is None or not bounds.stops_at_a_position or planned.is_empty:
        return planned
    if cut(connections, planned, bounds).windows == planned.unfinished:
        return planned
    with _lease_of_takeover(connections) as lease:  # nothing is published between this plan and the takeover
        latest = plan(connections, store, lease=lease)
        if bounds.until and BinlogCoordinates.parse(bounds.until) <= latest.start:
            return None
        if cut(connections, latest, bounds).windows != latest.unfinished:
            lease.log().keep(TakeoverRecord(lease.number))
    return latest


def _lease_of_takeover(connections: PipelineConnections) -> Lease:
    return connections.lease(brief=True, timeout_seconds=connections.pipeline.kafka.lease_seconds)


ALONE = NoHandover()
