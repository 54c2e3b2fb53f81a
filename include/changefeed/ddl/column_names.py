"""What the columns of a table are called in its other definitions: a name is followed through renames, both ways."""

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
    """(name in lower case, position from 0) of columns of ``table`` as it is for an event that begins at ``at``: the
    names that they have before and after, where they were renamed. CREATE TABLE … LIKE and RENAME TABLE take columns
    along, as tools do that migrate a table.

    A name is left out where two columns had it in this table, as one that was dropped and added again: which of them
    is meant is not known then.
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


class _Columns:
    """Numbers of the columns of each table, the same for a column under all of its names, and all ``names`` of each."""

    def __init__(self, tables: Mapping[TableName, Entry]) -> None:
        self._numbers = count()
        self._spelled: dict[TableName, list[str]] = {}
        self.of: dict[TableName, list[int]] = {}
        self.names: dict[int, set[tuple[TableName, str]]] = {}
        for name, table in tables.items():
            if isinstance(table, Table):
                self._put(name, table, {})

    def move(self, entry: HistoryEntry, timeline: SchemaTimeline) -> None:
        """Do what a statement did, by the tables that are stored as those after it."""
        if not entry.tables:
            return
        read = read_statement(entry.sql, SessionContext(entry.database), timeline.initial.server)
        origins, renamed = _origins(read), _renamed(read)
        before = {name: dict(zip(self._spelled[name], self.of[name], strict=True)) for name in self.of}
        for name in entry.tables:
            self.of.pop(name, None)
            self._spelled.pop(name, None)
        for name, table in entry.tables.items():
            if isinstance(table, Table):
                origin = origins.get(name, name)
                columns = dict(before.get(origin, {}))
                pairs = renamed if isinstance(read.change, AlterTable) and origin == read.change.name else {}
                moved = {new: columns.pop(old) for old, new in pairs.items() if old in columns}
                self._put(name, table, columns | moved)

    def _put(self, name: TableName, table: Table, known: Mapping[str, int]) -> None:
        self._spelled[name] = [column.name.lower() for column in table.schema.columns]
        self.of[name] = [known[column] if column in known else next(self._numbers) for column in self._spelled[name]]
        for column, number in zip(self._spelled[name], self.of[name], strict=True):
            self.names.setdefault(number, set()).add((name, column))


def _origins(read: DdlStatement) -> dict[TableName, TableName]:
    """Of tables that a statement makes: the table whose columns they have."""
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


def _renamed(read: DdlStatement) -> dict[str, str]:
    """Of columns that a statement renames: old name and new one, in lower case."""
    names: dict[str, str] = {}
    for action in read.change.actions if isinstance(read.change, AlterTable) else ():
        if isinstance(action, RenameColumn):
            names[action.old.lower()] = action.new.lower()
        elif isinstance(action, ChangeColumn):
            names[action.old.lower()] = action.column.name.lower()
    return names
