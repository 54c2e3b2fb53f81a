"""The key columns of a table's messages: the primary key's columns, or columns that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from changefeed.errors import SchemaError, SettingsError, did_you_mean
from changefeed.model.table_schema import TableSchema

Keyless = Literal["none", "unique", "all"]
"""The message key of a table without a primary key.

- `none`: no key
- `unique`: the unique key that the server uses as primary key; no key if there is none
- `all`: the unique key that the server uses as primary key; all columns if there is none

The server uses the first unique key, in the order of definition, whose columns are all NOT NULL and complete
(`TABLE_SHARE::primary_key` in sql/table.cc). With FULL metadata the TABLE_MAP has this key as primary key.
"""


@dataclass(frozen=True)
class KeyRule:
    """The rule that chooses the key columns of a table.

    ``columns`` are the names that a user set. They take precedence over the primary key. ``setting`` is the name of
    that setting, for messages.
    """

    columns: tuple[str, ...] = ()
    keyless: Keyless = "none"
    setting: str = ""

    @property
    def chooses_columns(self) -> bool:
        """Whether it may choose other columns than the server's primary key."""
        return bool(self.columns) or self.keyless == "all"

    def keyed_table(self, table: TableSchema, *, by_server: bool = False) -> TableSchema:
        """``table`` with the columns of the message key as primary key; empty for messages without a key.

        ``by_server`` says that the primary key of ``table`` comes from FULL metadata. Raises SettingsError if the
        setting names a column that the table does not have. Raises SchemaError if the rule needs the table's unique
        keys and they are not known.
        """
        key = self._chosen(table) if self.columns else table.primary_key or self._instead(table, by_server)
        return table if key == table.primary_key else replace(table, primary_key=key)

    def for_full_metadata(self) -> KeyRule:
        """The rule for rows that come with FULL metadata, in which a unique key may be marked as primary key."""
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
    """The positions of the columns with the names ``columns``, in upper or lower case.

    Raises SettingsError for a column that the table does not have. ``who`` and ``what`` are parts of its message.
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
"""The rule that chooses the primary key, and no key for a table without one."""
