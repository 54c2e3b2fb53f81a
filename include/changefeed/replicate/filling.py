"""Manages the tables that are missing on a follower, and that a snapshot of the pipeline fills.

Before a snapshot reads rows, it announces the CREATE TABLE of each table as of the end of the pipeline's published
changes (`TableReadRecord`). A follower without the table

1. skips the table's changes before that position, because the snapshot has the rows that remain,
2. creates the table at that position,
3. applies changes and the snapshot's rows in commit order. A change of a missing row inserts the row; a row of the
   snapshot overwrites an existing row. So the table never has a row that the source did not have at that position,
4. raises an error for a change of a missing row, as for other tables, after the table has all rows.

A table without a key is created with all of its rows, at the position of the view in which the snapshot read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.block import RecordRun
from changefeed.replicate.fill_state import FillStage, FillState
from changefeed.replicate.scope import Scope
from changefeed.source.mysql.follower_session import FollowerSession

_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass
class Filling:
    """The tables that snapshots fill on the follower of ``session``.

    - ``state``: the follower's stored state with later changes; `take_changed_state` returns it for the next commit.
    - ``records``: the latest announcement of each table.
    - ``all_read``: the announcement of the latest snapshot of all tables.
    - ``start``: the position at which the run begins.
    - ``scope``: no table outside of it is created.
    """

    session: FollowerSession
    state: FillState
    records: Mapping[str, TableReadRecord]
    all_read: AllReadRecord | None
    start: BinlogCoordinates
    scope: Scope
    is_changed: bool = False
    _due: dict[str, TableReadRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._due = {name: record for name, record in self.records.items() if self._is_still_due(record)}

    def _is_still_due(self, record: TableReadRecord) -> bool:
        """Whether the table of ``record`` must still be created, at or after the run's start."""
        fill = self.state.tables.get(record.table)
        if not self.scope.follows(split_name(record.table)[0]):
            return False
        if BinlogCoordinates.parse(record.at) < self.start:
            return False
        if fill is None or fill.stage is FillStage.BEGUN:
            return True
        return (fill.snapshot, fill.announced) != (record.snapshot, record.table)

    def is_due(self, name: str) -> bool:
        """Whether the table ``name``, DATABASE.TABLE, must still be created."""
        return name in self._due

    @property
    def has_due(self) -> bool:
        """Whether there are tables to create."""
        return bool(self._due)

    def take_due(self, to: BinlogCoordinates) -> dict[str, TableReadRecord]:
        """Return the records of the tables that can be created at ``to``, and remove them from the due tables."""
        due = {
            name: record
            for name, record in self._due.items()
            if record.is_complete and BinlogCoordinates.parse(record.at) <= to
        }
        self._due = {name: record for name, record in self._due.items() if name not in due}
        return due

    @property
    def is_under_way(self) -> bool:
        """Whether there is a table to create or to fill."""
        return bool(self._due or self.state.unfilled or self.awaited_snapshot_at)

    @property
    def awaited_snapshot_at(self) -> BinlogCoordinates | None:
        """The position at which the awaited snapshot of all tables began; None if none is awaited or has begun.

        Before this position, changes of missing tables are skipped.
        """
        if not self.state.awaits_snapshot or self.all_read is None:
            return None
        at = BinlogCoordinates.parse(self.all_read.at)
        return at if at >= self.start else None

    @property
    def blocked_at(self) -> BinlogCoordinates | None:
        """The position at which the follower must wait for a snapshot to publish a table without a key, or None."""
        waited = [
            BinlogCoordinates.parse(record.at)
            for record in self._due.values()
            if not record.is_complete and not self.has_table(*split_name(record.table))
        ]
        return min(waited, default=None)

    @property
    def next_creation(self) -> BinlogCoordinates | None:
        """The next position at which tables can be created, or at which the awaited snapshot began; None if none."""
        orders = [BinlogCoordinates.parse(record.at) for record in self._due.values() if record.is_complete]
        return min((at for at in (*orders, self.awaited_snapshot_at) if at is not None), default=None)

    def keep(self, state: FillState) -> None:
        """Replace the state."""
        self.is_changed = self.is_changed or state != self.state
        self.state = state

    def take_changed_state(self) -> FillState | None:
        """The state to store with the next position; None if it did not change since the last call."""
        changed, self.is_changed = self.is_changed, False
        return self.state if changed else None

    def has_table(self, database: str, table: str) -> bool:
        """Whether the follower has the table."""
        return bool(self.session.rows(_TABLE, database, table))

    # --- rows

    def takes(self, database: str, table: str, run: RecordRun) -> bool:
        """Whether the snapshot's rows of ``run`` must be written to the table."""
        name = f"{database}.{table}"
        fill = self.state.tables.get(name)
        assert run.read is not None
        if fill is None or fill.stage is not FillStage.FILLING or fill.announced != name:
            return False
        if name in self._due and not self.has_table(database, table):  # it was dropped, and will be created again
            return False
        return BinlogCoordinates.parse(fill.at) <= run.read.base

    def note_rows(self, database: str, table: str, run: RecordRun, count: int, next_offset: int) -> None:
        """Add ``count`` written rows of ``run`` to the state. ``next_offset`` is the offset after them."""
        name = f"{database}.{table}"
        fill = self.state.tables[name]
        assert run.read is not None
        if run.read.snapshot == fill.snapshot:
            fill = replace(fill, rows=fill.rows + count)
        state = self.state.with_table(name, fill)
        self.keep(replace(state, reads={**state.reads, run.partition: next_offset}))

    def note_complete_tables(self, position: BinlogCoordinates) -> None:
        """Mark the tables that have all rows at ``position`` as complete (see `TableFill.is_complete_at`).

        Tables that a statement has created meanwhile are no longer missing.
        """
        state = self.state
        for name, fill in self.state.unfilled.items():
            record = self.records.get(fill.announced)
            if record and fill.is_complete_at(record, position):
                state = state.with_table(name, replace(fill, stage=FillStage.COMPLETE))
        missing = frozenset(name for name in state.missing if not self.has_table(*split_name(name)))
        self.keep(replace(state, missing=missing))

    @property
    def waiting(self) -> tuple[str, ...]:
        """The tables that wait for a snapshot or for its rows."""
        unread = {name for name, record in self._due.items() if not record.is_complete}
        return tuple(sorted(self.state.missing | unread | set(self.state.unfilled)))


def split_name(name: str) -> tuple[str, str]:
    """The database and the table of DATABASE.TABLE."""
    database, _, table = name.partition(".")
    return database, table
