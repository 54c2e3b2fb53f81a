"""Handover: the continuous run that began last publishes, and an older one ends with success.

Airflow starts the job of the next run while the last one still publishes. When the new job is ready, with Spark and its
workers started, it writes a record to the commit log. The older job reads that record with its next plan, and ends. So
changes wait for the rest of a window, and not for the start of a job.

The order of runs is that of their records in the commit log; no clocks are compared. No window depends on the record:
two runs that publish side by side exclude each other by the lease of each window, as all runs do.
"""

from __future__ import annotations

import logging
import uuid

from changefeed.errors import ChangefeedError
from changefeed.kafka.commit_log.records import ContinuousRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.windows import last_stable_state

_log = logging.getLogger(__name__)

MOST_WAIT_SECONDS = 90.0
"""How long a run goes on after its time until the next one has taken over. Airflow and Spark start a job in 10 to 20
seconds; on a cluster that is busy it may take longer."""
_ONE_RUN = (None, "@once")
"""Schedules without a next run."""


class HandedOverError(Exception):
    """Another run has taken over: this one ends, with success."""


class Handover:
    """One continuous run's part in the handover, from the run before it and to the one after it."""

    def __init__(self, connections: PipelineConnections) -> None:
        self._connections, self._run = connections, uuid.uuid4().hex
        self.has_taken_over = False

    @property
    def wait_seconds(self) -> float:
        """How long the run goes on after its time, if no other takes over."""
        return 0.0 if self._connections.pipeline.schedule in _ONE_RUN else MOST_WAIT_SECONDS

    def take_over(self) -> None:
        """From now on this run publishes. Waits for the window that another run publishes now.

        Raises PipelineBusyError if that takes longer than `kafka.lease_seconds`, and what a lease raises.
        """
        seconds = self._connections.pipeline.kafka.lease_seconds
        with self._connections.lease(brief=True, timeout_seconds=seconds) as lease:
            lease.log().keep(ContinuousRecord(self._run))
        self.has_taken_over = True

    def check(self, continuous_run: str) -> None:
        """Raise HandedOverError if ``continuous_run``, the one that the commit log has, is another than this one."""
        if self.has_taken_over and continuous_run not in ("", self._run):
            raise HandedOverError

    def is_over(self) -> bool:
        """Whether another run has taken over; False also if the commit log cannot be read now."""
        try:
            self.check(last_stable_state(self._connections).continuous_run)
        except HandedOverError:
            return True
        except ChangefeedError as error:
            _log.warning("whether another run has taken over is not known: %s", error)
        return False
