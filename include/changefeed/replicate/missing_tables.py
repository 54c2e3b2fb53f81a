"""Tables that a follower does not have yet, because a snapshot creates them later: what is skipped until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import TableSchema
from changefeed.replicate.definitions import Definition
from changefeed.replicate.fill_state import Stage
from changefeed.replicate.filling import Filling

_DATABASE = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"


class TablesBesideError(Exception):
    """Not for users: ``what`` a definition does takes rows between tables that the follower lacks and ``names``, which
    it has: a snapshot has to fill them, too. With ``made`` they are called so when it has run."""

    def __init__(self, names: Sequence[TableName], what: str, *, made: bool = False) -> None:
        super().__init__(what)
        self.names, self.what, self.made = names, what, made


@dataclass
class MissingTables:
    """The tables that the follower does not have, and that ``filling`` is to create or to fill."""

    filling: Filling

    def is_awaited(self, database: str, table: str) -> bool:
        """Whether a table that the follower lacks comes with a snapshot later."""
        name, filling = f"{database}.{table}", self.filling
        state = filling.state
        return filling.is_due(name) or name in state.lacking or (state.awaits and name not in filling.records)

    def skips(self, database: str, table: str) -> bool:
        """Whether changes of the table are skipped: it is not there, and comes with a snapshot."""
        if not self.is_awaited(database, table) or self.filling.is_there(database, table):
            return False
        self._note_missing(database, table)
        return True

    def _note_missing(self, database: str, table: str) -> None:
        state = self.filling.state
        self.filling.keep(replace(state, lacking=state.lacking | {f"{database}.{table}"}))

    def lacks_rows(self, table: TableSchema) -> bool:
        """Whether rows of a table that is there may be missing. Raises SettingsError where it lost its primary key
        meanwhile: which rows it has cannot be told any more."""
        name = f"{table.database}.{table.table}"
        fill = self.filling.state.unfilled.get(name)
        if fill is not None and fill.stage is Stage.FILLING and not table.primary_key:
            raise SettingsError(
                f"{name} of the follower lacks rows that come with a snapshot, and has no primary key any more: they "
                "cannot be told from those that are there. Drop it on the follower, and take a snapshot of it."
            )
        return fill is not None

    def skips_definition(self, definition: Definition, at: BinlogCoordinates) -> bool:
        """Whether a definition, which is at ``at``, is about tables that the follower lacks, and that come with a
        snapshot as they are then.

        Raises TablesBesideError for one that is about such tables and others, that would take rows from a table that
        lacks some to another, or from one that the pipeline does not capture.
        """
        if brought := self._brought(definition):
            self._skip_brought(definition, brought, at)
            return True
        state = self.filling.state
        skips = bool(self.filling.has_due or state.lacking or state.awaits) and self._skips(definition)
        if skips:
            self.note_definition(definition, at)
        elif moved := [name for name in map(".".join, _moves_rows(definition)) if name in state.unfilled]:
            raise TablesBesideError(
                _moves_rows(definition),
                f"{definition.sql[:500]!r} takes rows from one table to another, and {moved[0]} lacks rows that "
                "come with a snapshot.",
            )
        return skips

    def _brought(self, definition: Definition) -> Sequence[TableName]:
        """The tables that a definition makes of what the pipeline does not capture, so that nothing of it is known."""
        change, scope = definition.read.change, self.filling.scope
        pairs: list[tuple[TableName, TableName]] = []
        if isinstance(change, RenameTables):
            first: dict[TableName, TableName] = {}
            for old, new in change.names:
                first[new] = first.pop(old, old)
            pairs = [(old, new) for new, old in first.items()]
        elif isinstance(change, CreateTableLike) and not (change.if_not_exists and self.filling.is_there(*change.name)):
            pairs = [(change.like, change.name)]
        elif isinstance(change, AlterTable):
            pairs = [(change.name, action.name) for action in change.actions if isinstance(action, RenameTo)]
            takes_in = (ExchangePartition, TableToPartition)
            moved = [action.name for action in change.actions if isinstance(action, takes_in)]
            pairs += [(name, change.name) for name in moved if scope.takes(*name)]
        return [new for old, new in pairs if scope.captures(*new) and scope.may_name(*old) and not scope.captures(*old)]

    def _skip_brought(self, definition: Definition, brought: Sequence[TableName], at: BinlogCoordinates) -> None:
        """Skip a definition that makes the tables ``brought``, which a snapshot fills: the follower lacks them by now.

        Raises TablesBesideError where it does not, and where the definition is about others that it has.
        """
        what = f"{definition.sql[:500]!r} makes {brought[0]} of a table that the pipeline does not capture."
        if there := [name for name in brought if not self.skips(*name)]:
            raise TablesBesideError(there, what, made=True)
        captures = self.filling.scope.captures
        if others := [name for name in _needed(definition) if captures(*name) and not self.skips(*name)]:
            raise TablesBesideError(others, what)
        self.note_definition(definition, at)
        for name in brought:
            self._note_missing(*name)

    def _skips(self, definition: Definition) -> bool:
        change = definition.read.change
        if isinstance(change, AlterDatabase | DropDatabase):
            return not self.filling.session.rows(_DATABASE, change.name)
        if isinstance(change, CreateTable | CreateTableLike):
            reads = isinstance(change, CreateTable) and change.select  # in statement format
            maybe_there = self.filling.state.awaits or change.if_not_exists or reads
            if isinstance(change, CreateTableLike) and self.skips(*change.like):
                maybe_there = True
                self._note_missing(*change.name)
            return maybe_there and self.skips(*change.name)
        needed = _needed(definition)
        skipped = [name for name in needed if self.skips(*name)]
        if isinstance(change, DropTables):  # those that are there are dropped
            return bool(skipped) and len(skipped) == len(needed)
        if skipped and len(skipped) < len(needed):
            raise TablesBesideError(
                [name for name in needed if name not in skipped],
                f"{definition.sql[:500]!r} is about {'.'.join(skipped[0])}, which comes with a snapshot, "
                "and about tables that the follower has.",
            )
        if skipped:
            for made in _made(definition):  # with rows that the follower lacks
                self._note_missing(*made)
        return bool(skipped)

    def note_definition(self, definition: Definition, at: BinlogCoordinates) -> None:
        """Note that a definition, which is at ``at``, ran or was skipped: tables may have another name
        since, or be gone."""
        change, state = definition.read.change, self.filling.state
        pairs: list[tuple[TableName, TableName]] = []
        if isinstance(change, RenameTables):
            pairs = list(change.names)
        elif isinstance(change, AlterTable):
            pairs = [(change.name, action.name) for action in change.actions if isinstance(action, RenameTo)]
        for old, new in pairs:
            state = state.renamed(".".join(old), ".".join(new), at)
            if not self.filling.scope.captures(*new):
                state = state.without(".".join(new))
        if isinstance(change, DropTables):
            for name in change.names:
                state = state.without(".".join(name))
        elif isinstance(change, DropDatabase):
            for table in (*state.tables, *state.lacking):
                if table.startswith(f"{change.name}."):
                    state = state.without(table)
        self.filling.keep(state)


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
    moved = [name for name in _moves_rows(definition) if name not in _made(definition)]
    return (moved or [change.name]) if isinstance(change, AlterTable) else definition.read.tables


def _made(definition: Definition) -> Sequence[TableName]:
    """The tables that an ALTER TABLE makes of partitions."""
    change = definition.read.change
    actions = change.actions if isinstance(change, AlterTable) else ()
    return [each.name for each in actions if isinstance(each, PartitionToTable)]
