"""What a follower may be changed in: the tables and databases that its pipeline captures and it follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.ddl.session import Server
from changefeed.model.table_pattern import matches_any, names_database
from changefeed.replicate.position_table import DATABASE
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES, is_own_table

_NEVER = frozenset((*SYSTEM_DATABASES, DATABASE))
"""Databases of the server's own, and that of the follower's position."""


@dataclass(frozen=True)
class Scope:
    """Of the follower ``server`` the ``databases``, all where there are none, and in them the tables that a pattern of
    ``include`` takes; of those that ``exclude`` takes nothing comes any more.

    Records say which table they are about, and whoever may write to a topic may write such a record: nothing outside of
    this is changed, whatever they say.
    """

    server: Server
    include: tuple[str, ...] = ("*.*",)
    databases: Sequence[str] = ()
    exclude: tuple[str, ...] = ()

    def follows(self, database: str) -> bool:
        """Whether the database is one of those that are followed: records of others are passed over."""
        return not self.databases or database in self.databases

    def takes_database(self, database: str) -> bool:
        """Whether the database may be made, altered and dropped."""
        named = any(names_database(pattern, database) for pattern in self.include)
        return named and self.follows(database) and database.lower() not in _NEVER

    def may_name(self, database: str, table: str) -> bool:
        """Whether a definition of another table may name the table: it is of a database that is followed."""
        return self.takes_database(database) or self.takes(database, table)

    def takes(self, database: str, table: str) -> bool:
        """Whether the table may be changed. One that the pipeline left out since (`tables.exclude`) may be: records of
        before are in the topics."""
        if self.takes_database(database):
            return matches_any(self.include, database, table)
        # Of whichever server: no record writes a table of its own.
        is_users = database == "mysql" and not is_own_table(database, table)
        return is_users and self.follows(database) and matches_any(self.include, database, table)

    def captures(self, database: str, table: str) -> bool:
        """Whether the pipeline captures the table now, and the follower follows it."""
        return self.takes(database, table) and not matches_any(self.exclude, database, table)
