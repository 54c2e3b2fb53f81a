"""The names of a table's columns at other times, followed through renames forwards and backwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from changefeed.ddl.changes import (
    AlterTable,
    ChangeColumn,
    CreateTableLike,
    PartitionToTable,
    RenameColumn,
    RenameTables,
    RenameTo,
)
from changefeed.ddl.ddl_statement import DdlStatement, read_statement
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry
from changefeed.ddl.session import SessionContext
from changefeed.ddl.table import Table
from changefeed.ddl.timeline import HistoryEntry, SchemaTimeline
from changefeed.model.coordinates import BinlogCoordinates


def other_names(timeline: SchemaTimeline, at: BinlogCoordinates, table: TableName) -> tuple[tuple[str, int], ...]:
    """(name in lower case, position from 0) of the earlier and later names of columns of ``table``.

    The positions are those for an event that begins at ``at``. Columns are also followed through CREATE TABLE … LIKE
    and RENAME TABLE, because migration tools use these statements. A name that two columns had is omitted as ambiguous,
    for example if a column was dropped and added again.
    """
    columns = _Columns(timeline.initial.tables)
    here: Sequence[int] | None = columns.of.get(table)
    for entry in timeline.entries:
        if entry.coordinates < at:
            columns.move(entry, timeline)
            here = columns.of.get(table)
    for entry in timeline.entries:
        if entry.coordinates >= at:
            columns.move(entry, timeline)
    known: dict[str, int] = {}
    doubtful: set[str] = set()
    for position, column in enumerate(here or ()):
        for _, name in columns.names[column]:
            if name in known and known[name] != position:
                doubtful.add(name)
            known[name] = position
    for column, names in columns.names.items():
        if here is not None and column not in here:
            doubtful |= {name for its, name in names if its == table}
    return tuple(sorted((name, position) for name, position in known.items() if name not in doubtful))


def all_names(timeline: SchemaTimeline) -> list[frozenset[tuple[TableName, str]]]:
    """For each column of each table, dropped ones too, all (table, name in lower case) that it ever had."""
    columns = _Columns(timeline.initial.tables)
    for entry in timeline.entries:
        columns.move(entry, timeline)
    return [frozenset(names) for names in columns.names.values()]


class _Columns:
    """A number for each column of each table, which stays the same through renames, and all ``names`` of each."""

    def __init__(self, tables: Mapping[TableName, Entry]) -> None:
        self._numbers = count()
        self._spelled: dict[TableName, list[str]] = {}
        self.of: dict[TableName, list[int]] = {}
        self.names: dict[int, set[tuple[TableName, str]]] = {}
        for name, table in tables.items():
            if isinstance(table, Table):
                self._add_table(name, table, {})

    def move(self, entry: HistoryEntry, timeline: SchemaTimeline) -> None:
        """Apply a statement. The stored tables of ``entry`` are the tables after it."""
        if not entry.tables:
            return
        read = read_statement(entry.sql, SessionContext(entry.database), timeline.initial.server)
        origins, renamed = _origins(read), _renamed_columns(read)
        concerned = {*entry.tables, *origins.values()} & self.of.keys()
        before = {name: dict(zip(self._spelled[name], self.of[name], strict=True)) for name in concerned}
        for name in entry.tables:
            self.of.pop(name, None)
            self._spelled.pop(name, None)
        for name, table in entry.tables.items():
            if isinstance(table, Table):
                origin = origins.get(name, name)
                columns = dict(before.get(origin, {}))
                pairs = renamed if isinstance(read.change, AlterTable) and origin == read.change.name else {}
                moved = {new: columns.pop(old) for old, new in pairs.items() if old in columns}
                self._add_table(name, table, columns | moved)

    def _add_table(self, name: TableName, table: Table, known: Mapping[str, int]) -> None:
        self._spelled[name] = [column.name.lower() for column in table.schema.columns]
        self.of[name] = [known[column] if column in known else next(self._numbers) for column in self._spelled[name]]
        for column, number in zip(self._spelled[name], self.of[name], strict=True):
            self.names.setdefault(number, set()).add((name, column))


def _origins(read: DdlStatement) -> dict[TableName, TableName]:
    """For each table that a statement creates or renames, the table whose columns it gets."""
    change = read.change
    origins: dict[TableName, TableName] = {}
    if isinstance(change, CreateTableLike):
        origins[change.name] = change.like
    elif isinstance(change, RenameTables):
        for old, new in change.names:
            origins[new] = origins.pop(old, old)
    elif isinstance(change, AlterTable):
        for action in change.actions:
            if isinstance(action, RenameTo | PartitionToTable):
                origins[action.name] = change.name
    return origins


def _renamed_columns(read: DdlStatement) -> dict[str, str]:
    """The new name, by old name, of columns that a statement renames. Names are in lower case."""
    names: dict[str, str] = {}
    for action in read.change.actions if isinstance(read.change, AlterTable) else ():
        if isinstance(action, RenameColumn):
            names[action.old.lower()] = action.new.lower()
        elif isinstance(action, ChangeColumn):
            names[action.old.lower()] = action.column.name.lower()
    return names
