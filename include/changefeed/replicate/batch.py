"""A follower's transaction in the making: whole transactions of the source, and which rows they touch."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field

from changefeed.mysql.follower_session import FollowerSession

Write = Callable[[FollowerSession], None]
"""Writes with the session that it is given, in the transaction that is open there. It may be called again where that
was rolled back."""


@dataclass(frozen=True)
class Touched:
    """Rows of ``table``: those whose primary keys are ``keys``, or any (None)."""

    table: str
    keys: Set[bytes] | None = None

    def meets(self, keys: Set[bytes] | None) -> bool:
        """Whether one of the rows of the same table with ``keys`` is among them."""
        return keys is None or self.keys is None or not self.keys.isdisjoint(keys)


@dataclass(frozen=True)
class Work:
    """What is written with one statement, and from when on: when batch ``behind`` is committed.

    With ``alone`` no other batch holds a lock while it is done.
    """

    write: Write
    behind: int
    alone: bool


@dataclass
class Batch:
    """The ``number``-th transaction of a run. It is committed by ``commit``, once it is known that nothing more comes.

    ``is_kept`` says that all its works are there yet, and can be done again; ``is_barrier``, that whatever comes later
    has to wait for its commit.
    """

    number: int
    works: list[Work] = field(default_factory=list)
    done: int = 0
    """How many of them."""
    size_bytes: int = 0
    commit: Write | None = None
    is_kept: bool = True
    is_barrier: bool = False
    _touched: dict[str, set[bytes] | None] = field(default_factory=dict)

    def touch(self, touched: Touched) -> None:
        """Note what it touches."""
        if self.is_barrier:
            return
        if touched.keys is None:
            self._touched[touched.table] = None
        elif (known := self._touched.setdefault(touched.table, set())) is not None:
            known |= touched.keys

    def meets(self, touched: Touched) -> bool:
        """Whether a later batch that touches these rows has to wait for its commit."""
        if self.is_barrier:
            return True
        return touched.table in self._touched and touched.meets(self._touched[touched.table])

    def bar(self) -> None:
        """Have whatever comes later wait for its commit."""
        self.is_barrier = True
        self._touched.clear()

    def forget(self) -> None:
        """Let go of the works, which are done: it cannot be done again from now on."""
        self.works, self.done, self.size_bytes, self.is_kept = [], 0, 0, False
        self.bar()
