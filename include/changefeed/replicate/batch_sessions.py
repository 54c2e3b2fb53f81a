"""Writes batches on several sessions of a follower at the same time, and commits them in order.

1. A batch begins while earlier batches are still open. It is committed only after all earlier batches.
2. If a statement touches rows that an earlier batch touches, it waits for the commit of that batch. This avoids
   conflicts, but correctness does not depend on it: the server locks each changed row until the commit, and each
   statement checks how many rows it changed. So a batch that reaches a row too early fails, or makes an older batch
   wait.
3. If a batch fails while others are open, it and all later batches are rolled back and repeated one after the other.
4. If it fails again, the run fails.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from changefeed.errors import ChangefeedError
from changefeed.source.mysql.follower_session import FollowerSession

REPEATABLE_BYTES = 32 << 20
"""The maximum size of a batch that is held in memory for a retry. A larger batch is written alone, without a retry."""

Write = Callable[[FollowerSession], None]
"""A function that writes in the open transaction of a session. After a rollback it is called again."""


@dataclass(frozen=True)
class TouchedRows:
    """Rows of ``table`` with the primary keys ``keys``. If ``keys`` is None, any rows."""

    table: str
    keys: Set[bytes] | None = None

    def overlaps(self, keys: Set[bytes] | None) -> bool:
        """Whether a row of the same table with one of ``keys`` may be one of these rows; None for any keys."""
        return keys is None or self.keys is None or not self.keys.isdisjoint(keys)


@dataclass(frozen=True)
class Work:
    """One write, which waits until batch ``after_batch`` is committed.

    With ``alone``, no other batch holds a lock while it runs.
    """

    write: Write
    after_batch: int
    alone: bool


@dataclass
class Batch:
    """The transaction ``number`` of a run.

    - ``commit``: commits the batch; it is set when the batch is complete.
    - ``is_repeatable``: whether all its works are in memory and can be repeated after a rollback.
    - ``is_barrier``: whether every later batch waits for its commit.
    """

    number: int
    works: list[Work] = field(default_factory=list)
    done: int = 0
    """The number of works that are done."""
    size_bytes: int = 0
    commit: Write | None = None
    is_repeatable: bool = True
    is_barrier: bool = False
    _touched: dict[str, set[bytes] | None] = field(default_factory=dict)

    def touch(self, touched: TouchedRows) -> None:
        """Add ``touched`` to the rows that the batch touches."""
        if self.is_barrier:
            return
        if touched.keys is None:
            self._touched[touched.table] = None
        elif (known := self._touched.setdefault(touched.table, set())) is not None:
            known |= touched.keys

    def overlaps(self, touched: TouchedRows) -> bool:
        """Whether a later batch that touches these rows must wait for the commit of this batch."""
        if self.is_barrier:
            return True
        return touched.table in self._touched and touched.overlaps(self._touched[touched.table])

    def make_barrier(self) -> None:
        """Make every later batch wait for the commit of this batch."""
        self.is_barrier = True
        self._touched.clear()

    def forget(self) -> None:
        """Remove the works, which are all done, from memory. Afterwards the batch cannot be repeated."""
        self.works, self.done, self.size_bytes, self.is_repeatable = [], 0, 0, False
        self.make_barrier()


class _GaveWayError(Exception):
    """The batch must roll back and wait until all older batches are committed."""


class _EndedError(Exception):
    """The run has ended; the session's thread stops."""


class BatchSessions:
    """Accepts writes from one thread, batch by batch. One thread per session executes them.

    After an error nothing more is committed, and the next call raises the error. The number of batches in memory is at
    most the number of sessions plus one.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 1
        self._batches: deque[Batch] = deque()
        """The uncommitted batches, oldest first."""
        self._committed = 0
        self._lock_holders: set[int] = set()
        """The numbers of the batches that may hold locks."""
        self._one_by_one = 0
        """The number of the last batch that must run alone; up to it, batches run one after the other."""
        self._error: BaseException | None = None
        self._ended = False

    def put(self, write: Write, touched: TouchedRows, size_bytes: int, *, alone: bool = False) -> None:
        """Add ``write`` to the open batch.

        With ``alone``, it runs after all earlier batches are committed, and before a later batch writes. Raises the
        error of an earlier write.
        """
        batch = self._open_batch()
        older = [each.number for each in list(self._batches) if each is not batch and (alone or each.overlaps(touched))]
        alone = alone or not batch.is_repeatable
        batch.touch(touched)
        if alone:
            batch.make_barrier()
        batch.size_bytes += size_bytes
        with self._changed:
            batch.works.append(Work(write, max(older, default=0), alone))
            self._changed.notify_all()
            if batch.size_bytes > REPEATABLE_BYTES:
                self._wait(lambda: self._is_oldest(batch) and batch.done == len(batch.works))
                batch.forget()

    def commit(self, write: Write) -> None:
        """End the open batch; ``write`` commits it after all earlier batches. Raises the error of an earlier write."""
        batch = self._open_batch()
        with self._changed:
            batch.commit = write
            self._changed.notify_all()

    def wait_for_commits(self) -> None:
        """Wait until all batches are committed. Raises the error of an earlier write."""
        with self._changed:
            self._wait(lambda: not self._batches)

    @contextmanager
    def running(self, sessions: Sequence[FollowerSession]) -> Iterator[None]:
        """A context that runs one thread for each of ``sessions``. At its end, it waits for all commits.

        If the block raises, running statements are finished. Uncommitted batches are rolled back when their sessions
        are closed.
        """
        self._count = len(sessions)
        threads = [
            threading.Thread(target=self._run, args=(number, session), name=f"statements {number}", daemon=True)
            for number, session in enumerate(sessions, 1)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
            self.wait_for_commits()
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
        """Wait until the condition ``until`` is true. The caller holds the lock. Raises the error of a session."""
        self._changed.wait_for(lambda: self._error is not None or until())
        if self._error is not None:
            raise self._error

    # --- in the threads of sessions

    def _run(self, number: int, session: FollowerSession) -> None:
        try:
            while True:
                batch = self._batch(number)
                while not self._write_batch(batch, session):
                    pass
                number += self._count
        except _EndedError:
            return
        except BaseException as error:  # the thread that puts writes raises it
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()

    def _batch(self, number: int) -> Batch:
        with self._changed:
            self._wait_on(lambda: bool(self._batches) and self._batches[-1].number >= number)
            return self._batches[number - self._batches[0].number]

    def _write_batch(self, batch: Batch, session: FollowerSession) -> bool:
        """Write and commit the batch. Returns false if it was rolled back and must be repeated."""
        alone = self._begin(batch)
        try:
            while work := self._next(batch):
                # If a work that runs alone fails, no other batch can be the cause, so a retry would not help.
                batch.is_repeatable = batch.is_repeatable and not work.alone
                session.wait_for_locks(long=alone or not batch.is_repeatable)
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
            if alone or not batch.is_repeatable:
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
            self._lock_holders.discard(batch.number)
            self._batches.popleft()
            self._changed.notify_all()
        return True

    def _begin(self, batch: Batch) -> bool:
        """Wait until the batch may begin. Returns whether no other batch can hold a lock until its commit."""
        with self._changed:
            self._wait_on(lambda: self._may_begin(batch))
            self._lock_holders.add(batch.number)
            return self._count == 1 or batch.number <= self._one_by_one

    def _may_begin(self, batch: Batch) -> bool:
        if batch.number > self._one_by_one:
            return self._committed >= self._one_by_one
        return self._is_oldest(batch) and not self._lock_holders

    def _next(self, batch: Batch) -> Work | None:
        """Wait for the next work and return it; None if the batch must be committed now.

        Raises _GaveWayError if older batches must be committed first.
        """
        with self._changed:
            self._wait_on(lambda: self._gives_way(batch) or self._has_next(batch))
            if self._gives_way(batch):
                raise _GaveWayError
            return batch.works[batch.done] if batch.done < len(batch.works) else None

    def _has_next(self, batch: Batch) -> bool:
        if batch.done < len(batch.works):
            return self._committed >= batch.works[batch.done].after_batch
        return batch.commit is not None and self._is_oldest(batch)

    def _gives_way(self, batch: Batch) -> bool:
        return batch.number <= self._one_by_one and not self._is_oldest(batch)

    def _is_oldest(self, batch: Batch) -> bool:
        return batch.number == self._committed + 1

    def _roll_back(self, batch: Batch, session: FollowerSession) -> None:
        session.roll_back()
        with self._changed:
            batch.done = 0
            self._lock_holders.discard(batch.number)
            self._changed.notify_all()

    def _wait_on(self, until: Callable[[], bool]) -> None:
        self._changed.wait_for(lambda: self._ended or self._error is not None or until())
        if self._ended or self._error is not None:
            raise _EndedError
