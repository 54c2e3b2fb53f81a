"""The transaction events of a slice's report: events whose effect cannot be resolved within the slice."""

from __future__ import annotations

from changefeed.model.transaction_event import RowEffect, Savepoints, TransactionEvent


class TransactionEvents:
    """Collects a slice's transaction events, and drops those of a committed transaction without rollback.

    Applications that use savepoints set them in each transaction and seldom roll back. So the report has only the
    events of a transaction that has a ROLLBACK or continues in the next slice.
    """

    def __init__(self) -> None:
        self._reported: list[TransactionEvent] = []
        self._current: list[TransactionEvent] = []

    def add(self, event: TransactionEvent) -> None:
        """Add a savepoint or a rollback."""
        self._leave(event.begin)
        self._current.append(event)
        if event.effect is RowEffect.ROLLBACK:
            self._leave(-1)

    def prepare(self, event: TransactionEvent) -> tuple[tuple[int, int], ...]:
        """Add an XA_PREPARE; returns the ranges of the transaction that were rolled back. Raises UnknownSavepoint."""
        self._leave(event.begin)
        savepoints, self._current = Savepoints.of(self._current), []
        return tuple(savepoints.void)

    def add_prepare(self, event: TransactionEvent) -> None:
        """Add an XA_PREPARE whose rows were emitted already."""
        self._reported.append(event)

    def report(self, open_since: int | None) -> tuple[TransactionEvent, ...]:
        """The events for the slice's report; ``open_since`` is the begin of the transaction in which the slice ends."""
        if open_since is not None and self._current and self._current[0].begin == open_since:
            return (*self._reported, *self._current)
        self._leave(-1)
        return tuple(self._reported)

    def _leave(self, begin: int) -> None:
        """Begin another transaction, at ``begin``; keep the events of the previous one only if they make rows void."""
        if self._current and self._current[0].begin != begin:
            if any(event.effect is not RowEffect.SAVEPOINT for event in self._current):
                self._reported += self._current
            self._current = []
