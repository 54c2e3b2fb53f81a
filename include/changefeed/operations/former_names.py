"""The names that hidden columns had before they were renamed, by the schema history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from changefeed.ddl.column_names import all_names
from changefeed.ddl.history import SchemaHistory
from changefeed.settings.pipeline import Pipeline


@dataclass
class FormerNames:
    """All names of the columns that ``pipeline`` hides under any of them: older records have an earlier name.

    A name that a hidden column had and another column has is hidden, too, because a record does not say which it is of.
    ``history`` is None before the first window; then no name is known.
    """

    pipeline: Pipeline
    history: SchemaHistory | None

    def of(self, table: str) -> frozenset[str]:
        """The names in lower case of a "database.table", also of one that was renamed or dropped."""
        return self._by_table.get(table, frozenset())

    @cached_property
    def _by_table(self) -> Mapping[str, frozenset[str]]:
        hidden = defaultdict[str, set[str]](set)
        for names in all_names(self.history.timeline) if self.history is not None else ():
            # a column with one name is hidden by that name
            if len(names) > 1 and any(self.pipeline.hides(*table, name) for table, name in names):
                for table, name in names:
                    hidden[f"{table.database}.{table.table}"].add(name)
        return {table: frozenset(names) for table, names in hidden.items()}
