"""Transactions of a follower: what was written since the last commit is counted, and each commit moves the position."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.filling import Filling
from changefeed.replicate.position_table import BegunDefinition, FollowerPosition, PositionTable
from changefeed.source.mysql.follower_session import FollowerSession

COMMIT_ROWS = 20_000
"""A follower's transaction ends at the first commit of the source after so many changes."""
_OFFSETS_SECONDS = 10.0


@dataclass
class Commits:
    """Commits what ``batches`` writes to the follower, which is at ``position``.

    ``session`` reads tables and runs statements that commit by themselves. Each commit also stores what changed of
    ``filling``. ``held`` counts the changes since the last commit; ``reached`` is the position after the last change.
    """

    session: FollowerSession
    batches: BatchSessions
    positions: PositionTable
    position: FollowerPosition
    filling: Filling
    held: int = 0
    reached: BinlogCoordinates | None = None
    _offsets_at: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """Whether the next commit of the source is to be one of the follower."""
        return self.held >= COMMIT_ROWS

    @property
    def rows_left(self) -> int:
        """How many changes are left until it is."""
        return COMMIT_ROWS - self.held

    def commit(
        self,
        to: BinlogCoordinates,
        offsets: Mapping[TopicPartition, int] | None = None,
        definition: BegunDefinition | None = None,
    ) -> None:
        """Have what was written committed, with the position ``to``.

        ``offsets`` are stored every ten seconds only: what the next run reads again it skips.
        """
        self.held = 0
        now = time.monotonic()
        keeps = offsets is not None and now - self._offsets_at > _OFFSETS_SECONDS
        if keeps:
            self._offsets_at = now
        fill = self.filling.to_keep()

        def move(session: FollowerSession) -> None:
            session.begin()
            kept = {**self.position.offsets, **offsets} if keeps and offsets is not None else None
            moved = PositionTable(session, self.position.pipeline).move(self.position, to, kept, definition, fill)
            session.commit()
            self.position = moved

        self.batches.commit(move)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what is left, with the offsets, and wait for it: the follower is at ``watermark`` then."""
        self._offsets_at = -_OFFSETS_SECONDS
        self.commit(watermark, offsets)
        self.batches.settle()

    def move(self, to: BinlogCoordinates) -> None:
        """Move the position; all batches are committed."""
        self.position = self.positions.move(self.position, to, fill=self.filling.to_keep())

    def keep_filling(self) -> None:
        """Store which tables are filled, in a transaction of its own; all batches are committed."""
        if (fill := self.filling.to_keep()) is not None:
            self.session.begin()
            self.position = self.positions.move(self.position, self.position.coordinates, fill=fill)
            self.session.commit()
