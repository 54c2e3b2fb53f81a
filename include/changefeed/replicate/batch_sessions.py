"""Batches that are written on several sessions of a follower at the same time, and committed in their order.

Whoever reads the follower sees a batch when all before it are committed. A batch begins while the ones before it are
still open, and its statement waits for their commit where it touches rows that they touch. That keeps sessions out of
each other's way; that the outcome is right does not rest on it. The server locks each row from the first statement that
changes it to the commit, and each statement says how many rows it has to find: so a batch that came to a row too early
either fails, or makes an older one wait for it. Whatever fails beside others is rolled back with all that came later,
and done again one after the other; what fails then is an error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from changefeed.errors import ChangefeedError
from changefeed.source.mysql.follower_session import FollowerSession

KEPT_BYTES = 32 << 20
"""Of the statements of one batch; a larger one is written alone, and cannot be done again."""

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


class _GaveWayError(Exception):
    """An older batch waits for a lock of this one, which is to wait for its turn."""


class _EndedError(Exception):
    """Nothing is to be done any more."""


class BatchSessions:
    """Takes what is to be written, batch by batch, from one thread; a thread for each session writes it.

    Behind an error nothing more is committed, and whoever comes next raises it. At most one batch more than there are
    sessions is held.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 1
        self._batches: deque[Batch] = deque()
        """Those that are not committed, the oldest first."""
        self._committed = 0
        self._holding: set[int] = set()
        """The batches that may hold locks."""
        self._one_by_one = 0
        """Up to this one, batches are done one after the other."""
        self._error: BaseException | None = None
        self._ended = False

    def put(self, write: Write, touched: Touched, size_bytes: int, *, alone: bool = False) -> None:
        """Have ``write`` done behind all that was given before; ``alone`` when what came before is committed, with
        nothing later beside it. Raises what an earlier one raised."""
        batch = self._open_batch()
        older = [each.number for each in list(self._batches) if each is not batch and (alone or each.meets(touched))]
        alone = alone or not batch.is_kept
        batch.touch(touched)
        if alone:
            batch.bar()
        batch.size_bytes += size_bytes
        with self._changed:
            batch.works.append(Work(write, max(older, default=0), alone))
            self._changed.notify_all()
            if batch.size_bytes > KEPT_BYTES:
                self._wait(lambda: self._is_oldest(batch) and batch.done == len(batch.works))
                batch.forget()

    def commit(self, write: Write) -> None:
        """End the batch: ``write`` commits it when all before it are committed. Raises what an earlier one raised."""
        batch = self._open_batch()
        with self._changed:
            batch.commit = write
            self._changed.notify_all()

    def settle(self) -> None:
        """Wait until all batches are committed. Raises what an earlier one raised."""
        with self._changed:
            self._wait(lambda: not self._batches)

    @contextmanager
    def running(self, sessions: Sequence[FollowerSession]) -> Iterator[None]:
        """Write with ``sessions`` for as long as the block lasts. Where it raises, statements under way come to their
        end, and what is not committed is left to be rolled back."""
        self._count = len(sessions)
        threads = [
            threading.Thread(target=self._run, args=(number, session), name=f"statements {number}", daemon=True)
            for number, session in enumerate(sessions, 1)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
            self.settle()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            for thread in threads:
                thread.join()

    def _open_batch(self) -> Batch:
        with self._changed:
            self._wait(lambda: True)
            if not self._batches or self._batches[-1].commit:
                self._wait(lambda: len(self._batches) <= self._count)
                number = self._batches[-1].number if self._batches else self._committed
                self._batches.append(Batch(number + 1))
            return self._batches[-1]

    def _wait(self, until: Callable[[], bool]) -> None:
        """Wait with the lock held. Raises the error of a session."""
        self._changed.wait_for(lambda: self._error is not None or until())
        if self._error is not None:
            raise self._error

    # --- in the threads of sessions

    def _run(self, number: int, session: FollowerSession) -> None:
        try:
            while True:
                batch = self._batch(number)
                while not self._wrote(batch, session):
                    pass
                number += self._count
        except _EndedError:
            return
        except BaseException as error:  # it is the giver's to raise, whatever it is
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _batch(self, number: int) -> Batch:
        with self._changed:
            self._wait_on(lambda: bool(self._batches) and self._batches[-1].number >= number)
            return self._batches[number - self._batches[0].number]

    def _wrote(self, batch: Batch, session: FollowerSession) -> bool:
        """Write the batch and commit it; False where it was rolled back, and is to be done again."""
        alone = self._begun(batch)
        try:
            while work := self._next(batch):
                batch.is_kept = batch.is_kept and not work.alone  # nothing of ours is in its way: it fails for good
                session.wait_for_locks(long=alone or not batch.is_kept)
                work.write(session)
                with self._changed:
                    batch.done += 1
                    self._changed.notify_all()
            assert batch.commit is not None
            batch.commit(session)
        except _GaveWayError:
            self._roll_back(batch, session)
            return False
        except ChangefeedError as error:
            if alone or not batch.is_kept:
                raise
            with self._changed:
                self._one_by_one = self._batches[-1].number
                self._changed.notify_all()
            try:
                self._roll_back(batch, session)
            except ChangefeedError:  # the session is gone
                raise error from None
            return False
        with self._changed:
            self._committed = batch.number
            self._holding.discard(batch.number)
            self._batches.popleft()
            self._changed.notify_all()
        return True

    def _begun(self, batch: Batch) -> bool:
        """Wait until the batch may begin; whether no other one holds a lock until it is committed."""
        with self._changed:
            self._wait_on(lambda: self._may_begin(batch))
            self._holding.add(batch.number)
            return self._count == 1 or batch.number <= self._one_by_one

    def _may_begin(self, batch: Batch) -> bool:
        if batch.number > self._one_by_one:
            return self._committed >= self._one_by_one
        return self._is_oldest(batch) and not self._holding

    def _next(self, batch: Batch) -> Work | None:
        """Wait for what is to be done next; None when that is to commit. Raises _GaveWayError where it has to wait for
        its turn."""
        with self._changed:
            self._wait_on(lambda: self._gives_way(batch) or self._has_next(batch))
            if self._gives_way(batch):
                raise _GaveWayError
            return batch.works[batch.done] if batch.done < len(batch.works) else None

    def _has_next(self, batch: Batch) -> bool:
        if batch.done < len(batch.works):
            return self._committed >= batch.works[batch.done].behind
        return batch.commit is not None and self._is_oldest(batch)

    def _gives_way(self, batch: Batch) -> bool:
        return batch.number <= self._one_by_one and not self._is_oldest(batch)

    def _is_oldest(self, batch: Batch) -> bool:
        return batch.number == self._committed + 1

    def _roll_back(self, batch: Batch, session: FollowerSession) -> None:
        session.roll_back()
        with self._changed:
            batch.done = 0
            self._holding.discard(batch.number)
            self._changed.notify_all()

    def _wait_on(self, until: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._ended or self._error is not None or until())
        if self._ended or self._error is not None:
            raise _EndedError
