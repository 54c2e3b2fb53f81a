"""Ensures that one process runs a snapshot, and that it never publishes at the same time as a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from changefeed.errors import FencedError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.records import AttemptRecord
from changefeed.kafka.commit_log.snapshots import PauseRecord
from changefeed.kafka.fencing import fence
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.windows import check_not_renamed


@dataclass(frozen=True)
class Claim:
    """A claim of the pipeline. While it is held, no other run can publish.

    - ``attempt``: the newest attempt of the pipeline.
    - ``pipeline_log``: the pipeline's log, for writing; ``state`` is its state when the claim began.
    - ``log``: the snapshot's own log, for writing; ``own`` is its state when the claim began.
    """

    attempt: str
    pipeline_log: OwnedLog
    log: OwnedLog
    state: CommitLogState
    own: CommitLogState


class Ownership:
    """This process's ownership of snapshot ``identity``, as ``attempt``. At most ``tasks`` tasks publish at once.

    ``is_paused`` is true if the snapshot was paused when its log was last read.
    """

    def __init__(self, connections: PipelineConnections, identity: str, attempt: str, tasks: int) -> None:
        self._connections, self._identity, self._attempt, self._tasks = connections, identity, attempt, tasks
        self.log = connections.commit_log(identity)
        self.is_paused = False

    def check(self, own: CommitLogState) -> None:
        """Raises FencedError if another process has taken over the snapshot, according to its log's state ``own``."""
        if own.attempt != self._attempt:
            raise FencedError(f"another process has taken over snapshot {self._identity!r}; this one stops")
        self.is_paused = bool(own.of(PauseRecord))

    def read(self) -> None:
        """Read the snapshot's log, and `check` its state."""
        self.check(self.log.read())

    @contextmanager
    def claim(self, timeout_seconds: float, *, takes_over: bool = False) -> Iterator[Claim]:
        """A context that claims the pipeline, and fences earlier publishers. Waits at most ``timeout_seconds``.

        With ``takes_over``, this process takes over the snapshot. Raises PipelineBusyError after the timeout,
        CheckpointError if the pipeline was renamed, and FencedError as `check` does.
        """
        connections = self._connections
        with connections.lease(brief=True, timeout_seconds=timeout_seconds) as lease:
            attempt = fence(lease, self._tasks)
            pipeline_log, log = lease.log(), lease.log(self._identity)
            if takes_over:
                log.keep(AttemptRecord(self._attempt))
            state, own = pipeline_log.read_with(self._identity)
            check_not_renamed(connections.pipeline.name, state)
            self.check(own)
            yield Claim(attempt, pipeline_log, log, state, own)
