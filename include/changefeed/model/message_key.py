"""Which columns of a table are its messages' key: the primary key's, or those that a pipeline chose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from changefeed.errors import SchemaError, SettingsError, did_you_mean
from changefeed.model.table_schema import TableSchema

Keyless = Literal["none", "unique", "all"]
"""What is the key of a table for which the binlog names no primary key: nothing; the unique key that the server takes
for its primary key, or nothing where it has none; that unique key, or all of its columns.

The server takes the first unique key, as they were defined, that has complete NOT NULL columns only
(`TABLE_SHARE::primary_key` in sql/table.cc). With FULL metadata it names that key as it names a primary key.
"""


@dataclass(frozen=True)
class KeyRule:
    """How the key columns of one table are found. ``columns`` are their names, where somebody chose them; they count
    before the primary key. ``setting`` says where, for messages."""

    columns: tuple[str, ...] = ()
    keyless: Keyless = "none"
    setting: str = ""

    @property
    def chooses_columns(self) -> bool:
        """Whether it may choose others than those that the server takes for a primary key."""
        return bool(self.columns) or self.keyless == "all"

    def keyed(self, table: TableSchema, *, by_server: bool = False) -> TableSchema:
        """``table`` with the columns of its messages' key in its primary key's stead; empty for messages without a key.

        ``by_server`` says that its primary key is the one that the server names with FULL metadata. Raises
        SettingsError for a chosen column that the table does not have, SchemaError where its unique keys decide and
        are not known.
        """
        key = self._chosen(table) if self.columns else table.primary_key or self._instead(table, by_server)
        return table if key == table.primary_key else replace(table, primary_key=key)

    def as_logged(self) -> KeyRule:
        """The rule for rows that come with FULL metadata, in which a unique key may pass for a primary key."""
        return replace(self, keyless="unique") if self.keyless == "none" else self

    def _chosen(self, table: TableSchema) -> tuple[int, ...]:
        return chosen_columns(table, self.columns, f"{self.setting} chooses", " for the key")

    def _instead(self, table: TableSchema, by_server: bool) -> tuple[int, ...]:
        if self.keyless == "none":
            return ()
        may_be_unique = any(column.nullable is not True for column in table.columns)
        if table.unique_keys is None and not by_server and may_be_unique:
            raise SchemaError(
                f"{table.database}.{table.table} has no primary key, and with `keyless: {self.keyless}` its unique key "
                "counts; which it has is not known. Learn the table again from the server with `changefeed schema "
                f"PIPELINE --relearn {table.database}.{table.table}`, choose its columns under `keys`, or have records "
                "of such tables without a key by `keyless: none`."
            )
        unique = (key.columns for key in table.unique_keys or () if key.may_be_primary)
        everything = tuple(number for number, column in enumerate(table.columns) if not column.hidden)
        return next(unique, everything if self.keyless == "all" else ())


def chosen_columns(table: TableSchema, columns: Sequence[str], who: str, what: str) -> tuple[int, ...]:
    """Positions of ``columns``, whose names have no case.

    Raises SettingsError, which says ``who`` chose it for ``what``, for a column that the table does not have.
    """
    positions = dict(table.other_names)
    positions |= {column.name.lower(): position for position, column in enumerate(table.columns)}
    for name in columns:
        if name.lower() not in positions:
            names = [column.name for column in table.columns]
            raise SettingsError(
                f"{who} column {name!r}{what} of {table.database}.{table.table}, which has no such column"
                f"{did_you_mean(name, names)}: it has {', '.join(names)}. Nothing is published by another rule in its "
                "stead. Name columns that the table has where the binlog is read, by a name that they had or have."
            )
    return tuple(positions[name.lower()] for name in columns)


PRIMARY_KEY = KeyRule()
"""The primary key, and no key for tables without one."""
