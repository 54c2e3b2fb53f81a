"""Rows of a table without a key that snapshots read: of which of them its rows are made, and from which change on."""

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
from changefeed.verify.tables import JudgedTable

NOT_READ = -1
"""In place of a chunk's number: the record is a change."""


@dataclass(frozen=True)
class TableView:
    """All rows of a table as they were at ``moment``, which a snapshot published as the chunk ``first``, or another up
    to ``end``. A consumer takes these rows, and the changes from that moment on."""

    first: int
    end: int
    moment: int

    def moment_in(self, moment: int, chunk: int) -> int | None:
        """The moment of what a record says of a row, None where it says nothing: it is in the view's rows already."""
        if chunk != NOT_READ:
            return self.moment if self.first <= chunk < self.end else None
        return moment if moment >= self.moment else None


def views_of(
    states: Mapping[str, CommitLogState], pipeline: str, tables: tuple[JudgedTable, ...], until: BinlogCoordinates
) -> dict[int, TableView]:
    """By table the last view that a snapshot of ``pipeline`` published of it, in a part of the binlog before ``until``.
    ``states`` is the commit log (`CommitLog.read_all`)."""
    numbers = {table.name: table.number for table in tables if table.without_key}
    views: dict[int, TableView] = {}
    for identity, state in states.items():
        if not identity.startswith(snapshot_identity(pipeline, "")):
            continue
        for snapshot in state.of(SnapshotRecord):
            if snapshot.request.get("where"):  # of rows that it left out it says nothing
                continue
            for table in snapshot.with_chunks(state.of(ChunkRecord)).tables:
                if table.view is None or table.name not in numbers:
                    continue
                at = BinlogCoordinates.parse(table.view.at)
                known = views.get(numbers[table.name])
                if at.base == until.base and at <= until and (known is None or known.first < snapshot.began_ms):
                    views[numbers[table.name]] = TableView(snapshot.began_ms, snapshot.number, moment_of(at))
    return views


def place(
    views: Mapping[int, TableView], tables: Words, moments: Words, chunks: Words
) -> tuple[Words, NDArray[np.bool_]]:
    """`TableView.moment_in` for many records, by the numbers of their ``tables``: their moments, and which of them say
    something."""
    counts = np.ones(len(tables), np.bool_)
    for number, view in views.items():
        of_table, is_read = tables == number, chunks != NOT_READ
        is_of_view = is_read & (chunks >= view.first) & (chunks < view.end)
        counts &= ~of_table | np.where(is_read, is_of_view, moments >= view.moment)
        moments = np.where(of_table & is_of_view, view.moment, moments)
    return moments, counts
