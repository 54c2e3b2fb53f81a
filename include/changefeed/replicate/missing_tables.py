"""Finds the changes and DDL that a follower skips, because a snapshot creates their missing tables later."""

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
from changefeed.replicate.ddl_record import DdlRecord
from changefeed.replicate.fill_state import FillStage
from changefeed.replicate.filling import Filling

_DATABASE = "SELECT 1 FROM information_schema.schemata WHERE schema_name = %s"


class MixedTablesError(Exception):
    """Internal error: a DDL statement concerns missing tables, and existing tables that a snapshot must fill again.

    ``names`` are the existing tables; with ``created``, these are their names after the statement. ``what`` describes
    the statement.
    """

    def __init__(self, names: Sequence[TableName], what: str, *, created: bool = False) -> None:
        super().__init__(what)
        self.names, self.what, self.created = names, what, created


@dataclass
class MissingTables:
    """The missing tables of a follower, which ``filling`` creates and fills."""

    filling: Filling

    def is_awaited(self, database: str, table: str) -> bool:
        """Whether a snapshot will create the table if it is missing."""
        name, filling = f"{database}.{table}", self.filling
        state = filling.state
        return filling.is_due(name) or name in state.missing or (state.awaits_snapshot and name not in filling.records)

    def skips(self, database: str, table: str) -> bool:
        """Whether changes of the table are skipped, because it is missing and a snapshot will create it."""
        if not self.is_awaited(database, table) or self.filling.has_table(database, table):
            return False
        self._note_missing(database, table)
        return True

    def _note_missing(self, database: str, table: str) -> None:
        state = self.filling.state
        self.filling.keep(replace(state, missing=state.missing | {f"{database}.{table}"}))

    def is_incomplete(self, table: TableSchema) -> bool:
        """Whether rows of an existing table may be missing.

        Raises SettingsError if the table lost its primary key meanwhile: then existing and missing rows cannot be
        distinguished.
        """
        name = f"{table.database}.{table.table}"
        fill = self.filling.state.unfilled.get(name)
        if fill is not None and fill.stage is FillStage.FILLING and not table.primary_key:
            raise SettingsError(
                f"{name} of the follower misses rows that come with a snapshot, and has no primary key any more, by "
                "which they are distinguished from existing rows. Drop it on the follower, and take a snapshot of it."
            )
        return fill is not None

    def skips_ddl(self, ddl: DdlRecord, at: BinlogCoordinates) -> bool:
        """Whether the DDL statement at ``at`` is skipped, because a snapshot will create its tables. Updates the state.

        Raises MixedTablesError if the statement also concerns existing tables, or if it moves rows to another table
        from a table that is incomplete or not captured.
        """
        if from_uncaptured := self._tables_from_uncaptured(ddl):
            self._skip_from_uncaptured(ddl, from_uncaptured, at)
            return True
        state = self.filling.state
        skips = bool(self.filling.has_due or state.missing or state.awaits_snapshot) and self._skips(ddl)
        if skips:
            self.note_ddl(ddl, at)
        elif moved := [name for name in map(".".join, _moves_rows(ddl)) if name in state.unfilled]:
            raise MixedTablesError(
                _moves_rows(ddl),
                f"{ddl.sql[:500]!r} moves rows from one table to another, and {moved[0]} misses rows that "
                "come with a snapshot.",
            )
        return skips

    def _tables_from_uncaptured(self, ddl: DdlRecord) -> Sequence[TableName]:
        """The captured tables that the statement creates or fills from tables that the pipeline does not capture.

        Their columns and rows are not known.
        """
        change, scope = ddl.statement.change, self.filling.scope
        pairs: list[tuple[TableName, TableName]] = []
        if isinstance(change, RenameTables):
            first: dict[TableName, TableName] = {}
            for old, new in change.names:
                first[new] = first.pop(old, old)
            pairs = [(old, new) for new, old in first.items()]
        elif isinstance(change, CreateTableLike) and not (
            change.if_not_exists and self.filling.has_table(*change.name)
        ):
            pairs = [(change.like, change.name)]
        elif isinstance(change, AlterTable):
            pairs = [(change.name, action.name) for action in change.actions if isinstance(action, RenameTo)]
            takes_in = (ExchangePartition, TableToPartition)
            moved = [action.name for action in change.actions if isinstance(action, takes_in)]
            pairs += [(name, change.name) for name in moved if scope.takes(*name)]
        return [new for old, new in pairs if scope.captures(*new) and scope.may_name(*old) and not scope.captures(*old)]

    def _skip_from_uncaptured(
        self, ddl: DdlRecord, from_uncaptured: Sequence[TableName], at: BinlogCoordinates
    ) -> None:
        """Skip DDL that creates the tables ``from_uncaptured``, which are missing and which a snapshot will fill.

        Raises MixedTablesError if one of them exists, or if the statement also concerns other existing tables.
        """
        what = f"{ddl.sql[:500]!r} makes {from_uncaptured[0]} from a table that the pipeline does not capture."
        if there := [name for name in from_uncaptured if not self.skips(*name)]:
            raise MixedTablesError(there, what, created=True)
        captures = self.filling.scope.captures
        if others := [name for name in _required_tables(ddl) if captures(*name) and not self.skips(*name)]:
            raise MixedTablesError(others, what)
        self.note_ddl(ddl, at)
        for name in from_uncaptured:
            self._note_missing(*name)

    def _skips(self, ddl: DdlRecord) -> bool:
        change = ddl.statement.change
        if isinstance(change, AlterDatabase | DropDatabase):
            return not self.filling.session.rows(_DATABASE, change.name)
        if isinstance(change, CreateTable | CreateTableLike):
            reads = isinstance(change, CreateTable) and change.select  # in statement format
            maybe_there = self.filling.state.awaits_snapshot or change.if_not_exists or reads
            if isinstance(change, CreateTableLike) and self.skips(*change.like):
                maybe_there = True
                self._note_missing(*change.name)
            return maybe_there and self.skips(*change.name)
        required = _required_tables(ddl)
        skipped = [name for name in required if self.skips(*name)]
        if isinstance(change, DropTables):  # it runs if any of its tables exists
            return bool(skipped) and len(skipped) == len(required)
        if skipped and len(skipped) < len(required):
            raise MixedTablesError(
                [name for name in required if name not in skipped],
                f"{ddl.sql[:500]!r} concerns {'.'.join(skipped[0])}, which comes with a snapshot, "
                "and tables that the follower has.",
            )
        if skipped:
            for created in _created_tables(ddl):  # their rows are missing on the follower
                self._note_missing(*created)
        return bool(skipped)

    def note_ddl(self, ddl: DdlRecord, at: BinlogCoordinates) -> None:
        """Update the state after the DDL at ``at`` ran or was skipped, because it may rename or drop tables."""
        change, state = ddl.statement.change, self.filling.state
        pairs: list[tuple[TableName, TableName]] = []
        if isinstance(change, RenameTables):
            pairs = list(change.names)
        elif isinstance(change, AlterTable):
            pairs = [(change.name, action.name) for action in change.actions if isinstance(action, RenameTo)]
        for old, new in pairs:
            state = state.with_renamed_table(".".join(old), ".".join(new), at)
            if not self.filling.scope.captures(*new):
                state = state.without(".".join(new))
        if isinstance(change, DropTables):
            for name in change.names:
                state = state.without(".".join(name))
        elif isinstance(change, DropDatabase):
            for table in (*state.tables, *state.missing):
                if table.startswith(f"{change.name}."):
                    state = state.without(table)
        self.filling.keep(state)


def _moves_rows(ddl: DdlRecord) -> Sequence[TableName]:
    """The tables between which a statement moves rows: it exchanges partitions, or converts them to or from tables."""
    change = ddl.statement.change
    if not isinstance(change, AlterTable):
        return ()
    moves = (PartitionToTable, TableToPartition, ExchangePartition)
    others = [action.name for action in change.actions if isinstance(action, moves)]
    return [change.name, *others] if others else ()


def _required_tables(ddl: DdlRecord) -> Sequence[TableName]:
    """The tables that must exist before a statement can run."""
    change = ddl.statement.change
    if isinstance(change, RenameTables):
        required: list[TableName] = []
        created: set[TableName] = set()
        for old, new in change.names:
            if old not in created:
                required.append(old)
            created = created - {old} | {new}
        return required
    moved = [name for name in _moves_rows(ddl) if name not in _created_tables(ddl)]
    return (moved or [change.name]) if isinstance(change, AlterTable) else ddl.statement.tables


def _created_tables(ddl: DdlRecord) -> Sequence[TableName]:
    """The tables that an ALTER TABLE creates from partitions."""
    change = ddl.statement.change
    actions = change.actions if isinstance(change, AlterTable) else ()
    return [each.name for each in actions if isinstance(each, PartitionToTable)]
