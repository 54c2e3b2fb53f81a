"""Numbers the topic-partitions of a decoder's messages as groups."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema


@dataclass(frozen=True)
class UnfinishedTable:
    """A table whose rows are in an unfinished group: they have the columns of ``schema``, and ``route`` applies."""

    schema: TableSchema
    route: Route


class Topics:
    """The numbers of groups; the partitions of a topic have consecutive numbers.

    ``unfinished`` has the tables of a `RowTransformer`'s rows, by the name of their group, which has no topic.
    """

    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []
        self.unfinished: dict[str, UnfinishedTable] = {}
        self._names: dict[UnfinishedTable, str] = {}
        self._known: dict[str, tuple[int, int]] = {}

    def group_of(self, topic: str, partitions: int) -> int:
        """The number of the group for partition 0 of the topic; the other partitions follow it."""
        known = self._known.get(topic)
        if known is not None and known[1] >= partitions:
            return known[0]
        first = len(self.groups)
        self._known[topic] = (first, partitions)
        self.groups += ((topic, partition) for partition in range(partitions))
        return first

    def unfinished_group(self, table: UnfinishedTable) -> int:
        """The number of the group for unfinished rows of ``table``."""
        name = self._names.setdefault(table, f"unfinished {len(self._names)}")  # no topic has a space in its name
        self.unfinished.setdefault(name, table)
        return self.group_of(name, 1)
