"""Finds which records of a table without a key count: the rows of its last snapshot, and the changes after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.snapshots import ChunkRecord, SnapshotRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.run_identity import snapshot_identity
from changefeed.native.memory import Words
from changefeed.records.event_id import moment_of
from changefeed.verify.tables import ComparedTable

NOT_READ = -1
"""The chunk number of a record of a change, which no chunk of a snapshot has."""


@dataclass(frozen=True)
class SnapshotView:
    """The rows of a table as of ``moment``, which a snapshot published.

    Its chunks have the numbers ``first`` up to but not including ``end``.

    A consumer applies these rows, and the changes from that moment on.
    """

    first: int
    end: int
    moment: int

    def moment_in(self, moment: int, chunk: int) -> int | None:
        """The moment of a record; None if the record does not count, because the view already contains its change."""
        if chunk != NOT_READ:
            return self.moment if self.first <= chunk < self.end else None
        return moment if moment >= self.moment else None


def views_of(
    states: Mapping[str, CommitLogState], pipeline: str, tables: tuple[ComparedTable, ...], until: BinlogCoordinates
) -> dict[int, SnapshotView]:
    """By table without a key, the last view of it that a snapshot of ``pipeline`` published before ``until``.

    ``states`` is the commit log (`CommitLog.read_all`).
    """
    numbers = {table.name: table.number for table in tables if table.without_key}
    views: dict[int, SnapshotView] = {}
    for identity, state in states.items():
        if not identity.startswith(snapshot_identity(pipeline, "")):
            continue
        for snapshot in state.of(SnapshotRecord):
            if snapshot.request.get("where"):  # it does not have all rows
                continue
            for table in snapshot.with_chunks(state.of(ChunkRecord)).tables:
                if table.view is None or table.name not in numbers:
                    continue
                at = BinlogCoordinates.parse(table.view.at)
                known = views.get(numbers[table.name])
                if at.base == until.base and at <= until and (known is None or known.first < snapshot.began_ms):
                    views[numbers[table.name]] = SnapshotView(snapshot.began_ms, snapshot.number, moment_of(at))
    return views


def place(
    views: Mapping[int, SnapshotView], tables: Words, moments: Words, chunks: Words
) -> tuple[Words, NDArray[np.bool_]]:
    """The moments of many records, and whether each record counts: `SnapshotView.moment_in` for arrays.

    ``tables`` has the number of each record's table.
    """
    counts = np.ones(len(tables), np.bool_)
    for number, view in views.items():
        of_table, is_read = tables == number, chunks != NOT_READ
        is_of_view = is_read & (chunks >= view.first) & (chunks < view.end)
        counts &= ~of_table | np.where(is_read, is_of_view, moments >= view.moment)
        moments = np.where(of_table & is_of_view, view.moment, moments)
    return moments, counts
