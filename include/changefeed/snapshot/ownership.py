"""Which process runs a snapshot, and when it may publish: a round and a window are never published at once."""

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
    """No other run of the pipeline can publish: ``attempt`` is its newest.

    ``pipeline_log`` and ``log``, the snapshot's own, are to be written with; ``state`` and ``own`` are what they said
    when the claim began.
    """

    attempt: str
    pipeline_log: OwnedLog
    log: OwnedLog
    state: CommitLogState
    own: CommitLogState


class Ownership:
    """That this process runs snapshot ``identity``, as ``attempt``; ``tasks`` is how many tasks may publish at once.

    ``is_paused`` says whether somebody had paused the snapshot when its log was read last.
    """

    def __init__(self, connections: PipelineConnections, identity: str, attempt: str, tasks: int) -> None:
        self._connections, self._identity, self._attempt, self._tasks = connections, identity, attempt, tasks
        self.log = connections.commit_log(identity)
        self.is_paused = False

    def check(self, own: CommitLogState) -> None:
        """Raises FencedError where another process runs the snapshot since, by its log, which is at ``own``."""
        if own.attempt != self._attempt:
            raise FencedError(f"another process runs snapshot {self._identity!r} since; this one stops")
        self.is_paused = bool(own.of(PauseRecord))

    def read(self) -> None:
        """Read the snapshot's log, and `check`."""
        self.check(self.log.read())

    @contextmanager
    def claim(self, patience_seconds: float, *, takes_over: bool = False) -> Iterator[Claim]:
        """Claim the pipeline for the block, waiting so long; no earlier publisher of it can publish any more.

        With ``takes_over`` this process runs the snapshot from then on. Raises PipelineBusyError; CheckpointError where
        the pipeline was renamed; FencedError as `check`.
        """
        connections = self._connections
        with connections.lease(brief=True, patience_seconds=patience_seconds) as lease:
            attempt = fence(lease, self._tasks)
            pipeline_log, log = lease.log(), lease.log(self._identity)
            if takes_over:
                log.keep(AttemptRecord(self._attempt))
            state, own = pipeline_log.read_beside(self._identity)
            check_not_renamed(connections.pipeline.name, state)
            self.check(own)
            yield Claim(attempt, pipeline_log, log, state, own)
