"""Moves the checkpoint of a continuous run while its windows are published, from a thread.

The job that publishes may have no access to the checkpoint store: it has none to Airflow's Variables. The commit log is
the truth in between, as after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from changefeed.errors import ChangefeedError
from changefeed.ingest.commit import commit_sealed
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.windows import last_stable_state
from changefeed.repeated import repeated

_log = logging.getLogger(__name__)

EVERY_SECONDS = 10.0


class CheckpointMover:
    """A context manager that commits sealed windows every few seconds, and at the end of its block.

    It calls ``on_committed`` with the manifests of the windows that it committed, or that a seek moved the checkpoint
    over, and ``committed`` has all of them. An error is logged: the next move, or the next run, commits what is left.
    ``report_error`` is the error of the last call of ``on_committed``, if that failed.
    """

    def __init__(
        self,
        connections: PipelineConnections,
        store: CheckpointStore,
        on_committed: Callable[[Sequence[Manifest]], None] = lambda _: None,
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self.committed: list[Manifest] = []
        self.report_error: Exception | None = None
        self._connections, self._store, self._on_committed = connections, store, on_committed
        self._last = 0
        self._moving = repeated(self._move, every_seconds, "changefeed-checkpoint")

    def __enter__(self) -> Self:
        self._last = self._stored_window()
        self._moving.__enter__()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._moving.__exit__(None, None, None)
        self._move()

    def commit_rest(self) -> None:
        """Commit what is left after the block. Raises what `commit_sealed` raises, which the moves only log."""
        seals, passed = self._read_passed_by_a_seek()  # before the commit, whose windows must be reported
        manifests = commit_sealed(self._connections, self._store)
        numbers = {manifest.window.number for manifest in manifests}
        manifests = [*(each for each in passed if each.window.number not in numbers), *manifests]
        self._last = max([self._last, *seals, *numbers])
        if manifests:
            self.committed += manifests
            self._report(manifests)

    def _move(self) -> None:
        try:
            self.commit_rest()
        except ChangefeedError as error:
            _log.warning("the checkpoint was not moved now: %s", error)
        except Exception:  # of a store's client, or of Airflow: the next move may succeed, and the job goes on
            _log.exception("the checkpoint was not moved now")

    def _report(self, manifests: Sequence[Manifest]) -> None:
        try:
            self._on_committed(manifests)
            self.report_error = None
        except Exception as error:
            self.report_error = error
            _log.exception(
                "windows %d to %d are committed, and were not reported",
                manifests[0].window.number,
                manifests[-1].window.number,
            )

    def _stored_window(self) -> int:
        stored = self._store.load(self._connections.pipeline.name)
        return stored.window if stored else 0

    def _read_passed_by_a_seek(self) -> tuple[list[int], list[Manifest]]:
        """The numbers of all sealed windows, and those of them that were sealed after the last move, before a seek."""
        state = last_stable_state(self._connections)
        seek = max(state.seeks, default=0)
        return list(state.seals), [state.seals[number] for number in state.seals if self._last < number < seek]
