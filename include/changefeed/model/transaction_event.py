"""What a slice says of transactions whose rows may be void: rolled back, in part or whole, or only prepared.

Of all others nothing is said: their rows are published as they are read. `settlement` joins what the slices of a
window say.
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
        """Whether the event at ``position`` of ``file`` is among them."""
        return self.file == file and self.start <= position < self.end


class Happening(StrEnum):
    """What an event does to the rows of a transaction before it. The names travel between Spark's stages."""

    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    ROLLBACK = "rollback"
    XA_PREPARE = "xa prepare"


@dataclass(frozen=True)
class TransactionEvent:
    """An event at ``position`` that ends before ``end``; ``begin`` is where its transaction begins in this slice.

    ``name`` is the savepoint's.
    """

    happening: Happening
    begin: int
    position: int
    end: int
    name: str = ""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TransactionEvent:
        """Read what `dataclasses.asdict` and JSON made of one."""
        return cls(**{**values, "happening": Happening(values["happening"])})


@dataclass(frozen=True)
class PreparedTransaction:
    """An XA transaction that was prepared: its rows are those of ``[start, end)`` of ``file``.

    ``void`` are ranges in there that it rolled back itself, to a savepoint.
    """

    file: str
    start: int
    end: int
    void: tuple[tuple[int, int], ...] = ()

    def holds(self, position: int) -> bool:
        """Whether the row at ``position`` of its file is one that XA COMMIT commits."""
        inside = self.start <= position < self.end
        return inside and not any(start <= position < end for start, end in self.void)


class UnknownSavepoint(Exception):
    """A ROLLBACK TO of a savepoint that its transaction did not set."""


def _unaccented(name: str) -> str:
    """What names that the server may take for one have in common."""
    letters = unicodedata.normalize("NFKD", name.replace("ß", "s"))
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


class Savepoints:
    """The savepoints of one transaction, and what was rolled back to them: ranges of positions in one file."""

    def __init__(self) -> None:
        self._set: list[tuple[str, int]] = []
        self.void: list[tuple[int, int]] = []

    def take(self, event: TransactionEvent) -> None:
        """Go on over a SAVEPOINT or ROLLBACK TO; raises UnknownSavepoint.

        A savepoint's name is not case sensitive, and one of the same name is replaced. To the server (utf8_general_ci)
        most letters with an accent are those without: where that decides which savepoint is meant, it is not known.
        https://dev.mysql.com/doc/refman/9.7/en/savepoint.html
        """
        name = event.name.lower()
        known = [index for index, (other, _) in enumerate(self._set) if other == name]
        if event.happening is Happening.SAVEPOINT:
            for index in known:
                del self._set[index]
            self._set.append((name, event.position))
            return
        alike = [other for other, _ in self._set if other != name and _unaccented(other) == _unaccented(name)]
        if alike:
            raise UnknownSavepoint(f"savepoint {event.name!r} may be {alike[-1]!r} to the server")
        if not known:
            raise UnknownSavepoint(f"there is no savepoint {event.name!r}")
        self.void.append((self._set[known[0]][1], event.position))
        del self._set[known[0] + 1 :]

    @classmethod
    def of(cls, events: Iterable[TransactionEvent]) -> Savepoints:
        """Those of a transaction's events so far; raises UnknownSavepoint."""
        savepoints = cls()
        for event in events:
            savepoints.take(event)
        return savepoints
