"""The topics that a decoder's messages go to, and the groups of their partitions."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema


@dataclass(frozen=True)
class UnfinishedTable:
    """What the rows of an unfinished group are: rows of a table with these columns, bound for ``route``."""

    schema: TableSchema
    route: Route


class Topics:
    """Numbers groups: all partitions of a topic in a row.

    ``unfinished`` has the tables whose rows a `RowTransformer` makes messages of, each by the name that its group has
    in a topic's stead.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []
        self.unfinished: dict[str, UnfinishedTable] = {}
        self._names: dict[UnfinishedTable, str] = {}
        self._known: dict[str, tuple[int, int]] = {}

    def group_of(self, topic: str, partitions: int) -> int:
        """The number of the topic's partition 0; the others follow it."""
        known = self._known.get(topic)
        if known is not None and known[1] >= partitions:
            return known[0]
        first = len(self.groups)
        self._known[topic] = (first, partitions)
        self.groups += ((topic, partition) for partition in range(partitions))
        return first

    def unfinished_group(self, table: UnfinishedTable) -> int:
        """The number of the group for rows of ``table``."""
        name = self._names.setdefault(table, f"unfinished {len(self._names)}")  # no topic has a space in its name
        self.unfinished.setdefault(name, table)
        return self.group_of(name, 1)
