"""Events that decide whether the rows of a transaction are published: savepoints, rollbacks and XA PREPARE.

A slice reports these events. The publish stage combines the reports of all slices of a window. Transactions without
such an event are not reported; their rows are published as they are read.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class BinlogRange:
    """The events of a file that begin in ``[start, end)``."""

    file: str
    start: int
    end: int

    def holds(self, file: str, position: int) -> bool:
        """Whether the event at ``position`` of ``file`` is in the range."""
        return self.file == file and self.start <= position < self.end


class RowEffect(StrEnum):
    """The effect of an event on earlier rows of its transaction. The names are passed between Spark's stages."""

    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    ROLLBACK = "rollback"
    XA_PREPARE = "xa prepare"


@dataclass(frozen=True)
class TransactionEvent:
    """An event in ``[position, end)`` that has an effect on earlier rows of its transaction.

    ``begin`` is the position at which the transaction begins in this slice. ``name`` is the name of the savepoint.
    """

    effect: RowEffect
    begin: int
    position: int
    end: int
    name: str = ""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TransactionEvent:
        """Read the JSON of `dataclasses.asdict`."""
        return cls(**{**values, "effect": RowEffect(values["effect"])})


@dataclass(frozen=True)
class PreparedTransaction:
    """A prepared XA transaction, whose rows are in ``[start, end)`` of ``file``.

    ``void`` has the ranges of rows that the transaction rolled back to a savepoint.
    """

    file: str
    start: int
    end: int
    void: tuple[tuple[int, int], ...] = ()

    def holds(self, position: int) -> bool:
        """Whether XA COMMIT commits the row at ``position`` of its file."""
        inside = self.start <= position < self.end
        return inside and not any(start <= position < end for start, end in self.void)


class UnknownSavepoint(Exception):
    """ROLLBACK TO a savepoint that its transaction did not set."""


def _strip_accents(name: str) -> str:
    """A text that is the same for all names that the server may compare as equal."""
    letters = unicodedata.normalize("NFKD", name.replace("ß", "s"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


class Savepoints:
    """The savepoints of one transaction, and the ranges of positions in one file that were rolled back."""

    def __init__(self) -> None:
        self._set: list[tuple[str, int]] = []
        self.void: list[tuple[int, int]] = []

    def take(self, event: TransactionEvent) -> None:
        """Apply a SAVEPOINT or ROLLBACK TO.

        Names of savepoints are not case sensitive. A savepoint replaces another of the same name. In the server's
        collation (utf8_general_ci) most letters with an accent equal the letters without it. Raises UnknownSavepoint
        for ROLLBACK TO an unknown name, and to a name that may equal another one in this collation.

        https://dev.mysql.com/doc/refman/9.7/en/savepoint.html
        """
        name = event.name.lower()
        known = [index for index, (other, _) in enumerate(self._set) if other == name]
        if event.effect is RowEffect.SAVEPOINT:
            for index in known:
                del self._set[index]
            self._set.append((name, event.position))
            return
        alike = [other for other, _ in self._set if other != name and _strip_accents(other) == _strip_accents(name)]
        if alike:
            raise UnknownSavepoint(f"savepoint {event.name!r} may be {alike[-1]!r} to the server")
        if not known:
            raise UnknownSavepoint(f"there is no savepoint {event.name!r}")
        self.void.append((self._set[known[0]][1], event.position))
        del self._set[known[0] + 1 :]

    @classmethod
    def of(cls, events: Iterable[TransactionEvent]) -> Savepoints:
        """The savepoints after a transaction's events; raises UnknownSavepoint."""
        savepoints = cls()
        for event in events:
            savepoints.take(event)
        return savepoints
