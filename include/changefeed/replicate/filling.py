"""Tables that a follower lacks, and that a snapshot of the pipeline fills: made where it began, given its rows.

A snapshot says before it reads how each table is made at the end of what the pipeline has published then
(`TableReadRecord`). What a follower without the table is given before that point is passed over: all rows that are left
of it come with the snapshot. There the table is made, and from there on it is tolerant: what was not read yet comes by
its change, and the snapshot's rows overwrite. Each of these is exactly as the source was when its turn comes, so that
the table never has a row that the source has not. When all rows are there it is as strict as others. A table without a
key is made where its one view stands, as it was there, with all of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl.changes import (
    AlterDatabase,
    AlterTable,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTables,
    ExchangePartition,
    PartitionToTable,
    RenameTables,
    RenameTo,
    TableToPartition,
)
from changefeed.ddl.names import TableName
from changefeed.errors import SettingsError
from changefeed.kafka.read_record import AllReadRecord, TableReadRecord
from changefeed.mysql.follower_session import FollowerSession
from changefeed.replicate.block import Stretch
from changefeed.replicate.definitions import Definition
from changefeed.replicate.fill_state import FillState, Stage, TableFill
from changefeed.replicate.literals import quoted_name
from changefeed.table_schema import TableSchema

_TABLE = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_DATABASE = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"


@dataclass
class Filling:
    """What becomes of tables that the follower of ``session`` lacks, by ``records`` of them, the latest of each, and by
    ``all_read``, the latest snapshot of all.

    ``state`` is as the follower has it, with what is done since; it is to be kept where it is `is_changed`. It goes
    ahead of what is committed: what `to_keep` gives belongs to the commit of what was written until then. ``start`` is
    where the run begins. ``follows`` says which databases are followed.
    """

    session: FollowerSession
    state: FillState
    records: Mapping[str, TableReadRecord]
    all_read: AllReadRecord | None
    start: BinlogCoordinates
    follows: Callable[[str], bool]
    is_changed: bool = False
    _due: dict[str, TableReadRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._due = {name: record for name, record in self.records.items() if self._is_due(record)}

    def _is_due(self, record: TableReadRecord) -> bool:
        """Whether the point where the table is made is still to come."""
        fill = self.state.tables.get(record.table)
        if not self.follows(_parts(record.table)[0]):
            return False
        if BinlogCoordinates.parse(record.at) < self.start:
            return False
        if fill is None or fill.stage is Stage.BEGUN:
            return True
        return (fill.snapshot, fill.announced) != (record.snapshot, record.table)

    @property
    def is_under_way(self) -> bool:
        """Whether there is a table to be made or to be filled."""
        return bool(self._due or self.state.unfilled or self._awaited_to)

    @property
    def _awaited_to(self) -> BinlogCoordinates | None:
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
            if not record.is_complete and not self._is_there(*_parts(record.table))
        ]
        return min(waited, default=None)

    @property
    def next_made(self) -> BinlogCoordinates | None:
        """Where the next tables are made, of those that can be, or where no others are awaited any more."""
        turns = [BinlogCoordinates.parse(record.at) for record in self._due.values() if record.is_complete]
        return min((at for at in (*turns, self._awaited_to) if at is not None), default=None)

    def keep(self, state: FillState) -> None:
        """Take over what is done since."""
        self.is_changed = self.is_changed or state != self.state
        self.state = state

    def to_keep(self) -> FillState | None:
        """What is to be kept in the follower with the next position; None where nothing changed since the last time."""
        changed, self.is_changed = self.is_changed, False
        return self.state if changed else None

    # --- what is passed over

    def is_awaited(self, database: str, table: str) -> bool:
        """Whether a table that the follower lacks comes with a snapshot later."""
        name = f"{database}.{table}"
        return name in self._due or name in self.state.lacking or (self.state.awaits and name not in self.records)

    def passes_over(self, database: str, table: str) -> bool:
        """Whether changes of the table are passed over: it is not there, and comes with a snapshot."""
        if not self.is_awaited(database, table) or self._is_there(database, table):
            return False
        self.keep(replace(self.state, lacking=self.state.lacking | {f"{database}.{table}"}))
        return True

    def lacks_rows(self, table: TableSchema) -> bool:
        """Whether rows of a table that is there may be missing. Raises SettingsError where it lost its primary key
        meanwhile: which rows it has cannot be told any more."""
        name = f"{table.database}.{table.table}"
        fill = self.state.unfilled.get(name)
        if fill is not None and fill.stage is Stage.FILLING and not table.primary_key:
            raise SettingsError(
                f"{name} of the follower lacks rows that come with a snapshot, and has no primary key any more: they "
                "cannot be told from those that are there. Drop it on the follower, and take a snapshot of it."
            )
        return fill is not None

    def passes_over_definition(self, definition: Definition, at: BinlogCoordinates) -> bool:
        """Whether a definition, which is at ``at``, is about tables that the follower lacks, and that come with a
        snapshot as they are then.

        Raises SettingsError for one that is about such tables and others, or that would take rows from a table that
        lacks some to another.
        """
        lacks = bool(self._due or self.state.lacking or self.state.awaits)
        passes = lacks and self._passes_over(definition)
        if passes:
            self.is_defined(definition, at)
        elif unfilled := [name for name in map(".".join, _moves_rows(definition)) if name in self.state.unfilled]:
            raise SettingsError(
                f"{definition.sql[:500]!r} takes rows from one table to another, and {unfilled[0]} lacks rows that "
                "come with a snapshot. Drop both tables on the follower, and take a snapshot of both."
            )
        return passes

    def _passes_over(self, definition: Definition) -> bool:
        change = definition.read.change
        if isinstance(change, AlterDatabase | DropDatabase):
            return not self.session.rows(_DATABASE, change.name)
        if isinstance(change, CreateTable | CreateTableLike):
            maybe_there = self.state.awaits or change.if_not_exists
            if isinstance(change, CreateTableLike) and self.passes_over(*change.like):
                maybe_there = True
                self.keep(replace(self.state, lacking=self.state.lacking | {".".join(change.name)}))
            return maybe_there and self.passes_over(*change.name)
        needed = _needed(definition)
        passed = [name for name in needed if self.passes_over(*name)]
        if passed and len(passed) < len(needed):
            raise SettingsError(
                f"{definition.sql[:500]!r} is about {'.'.join(passed[0])}, which comes with a snapshot, "
                "and about tables that it has. Drop those on the follower, and take a snapshot of all of them."
            )
        return bool(passed)

    def is_defined(self, definition: Definition, at: BinlogCoordinates) -> None:
        """Note that a definition, which is at ``at``, ran or was passed over: tables may have another name
        since, or be gone."""
        change, state = definition.read.change, self.state
        pairs: list[tuple[TableName, TableName]] = []
        if isinstance(change, RenameTables):
            pairs = list(change.names)
        elif isinstance(change, AlterTable):
            pairs = [(change.name, action.name) for action in change.actions if isinstance(action, RenameTo)]
        for old, new in pairs:
            state = state.renamed(".".join(old), ".".join(new), at)
            if not self.follows(new.database):
                state = state.without(".".join(new))
        if isinstance(change, DropTables):
            for name in change.names:
                state = state.without(".".join(name))
        elif isinstance(change, DropDatabase):
            for table in (*state.tables, *state.lacking):
                if table.startswith(f"{change.name}."):
                    state = state.without(table)
        self.keep(state)

    def _is_there(self, database: str, table: str) -> bool:
        return bool(self.session.rows(_TABLE, database, table))

    # --- tables that are made

    def drop_begun(self) -> None:
        """Drop the tables that an earlier run had begun to make and may not have: they are made when their turn comes.

        Raises FollowerError for what the follower refuses.
        """
        state = self.state
        for name, fill in self.state.unfilled.items():
            if fill.stage is Stage.BEGUN:
                database, table = _parts(name)
                self.session.write(f"DROP TABLE IF EXISTS {quoted_name(database)}.{quoted_name(table)}")
                state = state.without(name)
        self.keep(state)

    def make_databases(self, at: BinlogCoordinates) -> None:
        """Make the databases that were there when a snapshot of all tables began, if that is ``at``."""
        if self.all_read is not None and self._awaited_to == at:
            for database, create in self.all_read.databases.items():
                if self.follows(database):
                    self._make_database(create)

    def _make_database(self, create: str) -> None:
        self.session.write(create.replace("CREATE DATABASE ", "CREATE DATABASE IF NOT EXISTS ", 1))

    def begin_made(self, at: BinlogCoordinates) -> dict[str, TableReadRecord]:
        """Note which tables are about to be made at ``at``, and return their records: `is_changed` has to be kept in
        the follower before they are made."""
        due = {
            name: record
            for name, record in self._due.items()
            if record.is_complete and BinlogCoordinates.parse(record.at) <= at
        }
        made: dict[str, TableReadRecord] = {}
        state = self.state if self._awaited_to != at else replace(self.state, awaits=False)
        for name, record in due.items():
            fill = state.tables.get(name)
            is_there = self._is_there(*_parts(name))
            if is_there and fill is not None and fill.stage is Stage.FILLING:
                taken_over = TableFill(record.snapshot, fill.at, name, Stage.FILLING)
                state = state.with_table(name, taken_over)
            elif not is_there:
                state = state.without(name)
                if record.create_table:
                    state = state.with_table(name, TableFill(record.snapshot, record.at, name))
                    made[name] = record
        self.keep(state)
        self._due = {name: record for name, record in self._due.items() if name not in due}
        return made

    def make(self, record: TableReadRecord) -> None:
        """Make a table that is not there. Raises FollowerError for what the follower refuses."""
        self._make_database(record.create_database)
        self.session.write(f"USE {quoted_name(_parts(record.table)[0])}")
        self.session.write(record.create_table)

    def is_made(self, record: TableReadRecord) -> None:
        """Note that the table is there; one without a key has all of its rows."""
        stage = Stage.FILLING if record.keyed else Stage.WHOLE
        rows = 0 if record.keyed else record.rows or 0
        self.keep(self.state.with_table(record.table, replace(self.state.tables[record.table], stage=stage, rows=rows)))

    # --- rows

    def takes(self, database: str, table: str, stretch: Stretch) -> bool:
        """Whether the rows of ``stretch``, as a snapshot read them, are to be written to the table."""
        name = f"{database}.{table}"
        fill = self.state.tables.get(name)
        assert stretch.read is not None
        if fill is None or fill.stage is not Stage.FILLING or fill.announced != name:
            return False
        if name in self._due and not self._is_there(database, table):  # somebody dropped it, to have it made again
            return False
        return BinlogCoordinates.parse(fill.at) <= stretch.read.base

    def is_taken(self, database: str, table: str, stretch: Stretch, count: int, behind: int) -> None:
        """Note that ``count`` rows of ``stretch`` are written, up to before the offset ``behind``."""
        name = f"{database}.{table}"
        fill = self.state.tables[name]
        assert stretch.read is not None
        if stretch.read.snapshot == fill.snapshot:
            fill = replace(fill, rows=fill.rows + count)
        state = self.state.with_table(name, fill)
        self.keep(replace(state, reads={**state.reads, stretch.partition: behind}))

    def settle(self) -> None:
        """Note which tables have all rows: those of which the snapshot has published no more than are written. One that
        was lacking may have been made anew by a statement."""
        state = self.state
        for name, fill in self.state.unfilled.items():
            record = self.records.get(fill.announced)
            if record and fill.is_whole_by(record):
                state = state.with_table(name, replace(fill, stage=Stage.WHOLE))
        lacking = frozenset(name for name in state.lacking if not self._is_there(*_parts(name)))
        self.keep(replace(state, lacking=lacking))

    @property
    def waiting(self) -> tuple[str, ...]:
        """The tables that wait for a snapshot, or for its rows."""
        unread = {name for name, record in self._due.items() if not record.is_complete}
        return tuple(sorted(self.state.lacking | unread | set(self.state.unfilled)))


def _parts(name: str) -> tuple[str, str]:
    database, _, table = name.partition(".")
    return database, table


def _moves_rows(definition: Definition) -> Sequence[TableName]:
    """The tables between which a definition moves rows: partitions are exchanged, or become tables."""
    change = definition.read.change
    if not isinstance(change, AlterTable):
        return ()
    moves = (PartitionToTable, TableToPartition, ExchangePartition)
    others = [action.name for action in change.actions if isinstance(action, moves)]
    return [change.name, *others] if others else ()


def _needed(definition: Definition) -> Sequence[TableName]:
    """The tables that have to be there for a definition to run."""
    change = definition.read.change
    if isinstance(change, RenameTables):
        needed: list[TableName] = []
        made: set[TableName] = set()
        for old, new in change.names:
            if old not in made:
                needed.append(old)
            made = made - {old} | {new}
        return needed
    return [change.name] if isinstance(change, AlterTable) else definition.read.tables
