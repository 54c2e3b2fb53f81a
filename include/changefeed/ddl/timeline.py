"""The schemas along a binlog: what they were at its start, and each statement that moved them, with its coordinates."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from changefeed.coordinates import BinlogCoordinates
from changefeed.ddl.ddl_statement import DdlStatement, Kind
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.schemas_json import entry_from_json, entry_to_json, schemas_from_json, schemas_to_json
from changefeed.ddl.table import Table

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

    @property
    def changes_nothing(self) -> bool:
        """Whether the schemas after this move are those before it."""
        return not self.tables and not self.databases

    def apply(self, schemas: Schemas) -> Schemas:
        """The schemas after this move."""
        if self.changes_nothing:
            return schemas
        tables = {**schemas.tables, **self.tables}
        databases = {**schemas.databases, **self.databases}
        return replace(
            schemas,
            tables={name: entry for name, entry in tables.items() if entry is not None},
            databases={name: collation for name, collation in databases.items() if collation is not None},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, as they are stored."""
        return {
            "coordinates": str(self.coordinates),
            "kind": self.kind,
            "database": self.database,
            "sql": self.sql,
            "touched": [list(name) for name in self.touched],
            "tables": [entry_to_json(name, entry) for name, entry in self.tables.items()],
            "databases": dict(self.databases),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any], version: int) -> HistoryEntry:
        """The entry that `to_json` of this version of `schemas_json` wrote."""
        return cls(
            BinlogCoordinates.parse(values["coordinates"]),
            values["kind"],
            values["database"],
            values["sql"],
            tuple(TableName(*name) for name in values["touched"]),
            dict(entry_from_json(item, version) for item in values["tables"]),
            dict(values["databases"]),
        )


@dataclass(frozen=True)
class SchemaTimeline:
    """``initial`` is right before the first entry; entries stand in the order of the binlog.

    A statement counts for every event that begins after it: at its own coordinates the schemas are still the old ones.
    """

    initial: Schemas
    entries: tuple[HistoryEntry, ...] = ()

    @cached_property
    def _states(self) -> list[Schemas]:
        """The schemas before the first entry, and after each."""
        states = [self.initial]
        for entry in self.entries:
            states.append(entry.apply(states[-1]))
        return states

    @property
    def latest(self) -> Schemas:
        """The schemas after the last entry."""
        return self._states[-1]

    def at(self, coordinates: BinlogCoordinates) -> Schemas:
        """The schemas for an event that begins at ``coordinates``."""
        return self._states[bisect_left(self.entries, coordinates, key=lambda entry: entry.coordinates)]

    def advance(self, coordinates: BinlogCoordinates, statement: DdlStatement) -> SchemaTimeline:
        """The timeline with a statement of the binlog that begins at ``coordinates``.

        The same timeline for a statement that is not a definition, and for coordinates that it has already: a retried
        run reads the same statements again. Raises ValueError for coordinates between entries.
        """
        if statement.kind not in (Kind.DEFINITION, Kind.TRUNCATE) or self._has(coordinates):
            return self
        before = self.latest
        after = before.apply(statement)
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
        return self._with(entry, entry.apply(self.latest))

    def fold(self, coordinates: BinlogCoordinates) -> SchemaTimeline:
        """The timeline without its entries before ``coordinates``, which are in its initial schemas then.

        For the state store after a commit: nobody reads before the checkpoint.
        """
        count = bisect_left(self.entries, coordinates, key=lambda entry: entry.coordinates)
        return SchemaTimeline(self._states[count], self.entries[count:])

    def to_json(self) -> dict[str, Any]:
        return {"initial": schemas_to_json(self.initial), "entries": [entry.to_json() for entry in self.entries]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SchemaTimeline:
        """Raises CheckpointError for values that a later version wrote."""
        initial = schemas_from_json(values["initial"])
        version = values["initial"]["version"]
        return cls(initial, tuple(HistoryEntry.from_json(entry, version) for entry in values["entries"]))

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
        longer.__dict__["_states"] = [*self._states, after]  # known already: not to be built again from the first
        return longer
