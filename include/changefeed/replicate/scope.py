"""The tables and databases that records may change on a follower: it follows them, and the pipeline captures them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from changefeed.ddl.session import Server
from changefeed.model.table_pattern import matches_any, names_database
from changefeed.replicate.position_table import DATABASE
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES, is_own_table

_NEVER = frozenset((*SYSTEM_DATABASES, DATABASE))
"""The server's own databases, and the database of the follower's position."""


@dataclass(frozen=True)
class Scope:
    """The tables of the follower ``server`` in ``databases`` (empty: all) that match a pattern of ``include``.
    Tables that match ``exclude`` are not captured any more.

    A record names its table, and any user with write access to a topic can write such a record. So the follower changes
    nothing outside of the scope, whatever a record says.
    """

    server: Server
    include: tuple[str, ...] = ("*.*",)
    databases: Sequence[str] = ()
    exclude: tuple[str, ...] = ()

    def follows(self, database: str) -> bool:
        """Whether the database is followed; records of other databases are skipped."""
        return not self.databases or database in self.databases

    def takes_database(self, database: str) -> bool:
        """Whether a record may create, alter or drop the database."""
        named = any(names_database(pattern, database) for pattern in self.include)
        return named and self.follows(database) and database.lower() not in _NEVER

    def may_name(self, database: str, table: str) -> bool:
        """Whether DDL of another table may name the table: it or its database is in the scope."""
        return self.takes_database(database) or self.takes(database, table)

    def takes(self, database: str, table: str) -> bool:
        """Whether a record may change the table.

        This includes tables in `tables.exclude`, whose earlier records may still be in the topics.
        """
        if self.takes_database(database):
            return matches_any(self.include, database, table)
        # In database mysql, no record may write a server's own table, neither MySQL's nor MariaDB's.
        is_users = database == "mysql" and not is_own_table(database, table)
        return is_users and self.follows(database) and matches_any(self.include, database, table)

    def captures(self, database: str, table: str) -> bool:
        """Whether the pipeline captures the table now and the follower follows it."""
        return self.takes(database, table) and not matches_any(self.exclude, database, table)
