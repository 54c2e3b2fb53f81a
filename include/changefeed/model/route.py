"""Routes: the topic of a table's changes, and the settings that the decoder needs."""

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
    """A field with the "database.table" of a row. ``in_key`` says that the message key also has it."""

    name: str
    in_key: bool = True


@dataclass(frozen=True)
class Route:
    """The topic of a table's changes, and the settings that the decoder needs.

    - ``topic``, ``partitions``: the topic and its number of partitions
    - ``key``: the rule that chooses the key columns
    - ``partition_by``: the partition key, which is the message key, the table's name, or the values of these columns
    - ``setting``: the name of the setting, for messages
    """

    topic: str
    partitions: int
    key: KeyRule = PRIMARY_KEY
    partition_by: Literal["key", "table"] | tuple[str, ...] = "key"
    table_field: TableField | None = None
    setting: str = ""
    rows: RowFilter | None = None
    """The filter of published rows; None for all rows."""
    skipped: frozenset[str] = frozenset()
    """Ops whose rows are left out."""
    with_history: bool = True
    """Whether history rows of MariaDB's system-versioned tables are published.

    If not, a row that becomes history is published as a delete, and its later changes are not published."""
    unchanged_skipped: bool = False
    """Whether updates that change no published column are left out."""

    def table_for_formats(self, table: TableSchema, *, by_server: bool = False) -> TableSchema:
        """``table`` for formats: with the chosen key, and with the table name's field as last column.

        ``by_server`` is the argument of `KeyRule.keyed_table`. Raises the errors of that method, and SettingsError if
        the field has the name of a column.
        """
        if self.with_history:
            table = replace(table, columns=tuple(replace(column, hidden=False) for column in table.columns))
        table = self.key.keyed_table(table, by_server=by_server)
        end = table.row_end
        if self.with_history and end is not None and table.primary_key and not self.key.columns:
            # Several versions of a row have the same defined key; the row end distinguishes them.
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
        """The positions of the columns of the partition key; () if it is the message key or the table's name.

        Raises SettingsError for a column that ``table`` does not have.
        """
        if isinstance(self.partition_by, str):
            return ()
        return chosen_columns(table, self.partition_by, f"{self.setting}: partition_by in topics chooses", "")

    def missing_columns(self, table: TableSchema) -> tuple[str, ...]:
        """The names of the columns that the pipeline's settings name and ``table`` does not have."""
        partition_by = () if isinstance(self.partition_by, str) else self.partition_by
        compared = columns_of(self.rows.predicate) if self.rows is not None else ()
        there = {column.name.lower() for column in table.columns}
        return tuple(name for name in (*self.key.columns, *partition_by, *compared) if name.lower() not in there)

    @property
    def chooses_columns(self) -> bool:
        """Whether keys or partitions need columns that a minimal row image, with the primary key only, may not have."""
        return self.key.chooses_columns or not isinstance(self.partition_by, str)


Router = Callable[[str, str], Route | None]
"""(database, table) -> the table's route; None for a table that the pipeline does not capture."""

SchemaLookup = Callable[[str, str], TableSchema | None]
"""(database, table) -> the table's schema, for table maps without column names; None if it is not known."""
