"""Gives an applier the rows that snapshots read, between the changes, and has the tables made that they fill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from changefeed.binlog.kernel.record_index import FIRST, OFFSET, OWN, VALUE, VALUE_END
from changefeed.coordinates import BinlogCoordinates
from changefeed.formats.envelope import Envelope
from changefeed.kafka.progress import TopicPartition
from changefeed.kafka.read_record import TableReadRecord
from changefeed.mysql.follower_session import FollowerSession
from changefeed.replicate.applier import COMMIT_ROWS, Applier
from changefeed.replicate.block import SourceBlock, Stretch, packed
from changefeed.replicate.filling import Filling
from changefeed.replicate.sealed import SealedStretch
from changefeed.replicate.source_order import turn_of
from changefeed.replicate.table_rows import TableRows


@dataclass
class Filler:
    """Hands blocks on to ``applier``; ``rows`` reads those of a table without a primary key."""

    session: FollowerSession
    applier: Applier
    filling: Filling
    rows: TableRows

    def take(self, block: SourceBlock, stretch: SealedStretch, offsets: Mapping[TopicPartition, int]) -> None:
        """As `Applier.take`, with the rows of snapshots that are in ``block``."""
        for piece, read in block.pieces():
            first = 0
            while (at := self.filling.next_made) is not None:
                behind = np.flatnonzero(piece.words[first:, FIRST] >= packed(turn_of(at))[0])
                if not len(behind):
                    break
                last = first + int(behind[0])
                self._take(piece.piece(first, last), read, stretch, offsets)
                self._make(at)
                first = last
            self._take(piece.piece(first, len(piece)) if first else piece, read, stretch, offsets)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """As `Applier.finish`: tables up to there are made, and those that have all rows are noted."""
        while (at := self.filling.next_made) is not None and at <= watermark:
            self._make(at)
        self.filling.settle()
        self.applier.finish(watermark, offsets)

    def _take(
        self, block: SourceBlock, read: Stretch | None, stretch: SealedStretch, offsets: Mapping[TopicPartition, int]
    ) -> None:
        if not len(block):
            return
        if read is None:
            self.applier.take(block, stretch, offsets)
            return
        change = Envelope.of(block.value(0))
        database, table = change.database, change.table
        if not self.filling.takes(database, table, read):
            return
        if not self.applier.left_out.has(database, table):
            changes = self.applier.changes_of(database, table)
            texts = changes.texts_of(block.data, block.words[:, [VALUE, VALUE_END]])
            if texts is not None:
                changes.overwrite(texts)
            else:
                images = (Envelope.of(block.value(number)).after for number in range(len(block)))
                changes.overwrite_each([image for image in images if image is not None])
        behind = read.first_offset + int(block.words[-1, OFFSET]) + 1
        self.filling.is_taken(database, table, read, len(block), behind)
        self.applier.hold(len(block))
        at_commit = not block.words[0, OWN]
        if at_commit and self.applier.held >= COMMIT_ROWS:
            self.applier.commit_here(offsets)

    def _make(self, at: BinlogCoordinates) -> None:
        """Make the tables whose turn is ``at``, which is between two commits. It may be done again where it is cut."""
        applier, filling = self.applier, self.filling
        applier.commit(at)
        applier.batches.settle()
        filling.make_databases(at)
        made = filling.begin_made(at)
        applier.keep_filling()
        for record in made.values():
            filling.make(record)
            applier.forget_tables()
            if not record.keyed:
                self._write_all(record)
            filling.is_made(record)
            applier.commit(at)  # with all rows of a table without a key
            applier.batches.settle()
        applier.forget_tables()
        self.session.settle()

    def _write_all(self, record: TableReadRecord) -> None:
        """Have all rows of a table without a key written, with the next commit."""
        applier = self.applier
        database, _, table = record.table.partition(".")
        if applier.left_out.has(database, table):
            return
        changes = applier.changes_of(database, table)
        for number, change in enumerate(self.rows.of(record)):
            changes.take(change)
            applier.applied.rows += 1
            if number % COMMIT_ROWS == COMMIT_ROWS - 1:
                changes.write()
