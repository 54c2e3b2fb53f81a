"""The schemas along a binlog: the initial schemas, and each statement that changed them, with its coordinates."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from changefeed.ddl.ddl_statement import DdlStatement, Kind
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.schemas_json import entry_from_json, entry_to_json, schemas_from_json, schemas_to_json
from changefeed.ddl.table import Table
from changefeed.model.coordinates import BinlogCoordinates

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

RELEARNED = "relearned"
"""The kind of an entry without a statement: changefeed read a table from the server again."""


@dataclass(frozen=True)
class HistoryEntry:
    """One change: the coordinates of its event, the raw statement, and the resulting tables and databases.

    ``tables`` has the tables after the statement, and ``databases`` the collations of databases; None for dropped ones.
    So a stored history stays the same, even if a later version of changefeed parses the statement in another way.
    """

    coordinates: BinlogCoordinates
    kind: str
    database: str
    sql: str
    touched: tuple[TableName, ...] = ()
    tables: Mapping[TableName, Entry | None] = field(default_factory=dict)
    databases: Mapping[str, str | None] = field(default_factory=dict)
    views: Mapping[TableName, bool] = field(default_factory=dict)
    """Names of views that were created (True) or dropped (False)."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the schemas before and after this entry are equal."""
        return not self.tables and not self.databases and not self.views

    def to_json(self) -> dict[str, Any]:
        """Plain values for storage, which `from_json` reads."""
        values = {
            "coordinates": str(self.coordinates),
            "kind": self.kind,
            "database": self.database,
            "sql": self.sql,
            "touched": [list(name) for name in self.touched],
            "tables": [entry_to_json(name, entry) for name, entry in self.tables.items()],
            "databases": dict(self.databases),
        }
        return values | ({"views": [[*name, there] for name, there in self.views.items()]} if self.views else {})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> HistoryEntry:
        """The entry from values of `to_json`."""
        return cls(
            BinlogCoordinates.parse(values["coordinates"]),
            values["kind"],
            values["database"],
            values["sql"],
            tuple(TableName(*name) for name in values["touched"]),
            dict(entry_from_json(item) for item in values["tables"]),
            dict(values["databases"]),
            {TableName(database, view): there for database, view, there in values.get("views", ())},
        )


def _apply(schemas: Schemas, statement: DdlStatement, frozen: bool) -> Schemas:
    after = schemas.apply(statement)
    return after.with_tables_of(schemas) if frozen and after is not schemas else after


@dataclass(frozen=True)
class SchemaTimeline:
    """The initial schemas, and the entries after them in the order of the binlog.

    A statement applies to every event that begins after it. At its own coordinates the old schemas apply.
    """

    initial: Schemas
    entries: tuple[HistoryEntry, ...] = ()

    @cached_property
    def latest(self) -> Schemas:
        """The schemas after the last entry."""
        return self._after(self.entries)

    def at(self, coordinates: BinlogCoordinates) -> Schemas:
        """The schemas for an event that begins at ``coordinates``."""
        count = self._count_before(coordinates)
        return self.latest if count == len(self.entries) else self._after(self.entries[:count])

    def _count_before(self, coordinates: BinlogCoordinates) -> int:
        return bisect_left(self.entries, coordinates, key=lambda entry: entry.coordinates)

    def _after(self, entries: Iterable[HistoryEntry], schemas: Schemas | None = None) -> Schemas:
        """The schemas after ``entries``, from ``schemas`` or the initial ones.

        All entries are applied to one copy, because a server may have thousands of tables.
        """
        schemas = schemas or self.initial
        tables, databases, views = dict(schemas.tables), dict(schemas.databases), dict.fromkeys(schemas.views, True)
        for entry in entries:
            _move(tables, entry.tables)
            _move(databases, entry.databases)
            _move(views, {name: there or None for name, there in entry.views.items()})
        return replace(schemas, tables=tables, databases=databases, views=frozenset(views))

    def __getstate__(self) -> dict[str, Any]:
        return {"initial": self.initial, "entries": self.entries}  # pickled for a Spark worker without derived values

    def advance(
        self, coordinates: BinlogCoordinates, statement: DdlStatement, *, frozen: bool = False
    ) -> SchemaTimeline:
        """The timeline with a statement of the binlog that begins at ``coordinates``.

        With ``frozen`` the statement changes no known table. Returns the same timeline for a statement without DDL, and
        for a known one, because a retry reads the same statements again. A statement before the last entry may be
        missing if it changed nothing, because such entries are not stored. Raises ValueError for other statements
        before the last entry.
        """
        is_of_views = statement.kind is Kind.HARMLESS  # stored only if it changes views
        if is_of_views and self.entries and coordinates <= self.entries[-1].coordinates:
            return self
        if statement.change is None or self._has(coordinates, statement, frozen):
            return self
        before = self.latest
        after = _apply(before, statement, frozen)
        if is_of_views and after is before:
            return self
        return self.with_statement(coordinates, statement, after)

    def with_statement(self, coordinates: BinlogCoordinates, statement: DdlStatement, after: Schemas) -> SchemaTimeline:
        """The timeline with a statement after its last entry. ``after`` has the schemas after the statement."""
        before = self.latest
        names = before.databases.keys() | after.databases.keys()
        entry = HistoryEntry(
            coordinates,
            str(statement.kind),
            statement.session.database,
            statement.sql,
            statement.tables,
            dict(before.differences(after)),
            {
                name: after.databases.get(name)
                for name in sorted(names)
                if before.databases.get(name) != after.databases.get(name)
            },
            {name: name in after.views for name in sorted(before.views ^ after.views)},
        )
        return self._with(entry, after)

    def relearn(self, coordinates: BinlogCoordinates, table: Table) -> SchemaTimeline:
        """The timeline with a table, as the server has it now, for rows from ``coordinates`` on.

        Reading continues at ``coordinates``. No DDL of the table may be between these coordinates and the time at which
        the table was read. Raises ValueError for coordinates before the last entry.
        """
        name = TableName(table.schema.database, table.schema.table)
        # An entry applies after its own coordinates, but this entry must apply at ``coordinates``.
        before = replace(coordinates, position=max(coordinates.position - 1, 0))
        entry = HistoryEntry(before, RELEARNED, name.database, "", (name,), {name: table})
        return self._with(entry, self._after([entry], self.latest))

    def continue_with(self, coordinates: BinlogCoordinates, anew: SchemaTimeline) -> SchemaTimeline:
        """This timeline before ``coordinates``, and ``anew`` from there on."""
        kept = SchemaTimeline(self.initial, self.entries[: self._count_before(coordinates)])
        tables = dict(kept.latest.differences(anew.initial))
        before = replace(coordinates, position=max(coordinates.position - 1, 0))
        names = kept.latest.databases.keys() | anew.initial.databases.keys()
        databases = {
            name: anew.initial.databases.get(name)
            for name in names
            if kept.latest.databases.get(name) != anew.initial.databases.get(name)
        }
        if not tables and not databases:
            return SchemaTimeline(self.initial, (*kept.entries, *anew.entries))
        entry = HistoryEntry(before, RELEARNED, "", "", tuple(tables), tables, databases)
        return SchemaTimeline(self.initial, (*kept.entries, entry, *anew.entries))

    def between(self, after: BinlogCoordinates, until: BinlogCoordinates) -> tuple[HistoryEntry, ...]:
        """The entries after ``after``, up to and including ``until``."""
        first = bisect_right(self.entries, after, key=lambda entry: entry.coordinates)
        return self.entries[first : bisect_right(self.entries, until, key=lambda entry: entry.coordinates)]

    def after(self, schemas: Schemas, entries: Iterable[HistoryEntry]) -> Schemas:
        """``schemas`` after ``entries``."""
        return self._after(entries, schemas)

    def fold(self, coordinates: BinlogCoordinates) -> SchemaTimeline:
        """The timeline whose initial schemas include the entries before ``coordinates``.

        The state store keeps it after a commit, because no run reads before the checkpoint.
        """
        count = self._count_before(coordinates)
        return SchemaTimeline(self._after(self.entries[:count]), self.entries[count:])

    def freeze(self, coordinates: BinlogCoordinates) -> SchemaTimeline:
        """The timeline from ``coordinates`` on, in which a table never changes after that point or its creation."""
        timeline = self.fold(coordinates)
        known, entries = dict(timeline.initial.tables), []
        for entry in timeline.entries:
            made = {name: table for name, table in entry.tables.items() if table is not None and name not in known}
            known |= made
            entries.append(replace(entry, tables=made))
        return SchemaTimeline(timeline.initial, tuple(entries))

    def of_tables(self, names: Collection[TableName]) -> SchemaTimeline:
        """The timeline with only the changes of the tables ``names``."""
        entries = (
            replace(entry, tables={name: table for name, table in entry.tables.items() if name in names})
            for entry in self.entries
        )
        return SchemaTimeline(self.initial, tuple(entries))

    def to_json(self) -> dict[str, Any]:
        return {"initial": schemas_to_json(self.initial), "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SchemaTimeline:
        """The timeline from values of `to_json`. Raises CheckpointError for values of another version."""
        return cls(schemas_from_json(values["initial"]), tuple(map(HistoryEntry.from_json, values["entries"])))

    def _has(self, coordinates: BinlogCoordinates, statement: DdlStatement, frozen: bool) -> bool:
        if not self.entries or self.entries[-1].coordinates < coordinates:
            return False
        if any(entry.coordinates == coordinates for entry in self.entries):
            return True
        before = self.at(coordinates)
        if _apply(before, statement, frozen) == before:
            return True
        raise ValueError(f"a statement at {coordinates} comes after one at {self.entries[-1].coordinates}")

    def _with(self, entry: HistoryEntry, after: Schemas) -> SchemaTimeline:
        if self.entries and entry.coordinates < self.entries[-1].coordinates:
            raise ValueError(f"an entry at {entry.coordinates} comes after one at {self.entries[-1].coordinates}")
        longer = SchemaTimeline(self.initial, (*self.entries, entry))
        longer.__dict__["latest"] = after  # known already, so it need not be computed from all entries
        return longer


def _move(values: dict[Key, Value], changes: Mapping[Key, Value | None]) -> None:
    """Apply ``changes`` to ``values``; None removes a key."""
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
