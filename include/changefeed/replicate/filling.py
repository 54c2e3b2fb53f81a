"""Tables that a follower lacks, and that a snapshot of the pipeline fills: made where it began, given its rows.

A snapshot says before it reads how each table is made at the end of what the pipeline has published then
(`TableReadRecord`). What a follower without the table is given before that point is passed over: all rows that are left
of it come with the snapshot. There the table is made, and from there on it is tolerant: what was not read yet comes by
its change, and the snapshot's rows overwrite. Each of these is exactly as the source was when its turn comes, so that
the table never has a row that the source has not. When all rows are there it is as strict as others. A table without a
key is made where its one view stands, as it was there, with all of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.block import RecordRun
from changefeed.replicate.fill_state import FillState, Stage
from changefeed.replicate.scope import Scope
from changefeed.source.mysql.follower_session import FollowerSession

_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass
class Filling:
    """What becomes of tables that the follower of ``session`` lacks, by ``records`` of them, the latest of each, and by
    ``all_read``, the latest snapshot of all.

    ``state`` is as the follower has it, with what is done since; it is to be kept where it is `is_changed`. It goes
    ahead of what is committed: what `to_keep` gives belongs to the commit of what was written until then. ``start`` is
    where the run begins. No table outside of ``scope`` is made.
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
        """Whether the point where the table is made is still to come."""
        fill = self.state.tables.get(record.table)
        if not self.scope.follows(parts_of(record.table)[0]):
            return False
        if BinlogCoordinates.parse(record.at) < self.start:
            return False
        if fill is None or fill.stage is Stage.BEGUN:
            return True
        return (fill.snapshot, fill.announced) != (record.snapshot, record.table)

    def is_due(self, name: str) -> bool:
        """Whether a table, DATABASE.TABLE, is still to be made."""
        return name in self._due

    @property
    def has_due(self) -> bool:
        """Whether there are tables to be made."""
        return bool(self._due)

    def take_due(self, to: BinlogCoordinates) -> dict[str, TableReadRecord]:
        """The records of the tables that can be made at ``to``, which are not due any more."""
        due = {
            name: record
            for name, record in self._due.items()
            if record.is_complete and BinlogCoordinates.parse(record.at) <= to
        }
        self._due = {name: record for name, record in self._due.items() if name not in due}
        return due

    @property
    def is_under_way(self) -> bool:
        """Whether there is a table to be made or to be filled."""
        return bool(self._due or self.state.unfilled or self.awaited_to)

    @property
    def awaited_to(self) -> BinlogCoordinates | None:
        """Where a snapshot of all tables began, up to which all is awaited that the follower lacks."""
        if not self.state.awaits or self.all_read is None:
            return None
        at = BinlogCoordinates.parse(self.all_read.at)
        return at if at >= self.start else None

    @property
    def held_at(self) -> BinlogCoordinates | None:
        """What the follower cannot go beyond before a snapshot has published all rows of a table without a key."""
        waited = [
            BinlogCoordinates.parse(record.at)
            for record in self._due.values()
            if not record.is_complete and not self.is_there(*parts_of(record.table))
        ]
        return min(waited, default=None)

    @property
    def next_made(self) -> BinlogCoordinates | None:
        """Where the next tables are made, of those that can be, or where no others are awaited any more."""
        turns = [BinlogCoordinates.parse(record.at) for record in self._due.values() if record.is_complete]
        return min((at for at in (*turns, self.awaited_to) if at is not None), default=None)

    def keep(self, state: FillState) -> None:
        """Take over what is done since."""
        self.is_changed = self.is_changed or state != self.state
        self.state = state

    def to_keep(self) -> FillState | None:
        """What is to be kept in the follower with the next position; None where nothing changed since the last time."""
        changed, self.is_changed = self.is_changed, False
        return self.state if changed else None

    def is_there(self, database: str, table: str) -> bool:
        """Whether the follower has the table."""
        return bool(self.session.rows(_TABLE, database, table))

    # --- rows

    def takes(self, database: str, table: str, stretch: RecordRun) -> bool:
        """Whether the rows of ``stretch``, as a snapshot read them, are to be written to the table."""
        name = f"{database}.{table}"
        fill = self.state.tables.get(name)
        assert stretch.read is not None
        if fill is None or fill.stage is not Stage.FILLING or fill.announced != name:
            return False
        if name in self._due and not self.is_there(database, table):  # somebody dropped it, to have it made again
            return False
        return BinlogCoordinates.parse(fill.at) <= stretch.read.base

    def is_taken(self, database: str, table: str, stretch: RecordRun, count: int, behind: int) -> None:
        """Note that ``count`` rows of ``stretch`` are written, up to before the offset ``behind``."""
        name = f"{database}.{table}"
        fill = self.state.tables[name]
        assert stretch.read is not None
        if stretch.read.snapshot == fill.snapshot:
            fill = replace(fill, rows=fill.rows + count)
        state = self.state.with_table(name, fill)
        self.keep(replace(state, reads={**state.reads, stretch.partition: behind}))

    def settle(self, position: BinlogCoordinates) -> None:
        """Note which tables have all rows at ``position``: those of which the snapshot has published no more than are
        written, and left none to later windows. One that was lacking may have been made anew by a statement."""
        state = self.state
        for name, fill in self.state.unfilled.items():
            record = self.records.get(fill.announced)
            if record and fill.is_whole_by(record, position):
                state = state.with_table(name, replace(fill, stage=Stage.WHOLE))
        lacking = frozenset(name for name in state.lacking if not self.is_there(*parts_of(name)))
        self.keep(replace(state, lacking=lacking))

    @property
    def waiting(self) -> tuple[str, ...]:
        """The tables that wait for a snapshot, or for its rows."""
        unread = {name for name, record in self._due.items() if not record.is_complete}
        return tuple(sorted(self.state.lacking | unread | set(self.state.unfilled)))


def parts_of(name: str) -> tuple[str, str]:
    """Database and table of DATABASE.TABLE."""
    database, _, table = name.partition(".")
    return database, table
