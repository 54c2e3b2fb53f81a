"""Commits a follower's transactions: counts changes since the last commit, and moves the position with each commit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.filling import Filling
from changefeed.replicate.position_table import BegunDdl, FollowerPosition, PositionTable
from changefeed.source.mysql.follower_session import FollowerSession

COMMIT_ROWS = 20_000
"""After this number of changes, a follower's transaction ends at the next commit of the source."""
_OFFSETS_SECONDS = 10.0


@dataclass
class Commits:
    """Commits the writes of ``batches`` to the follower, whose last committed position is ``position``.

    - ``session``: reads tables, and runs statements with an implicit commit.
    - ``filling``: each commit also stores its changed state.
    - ``uncommitted_rows``: the number of changes since the last commit; ``uncommitted``: of row changes, by table.
    - ``end_of_changes``: the position after the last change.
    """

    session: FollowerSession
    batches: BatchSessions
    positions: PositionTable
    position: FollowerPosition
    filling: Filling
    uncommitted_rows: int = 0
    uncommitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    end_of_changes: BinlogCoordinates | None = None
    _offsets_at: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """Whether the follower must commit at the next commit of the source."""
        return self.uncommitted_rows >= COMMIT_ROWS

    @property
    def rows_left(self) -> int:
        """The number of changes that fit before the transaction is full."""
        return COMMIT_ROWS - self.uncommitted_rows

    def commit(
        self,
        to: BinlogCoordinates,
        offsets: Mapping[TopicPartition, int] | None = None,
        begun_ddl: BegunDdl | None = None,
    ) -> None:
        """Commit all written changes, with the position ``to``.

        ``offsets`` are stored only every ten seconds. The next run may read older records again, and skips them.
        """
        self.uncommitted_rows = 0
        self.uncommitted.clear()
        now = time.monotonic()
        stores_offsets = offsets is not None and now - self._offsets_at > _OFFSETS_SECONDS
        if stores_offsets:
            self._offsets_at = now
        fill = self.filling.take_changed_state()

        def move(session: FollowerSession) -> None:
            session.begin()
            stored = {**self.position.offsets, **offsets} if stores_offsets and offsets is not None else None
            moved = PositionTable(session, self.position.pipeline).move(self.position, to, stored, begun_ddl, fill)
            session.commit()
            self.position = moved

        self.batches.commit(move)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit all written changes with ``offsets``, and wait. Afterwards the follower is at ``watermark``."""
        self._offsets_at = -_OFFSETS_SECONDS
        self.commit(watermark, offsets)
        self.batches.wait_for_commits()

    def move(self, to: BinlogCoordinates) -> None:
        """Move the position to ``to``. All batches must be committed."""
        self.position = self.positions.move(self.position, to, fill=self.filling.take_changed_state())

    def store_filling(self) -> None:
        """Store the state of the tables to fill, in a transaction of its own. All batches must be committed."""
        if (fill := self.filling.take_changed_state()) is not None:
            self.session.begin()
            self.position = self.positions.move(self.position, self.position.coordinates, fill=fill)
            self.session.commit()
