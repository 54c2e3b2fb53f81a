"""The names that hidden columns had before they were renamed, by the schema history."""

from __future__ import annotations

from dataclasses import dataclass, field

from changefeed.ddl.column_names import other_names
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.ddl.table import Table
from changefeed.settings.pipeline import Pipeline


@dataclass
class FormerNames:
    """Earlier names of the columns that ``pipeline`` hides: records from before a rename have them.

    ``history`` is None before the first window; then no name is known.
    """

    pipeline: Pipeline
    history: SchemaHistory | None
    _known: dict[str, frozenset[str]] = field(default_factory=dict)

    def of(self, table: str) -> frozenset[str]:
        """The names in lower case of a "database.table"; none for a table that was dropped."""
        if table not in self._known:
            self._known[table] = self._read(table)
        return self._known[table]

    def _read(self, table: str) -> frozenset[str]:
        if self.history is None:
            return frozenset()
        name = TableName(*table.partition(".")[::2])
        latest = self.history.timeline.latest.tables.get(name)
        if not isinstance(latest, Table):
            return frozenset()
        columns = latest.schema.columns
        hidden = {place for place, column in enumerate(columns) if self.pipeline.hides(*name, column.name)}
        names = other_names(self.history.timeline, self.history.until, name) if hidden else ()
        return frozenset(former for former, place in names if place in hidden)
