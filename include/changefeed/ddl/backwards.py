"""The schemas along a range of the binlog, derived from the schemas at its end.

1. The statements are applied backwards, from the end of the range to its start.
2. They are applied forwards, from the schemas derived for the start.
3. Both results for a table are compared with the TABLE_MAPs of its rows.

A table without a result that fits its rows is an UnknownTable. No schema is guessed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.ddl.changes import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateSequence,
    CreateTable,
    CreateTableLike,
    CreateView,
    DropDatabase,
    DropTables,
    PartitionToTable,
    RenameTables,
    RenameTo,
    TableToPartition,
    UnreadChange,
)
from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.draft import Draft, UnresolvedError, fits_rows
from changefeed.ddl.inversion import before_alter
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import SEQUENCE, Entry, Schemas, is_temporary
from changefeed.ddl.seen_rows import RowsByTable, SeenRows
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import SchemaTimeline
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.row_shape import fits
from changefeed.model.table_schema import TableSchema


@dataclass(frozen=True)
class ReadStatement:
    """A statement of the binlog that changes schemas, and the coordinates of its event."""

    at: BinlogCoordinates
    read: DdlStatement


def derived_timeline(
    now: Schemas,
    statements: Iterable[ReadStatement],
    rows: RowsByTable,
    collations: Mapping[int, str],
    known: Mapping[TableName, Entry],
) -> SchemaTimeline:
    """The timeline of a range of the binlog.

    ``now`` has the schemas at the range's end, and ``statements`` all statements of the range in order. ``rows`` has
    its rows, and ``collations`` the names of the collation ids in TABLE_MAPs. ``known`` has tables at the range's start
    that are known from another source.
    """
    moving = [statement for statement in statements if statement.read.change is not None]
    backwards = _Backwards(now, moving, rows, collations)
    return _Forwards(backwards, moving, rows, collations).timeline(known)


class _Touches:
    """The coordinates of the statements that touch each table."""

    def __init__(self, statements: Sequence[ReadStatement]) -> None:
        self._of_table: dict[TableName, list[BinlogCoordinates]] = defaultdict(list)
        self._of_database: dict[str, list[BinlogCoordinates]] = defaultdict(list)
        self._changes = {statement.at: statement.read.change for statement in statements}
        for statement in statements:
            change = statement.read.change
            if isinstance(change, DropDatabase) or (isinstance(change, CreateDatabase) and change.replace):
                self._of_database[change.name].append(statement.at)
            for name in statement.read.tables:
                self._of_table[name].append(statement.at)

    def _lists(self, name: TableName) -> tuple[list[BinlogCoordinates], list[BinlogCoordinates]]:
        return self._of_table.get(name, []), self._of_database.get(name.database, [])

    def before(self, name: TableName, at: BinlogCoordinates) -> BinlogCoordinates | None:
        """The last statement before ``at`` that touches the table; None if there is none."""
        found = [each[count - 1] for each in self._lists(name) if (count := bisect_left(each, at))]
        return max(found, default=None)

    def after(self, name: TableName, at: BinlogCoordinates | None) -> BinlogCoordinates | None:
        """The first statement after ``at`` that touches the table; None if there is none."""
        lists = self._lists(name)
        counts = [0 if at is None else bisect_right(each, at) for each in lists]
        found = [each[count] for each, count in zip(lists, counts, strict=True) if count < len(each)]
        return min(found, default=None)

    def was_gone(self, name: TableName, at: BinlogCoordinates) -> bool:
        """Whether the last statement before ``at`` that touches the table removed it."""
        before = self.before(name, at)
        return before is not None and isinstance(self._changes[before], DropTables | DropDatabase)


class _Backwards:
    """Derives the state of each table before each statement from its state after the statement, as far as possible."""

    def __init__(
        self, now: Schemas, statements: Sequence[ReadStatement], rows: RowsByTable, collations: Mapping[int, str]
    ) -> None:
        self.server, self.now = now.server, now
        self._rows, self._collations = rows, collations
        self._touches = _Touches(statements)
        self._tables: dict[TableName, Draft | UnknownTable] = {
            name: Draft.of(entry) if isinstance(entry, Table) else entry for name, entry in now.tables.items()
        }
        self._databases = dict(now.databases)
        self._views = set(now.views)
        self.after: dict[BinlogCoordinates, dict[TableName, Entry | None]] = {}
        """For each statement, the state after it of the tables that it touches; None if the table does not exist."""
        for statement in reversed(statements):
            names = self._touched_tables(statement.read)
            self.after[statement.at] = {name: self.entry(name) for name in names}
            for name in names:
                if isinstance(unknown := self._tables.get(name), UnknownTable):
                    self._tables[name] = replace(unknown, known=())  # they belong to the rows after the statement
            self._invert(statement)
            for name in names:
                self._resolve(name, statement.at)
        self.initial = Schemas(
            now.server,
            self._databases,
            {name: entry for name in self._tables if (entry := self.entry(name)) is not None},
            frozenset(self._views),
        )

    def _touched_tables(self, read: DdlStatement) -> list[TableName]:
        names = list(read.tables)
        if isinstance(read.change, DropDatabase | CreateDatabase):
            known = dict.fromkeys([*self._tables, *self._rows.names])
            names += [name for name in known if name.database == read.change.name]
        return names

    def entry(self, name: TableName) -> Entry | None:
        """The state of a table at this point; None if it does not exist."""
        draft = self._tables.get(name)
        if not isinstance(draft, Draft):
            return draft
        try:
            return draft.table()
        except UnresolvedError as problem:
            known = () if draft.floating else tuple(slot.column for slot in draft.slots)
            return UnknownTable(name, str(problem), known=known)

    # --- one statement

    def _invert(self, statement: ReadStatement) -> None:
        where, tables = str(statement.at), self._tables
        match statement.read.change:
            case CreateTable(name=name, if_not_exists=True) | CreateTableLike(name=name, if_not_exists=True):
                if self._touches.was_gone(name, statement.at):
                    tables.pop(name, None)
                elif not isinstance(tables.get(name), Draft):
                    tables[name] = UnknownTable(name, f"it may have been there before CREATE TABLE at {where}")
            case CreateTableLike(name=name, like=like, replace=replaced):
                self._learn(like, name, statement.at)
                self._uncreate(name, where if replaced else "")
            case CreateTable(name=name, replace=replaced) | CreateSequence(name=name, replace=replaced):
                self._uncreate(name, where if replaced else "")
            case DropTables(names=names, sequences=sequences):
                for name in names:
                    sequence = Draft.of(Table(TableSchema(*name, SEQUENCE, (), ()), self.server.collation))
                    tables[name] = sequence if sequences else UnknownTable(name, f"it was dropped at {where}")
            case RenameTables(names=pairs):
                for number in reversed(range(len(pairs))):
                    old, new = pairs[number]
                    if not is_temporary(old, pairs[number + 1 :]):
                        self._rename(new, old, where)
            case AlterTable():
                self._unalter(statement)
            case CreateDatabase(name=database, if_not_exists=False, replace=False):
                self._databases.pop(database, None)
            case CreateDatabase(name=database, if_not_exists=True):
                # If the database was there before, the statement did not change it. If it is not there now, somebody
                # removed it without the binlog, and its charset is unknown.
                self._databases.setdefault(database, "")
            case CreateDatabase(name=database) | AlterDatabase(name=database):
                self._databases[database] = ""  # unknown, and so are the properties that tables inherit from it
            case DropDatabase(name=database):
                self._databases[database] = ""
                for name in {*self._rows.names, *tables}:
                    if name.database == database:
                        tables[name] = UnknownTable(name, f"its database was dropped at {where}")
            case CreateView(name=name):
                self._views.discard(name)
            case UnreadChange(names=names, problem=problem):
                for name in names:
                    if name in tables:
                        tables[name] = UnknownTable(name, f"the statement at {where} cannot be followed: {problem}")

    def _uncreate(self, name: TableName, replaced_at: str) -> None:
        self._tables.pop(name, None)
        if replaced_at:
            self._tables[name] = UnknownTable(name, f"it was replaced at {replaced_at}")

    def _learn(self, like: TableName, copy: TableName, at: BinlogCoordinates) -> None:
        """Take the columns of the unknown table ``like`` from its copy, which has the same columns."""
        known = self._tables.get(copy)
        if isinstance(known, Draft) and isinstance(self._tables.get(like), UnknownTable):
            self._tables[like] = replace(known, name=like)
            self._resolve(like, at)

    def _rename(self, new: TableName, old: TableName, where: str) -> None:
        if new in self._views:
            self._views = self._views - {new} | {old}
            return
        table = self._tables.pop(new, None)
        self._tables[old] = (
            _with_name(table, old) if table else UnknownTable(old, f"what it was renamed to at {where} is gone")
        )

    def _unalter(self, statement: ReadStatement) -> None:
        change = statement.read.change
        assert isinstance(change, AlterTable)
        where, name = str(statement.at), change.name
        for action in change.actions:
            if isinstance(action, PartitionToTable):
                self._tables.pop(action.name, None)
        final = next((each.name for each in reversed(change.actions) if isinstance(each, RenameTo)), name)
        if final != name:
            self._rename(final, name, where)
        table = self._tables.get(name)
        if isinstance(table, Draft):
            seen = next(iter(self._rows_before(name, statement.at)), None)
            try:
                table = before_alter(table, change.actions, where, seen)
            except UnresolvedError as problem:
                table = UnknownTable(name, str(problem))
            self._tables[name] = table
        for action in change.actions:
            if isinstance(action, TableToPartition) and table is not None:
                self._tables[action.name] = _with_name(table, action.name)

    # --- rows

    def _rows_before(self, name: TableName, at: BinlogCoordinates) -> list[SeenRows]:
        return self._rows.between(name, self._touches.before(name, at), at)

    def _resolve(self, name: TableName, at: BinlogCoordinates) -> None:
        """Resolve unknown properties of a table by its rows before ``at``."""
        draft = self._tables.get(name)
        if not isinstance(draft, Draft):
            return
        for seen in self._rows_before(name, at):
            try:
                draft = draft.resolve(seen, self.server, self._collations)
            except UnresolvedError as problem:
                self._tables[name] = UnknownTable(name, str(problem), known=draft.known_columns(seen, self._collations))
                return
        self._tables[name] = draft


def _with_name(table: Draft | UnknownTable, name: TableName) -> Draft | UnknownTable:
    return replace(table, name=name)


class _Forwards:
    """Applies the statements forwards, and chooses the state of each table by both results and its rows."""

    def __init__(
        self,
        backwards: _Backwards,
        statements: Sequence[ReadStatement],
        rows: RowsByTable,
        collations: Mapping[int, str],
    ) -> None:
        self._backwards, self._statements, self._rows, self._collations = backwards, statements, rows, collations
        self._now = backwards.now
        self._touches = _Touches(statements)

    def timeline(self, known: Mapping[TableName, Entry]) -> SchemaTimeline:
        """The timeline, from the tables that were derived backwards, and tables that are known from another source."""
        timeline = SchemaTimeline(self._first(self._backwards.initial, known))
        for statement in self._statements:
            after = timeline.latest.apply(statement.read)
            derived = self._backwards.after[statement.at]
            names = {*derived, *(name for name, _ in timeline.latest.differences(after))}
            tables = dict(after.tables)
            for name in sorted(names):
                entry = self._entry(name, tables.get(name), derived.get(name), statement.at)
                if entry is None:
                    tables.pop(name, None)
                else:
                    tables[name] = entry
            if tables != after.tables:
                after = replace(after, tables=tables)
            if statement is self._statements[-1]:
                after = replace(after, databases=self._now.databases)
            if after is timeline.latest and statement.read.kind == "harmless":
                continue
            timeline = timeline.with_statement(statement.at, statement.read, after)
        return timeline

    def _first(self, initial: Schemas, known: Mapping[TableName, Entry]) -> Schemas:
        names = dict.fromkeys([*initial.tables, *known, *self._rows.names])
        backwards: dict[TableName, Entry | None] = dict(initial.tables)
        for name, entry in known.items():
            if isinstance(entry, Table) and self._fits(entry, self._rows_after(name, None)):
                backwards[name] = entry  # the derived table can only be less certain
        tables = {name: self._entry(name, known.get(name), backwards.get(name), None) for name in names}
        return replace(initial, tables={name: entry for name, entry in tables.items() if entry is not None})

    def _entry(
        self, name: TableName, forward: Entry | None, backward: Entry | None, at: BinlogCoordinates | None
    ) -> Entry | None:
        """The state of a table after the statement at ``at``, or at the range's start."""
        rows = self._rows_after(name, at)
        found = (self._with_collations(entry, rows) for entry in (forward, backward) if isinstance(entry, Table))
        candidates = [entry for entry in found if entry is not None]
        fitting = [entry for entry in candidates if self._fits(entry, rows)]
        if len(fitting) == 2 and _knows_less(*fitting):
            fitting.reverse()
        if len(fitting) == 2 and not fitting[0].schema.reads_like(fitting[1].schema):
            if rows and not _differ_in_collations(*fitting):
                problem = "the statements before its rows and those after them contradict each other"
                return _with_rows(UnknownTable(name, problem), rows)
            return fitting[1]
        if fitting:
            return fitting[0]
        if candidates:
            shown = ", ".join(f"{column.name} {column.data_type}" for column in candidates[0].schema.columns)
            return _with_rows(UnknownTable(name, f"its rows contradict the statements, which result in {shown}"), rows)
        unknown = next((entry for entry in (backward, forward) if isinstance(entry, UnknownTable)), None)
        if unknown is None and rows:
            unknown = UnknownTable(name, "neither the server nor a statement after its rows has it")
        return unknown and _with_rows(unknown, rows)

    def _rows_after(self, name: TableName, at: BinlogCoordinates | None) -> list[SeenRows]:
        rows = self._rows.between(name, at, self._touches.after(name, at))
        return [seen for seen in rows if not seen.names_columns]

    def _with_collations(self, table: Table, rows: Sequence[SeenRows]) -> Table | None:
        """The table with collations from its rows, for columns that inherit them from an unknown database.

        None if the rows do not show these collations.
        """
        if all(column.collation != "" for column in table.schema.columns):
            return table
        shown = rows[0].columns if rows else ()
        if len(shown) < len(table.schema.columns):
            return None
        columns = []
        for column, row in zip(table.schema.columns, shown, strict=False):
            if column.collation == "" and (row.collation is None or row.collation not in self._collations):
                return None
            shows = column.collation == "" and row.collation is not None
            columns.append(replace(column, collation=self._collations[row.collation]) if shows else column)  # type: ignore[index]
        return replace(table, schema=replace(table.schema, columns=tuple(columns)))

    def _fits(self, table: Table, rows: Sequence[SeenRows]) -> bool:
        return all(fits_rows(table, seen, self._backwards.server, self._collations) for seen in rows)


def _differ_in_collations(one: Table, other: Table) -> bool:
    """Whether two tables differ only in collations. A column may have inherited one from another default."""

    def plain(table: Table) -> TableSchema:
        columns = tuple(replace(column, collation=None) for column in table.schema.columns)
        return replace(table.schema, columns=columns)

    return plain(one).reads_like(plain(other))


def _knows_less(one: Table, other: Table) -> bool:
    """Whether both tables have the same columns, and ``one`` misses indexes or nullability that ``other`` may have."""
    if not one.schema.reads_like(other.schema):
        return False
    nullable = any(column.nullable is None for column in one.schema.columns)
    return nullable or (one.schema.indexes is None and other.schema.indexes is not None)


def _with_rows(table: UnknownTable, rows: Sequence[SeenRows]) -> UnknownTable:
    """The table with the number and the range of its rows, and with the columns of the first rows."""
    if not rows:
        return replace(table, rows=0, first="", last="", columns=(), known=())
    known, columns = table.known, rows[0].columns
    if len(known) != len(columns) or any(c and not fits(c, row) for c, row in zip(known, columns, strict=True)):
        known = ()
    return replace(
        table,
        rows=sum(seen.rows for seen in rows),
        first=str(rows[0].first),
        last=str(rows[-1].first),
        columns=rows[0].columns,
        known=known,
    )
