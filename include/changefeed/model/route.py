"""Where the changes of a table go, and what the decoder has to know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from changefeed.errors import SettingsError
from changefeed.model.message_key import PRIMARY_KEY, KeyRule, chosen_columns
from changefeed.model.row_predicate import RowFilter, columns_of
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class TableField:
    """A field of all rows of a table with its "database.table"; ``in_key`` says that the key has it, too."""

    name: str
    in_key: bool = True


@dataclass(frozen=True)
class Route:
    """Where a table's changes go, and what the decoder has to know of it.

    ``topic`` has ``partitions``. ``key`` says which of the table's columns are the messages' key. ``partition_by`` is
    what a message's partition follows from: its key, the table's name, or the values of these columns. ``setting`` is
    where a person can change it, for messages.
    """

    topic: str
    partitions: int
    key: KeyRule = PRIMARY_KEY
    partition_by: Literal["key", "table"] | tuple[str, ...] = "key"
    table_field: TableField | None = None
    setting: str = ""
    rows: RowFilter | None = None
    """Which rows are published; None for all."""
    skipped: frozenset[str] = frozenset()
    """Ops whose rows are left out."""
    with_history: bool = True
    """Whether rows of MariaDB's system-versioned tables count that are history; else a row that becomes history is
    deleted, and what happens to it then is nothing."""
    unchanged_skipped: bool = False
    """Whether updates are left out that change nothing of what is written of a row."""

    def seen(self, table: TableSchema, *, by_server: bool = False) -> TableSchema:
        """``table`` as formats see it: with the key that was chosen, and the field with its name behind its columns.

        ``by_server`` is that of `KeyRule.keyed`. Raises as that does, and SettingsError for a field that is named as
        a column is.
        """
        if self.with_history:
            table = replace(table, columns=tuple(replace(column, hidden=False) for column in table.columns))
        table = self.key.keyed(table, by_server=by_server)
        end = table.row_end
        if self.with_history and end is not None and table.primary_key and not self.key.columns:
            # Of the versions of a row several have the key that was defined.
            table = replace(table, primary_key=tuple(dict.fromkeys((*table.primary_key, end))))
        if self.table_field is None:
            return table
        if any(column.name.lower() == self.table_field.name.lower() for column in table.columns):
            raise SettingsError(
                f"{table.database}.{table.table} has a column {self.table_field.name!r} itself: give `table_field` in "
                "topics another name"
            )
        length = len(f"{table.database}.{table.table}")
        field = Column(self.table_field.name, "varchar", length=length, nullable=False)
        is_key = self.table_field.in_key and bool(table.primary_key)
        key = (len(table.columns), *table.primary_key) if is_key else table.primary_key
        return replace(table, columns=(*table.columns, field), primary_key=key)

    def partition_columns(self, table: TableSchema) -> tuple[int, ...]:
        """The positions of the columns that a message's partition follows from, () where it is from none.

        Raises SettingsError for one that ``table`` does not have.
        """
        if isinstance(self.partition_by, str):
            return ()
        return chosen_columns(table, self.partition_by, f"{self.setting}: partition_by in topics chooses", "")

    def lacking_in(self, table: TableSchema) -> tuple[str, ...]:
        """The columns that the pipeline's settings name and ``table`` does not have under these names."""
        partition_by = () if isinstance(self.partition_by, str) else self.partition_by
        compared = columns_of(self.rows.predicate) if self.rows is not None else ()
        there = {column.name.lower() for column in table.columns}
        return tuple(name for name in (*self.key.columns, *partition_by, *compared) if name.lower() not in there)

    @property
    def chooses_columns(self) -> bool:
        """Whether other columns count than those that the server takes for a primary key, which each row image has."""
        return self.key.chooses_columns or not isinstance(self.partition_by, str)


Router = Callable[[str, str], Route | None]
"""(database, table) -> where its rows go, or None for a table that the pipeline leaves out."""

SchemaLookup = Callable[[str, str], TableSchema | None]
"""(database, table) -> its columns, for table maps that carry no names. None where they are not known."""
