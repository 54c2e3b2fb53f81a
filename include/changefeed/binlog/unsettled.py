"""What of a slice's transactions is not settled by the slice alone: the events that its report has."""

from __future__ import annotations

from changefeed.model.transaction_event import Happening, Savepoints, TransactionEvent


class Unsettled:
    """Takes note of a slice's transaction events, and forgets those of a transaction that was committed.

    Applications that set savepoints set them in each transaction, and few are rolled back: only a transaction with a
    ROLLBACK in it, or one that goes on in the next slice, is worth a place in the report.
    """

    def __init__(self) -> None:
        self._kept: list[TransactionEvent] = []
        self._current: list[TransactionEvent] = []

    def add(self, event: TransactionEvent) -> None:
        """Take note of a savepoint, or of a rollback."""
        self._leave(event.begin)
        self._current.append(event)
        if event.happening is Happening.ROLLBACK:
            self._leave(-1)

    def prepare(self, event: TransactionEvent) -> tuple[tuple[int, int], ...]:
        """Go over an XA_PREPARE; the ranges that its transaction rolled back to savepoints. Raises UnknownSavepoint."""
        self._leave(event.begin)
        savepoints, self._current = Savepoints.of(self._current), []
        return tuple(savepoints.void)

    def add_prepare(self, event: TransactionEvent) -> None:
        """Take note that rows before ``event`` were handed over, and are only prepared."""
        self._kept.append(event)

    def report(self, open_since: int | None) -> tuple[TransactionEvent, ...]:
        """What the slice's report has; ``open_since`` is where the transaction begins that the slice ends in."""
        if open_since is not None and self._current and self._current[0].begin == open_since:
            return (*self._kept, *self._current)
        self._leave(-1)
        return tuple(self._kept)

    def _leave(self, begin: int) -> None:
        """At ``begin`` begins another transaction: keep the last one's events if they make rows void."""
        if self._current and self._current[0].begin != begin:
            if any(event.happening is not Happening.SAVEPOINT for event in self._current):
                self._kept += self._current
            self._current = []
