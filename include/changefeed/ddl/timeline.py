"""The schemas along a binlog: what they were at its start, and each statement that moved them, with its coordinates."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
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
"""Kind of an entry that no statement made: somebody had a table learned from the server again."""


@dataclass(frozen=True)
class HistoryEntry:
    """One move: where its event begins, the raw statement, and what it made of which tables and databases.

    ``tables`` has the tables after it, None for those that are gone; ``databases`` the collations, None likewise. So
    stored history is replayed as it was read, also by a later changefeed that would read the statement otherwise.
    """

    coordinates: BinlogCoordinates
    kind: str
    database: str
    sql: str
    touched: tuple[TableName, ...] = ()
    tables: Mapping[TableName, Entry | None] = field(default_factory=dict)
    databases: Mapping[str, str | None] = field(default_factory=dict)
    views: Mapping[TableName, bool] = field(default_factory=dict)
    """Names of views that were made (True) and dropped."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the schemas after this move are those before it."""
        return not self.tables and not self.databases and not self.views

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are stored."""
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
        """The entry that `to_json` made."""
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


@dataclass(frozen=True)
class SchemaTimeline:
    """``initial`` is right before the first entry; entries stand in the order of the binlog.

    A statement counts for every event that begins after it: at its own coordinates the schemas are still the old ones.
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
        """``schemas``, or the initial ones, moved by ``entries``: at once, as a server may have thousands of tables."""
        schemas = schemas or self.initial
        tables, databases, views = dict(schemas.tables), dict(schemas.databases), dict.fromkeys(schemas.views, True)
        for entry in entries:
            _move(tables, entry.tables)
            _move(databases, entry.databases)
            _move(views, {name: there or None for name, there in entry.views.items()})
        return replace(schemas, tables=tables, databases=databases, views=frozenset(views))

    def __getstate__(self) -> dict[str, Any]:
        return {"initial": self.initial, "entries": self.entries}  # to a Spark worker without what can be derived

    def advance(self, coordinates: BinlogCoordinates, statement: DdlStatement) -> SchemaTimeline:
        """The timeline with a statement of the binlog that begins at ``coordinates``.

        The same timeline for a statement that is not a definition, and for coordinates that it has already: a retried
        run reads the same statements again. Raises ValueError for coordinates between entries.
        """
        is_of_views = statement.kind is Kind.HARMLESS  # which are not stored where nothing changes
        if is_of_views and self.entries and coordinates <= self.entries[-1].coordinates:
            return self
        if statement.change is None or self._has(coordinates):
            return self
        before = self.latest
        after = before.apply(statement)
        if is_of_views and after is before:
            return self
        return self.moved(coordinates, statement, after)

    def moved(self, coordinates: BinlogCoordinates, statement: DdlStatement, after: Schemas) -> SchemaTimeline:
        """The timeline with a statement behind its last entry, and the schemas as they are ``after`` it."""
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
        """The timeline with a table as the server has it now, for rows from ``coordinates`` on.

        ``coordinates`` is where reading goes on: no definition of this table may stand between there and the moment at
        which it was learned. Raises ValueError for coordinates before the last entry.
        """
        name = TableName(table.schema.database, table.schema.table)
        # An entry counts after its own coordinates, and this one must count at them.
        before = replace(coordinates, position=max(coordinates.position - 1, 0))
        entry = HistoryEntry(before, RELEARNED, name.database, "", (name,), {name: table})
        return self._with(entry, self._after([entry], self.latest))

    def continued(self, coordinates: BinlogCoordinates, anew: SchemaTimeline) -> SchemaTimeline:
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
        """The entries behind ``after`` and not behind ``until``."""
        first = bisect_right(self.entries, after, key=lambda entry: entry.coordinates)
        return self.entries[first : bisect_right(self.entries, until, key=lambda entry: entry.coordinates)]

    def after(self, schemas: Schemas, entries: Iterable[HistoryEntry]) -> Schemas:
        """``schemas`` moved by ``entries``."""
        return self._after(entries, schemas)

    def fold(self, coordinates: BinlogCoordinates) -> SchemaTimeline:
        """The timeline without its entries before ``coordinates``, which are in its initial schemas then.

        For the state store after a commit: nobody reads before the checkpoint.
        """
        count = self._count_before(coordinates)
        return SchemaTimeline(self._after(self.entries[:count]), self.entries[count:])

    def to_json(self) -> dict[str, Any]:
        return {"initial": schemas_to_json(self.initial), "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SchemaTimeline:
        """Read what `to_json` made. Raises CheckpointError for values of another version."""
        return cls(schemas_from_json(values["initial"]), tuple(map(HistoryEntry.from_json, values["entries"])))

    def _has(self, coordinates: BinlogCoordinates) -> bool:
        if not self.entries or self.entries[-1].coordinates < coordinates:
            return False
        if any(entry.coordinates == coordinates for entry in self.entries):
            return True
        raise ValueError(f"a statement at {coordinates} comes after one at {self.entries[-1].coordinates}")

    def _with(self, entry: HistoryEntry, after: Schemas) -> SchemaTimeline:
        if self.entries and entry.coordinates < self.entries[-1].coordinates:
            raise ValueError(f"an entry at {entry.coordinates} comes after one at {self.entries[-1].coordinates}")
        longer = SchemaTimeline(self.initial, (*self.entries, entry))
        longer.__dict__["latest"] = after  # known already: not to be built again from the first
        return longer


def _move(values: dict[Key, Value], changes: Mapping[Key, Value | None]) -> None:
    """Put ``changes`` into ``values``; those that are None are of what is gone."""
    for key, value in changes.items():
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
