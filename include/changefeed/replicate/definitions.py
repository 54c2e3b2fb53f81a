"""Definitions (DDL): run on the follower in the session that ran them, once each.

A definition commits by itself, so it cannot be in one transaction with the follower's position. So it is noted first
that it is about to run, with a digest of what its tables are; then it runs; then the position moves. A run that finds
such a note looks at the tables: they are not as they were, and it did run; they are as before, and it is run. That is
the same for statements that leave a table as it was, which may run again: TRUNCATE, or CREATE TABLE IF NOT EXISTS.
Statements that exchange tables or partitions of one definition are told by the number that InnoDB gives each.

That nothing of an earlier run still runs is known by the lock that the run holds (`FollowerSession.lock`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from changefeed.ddl.changes import AlterDatabase, CreateDatabase, DropDatabase, DropTables
from changefeed.ddl.ddl_statement import DdlStatement, read_statement
from changefeed.ddl.names import TableName
from changefeed.ddl.session import Server, SessionContext
from changefeed.errors import BadRecordError, FollowerError
from changefeed.model.identifier import quoted
from changefeed.replicate.scope import Scope
from changefeed.replicate.source_session import check_session, enter
from changefeed.source.mysql.follower_session import FollowerSession

_NO_DATABASE = 1008
_STARTS_TRANSACTION = re.compile(r"(?<!\s)\s++START\s++TRANSACTION\s*+;?\s*+\Z", re.IGNORECASE)
"""What MySQL adds to the CREATE TABLE of a CREATE TABLE … SELECT, whose rows follow."""
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass(frozen=True)
class Definition:
    """A record of the schema-changes topic: the statement ``sql``, its default ``database`` and its ``session``."""

    sql: str
    database: str
    session: Mapping[str, Any]
    read: DdlStatement

    @classmethod
    def of(cls, value: bytes, server: Server) -> Definition:
        """Read a record's value. Raises BadRecordError for what is none."""
        try:
            fields = orjson.loads(value)
            sql, database = str(fields["ddl"]), fields["databaseName"] or ""
            session = dict(fields["session"])
            check_session(session)
        except (ValueError, KeyError, TypeError) as error:
            raise BadRecordError(f"{value[:200]!r} is no record of a schema change ({error!r})") from error
        context = SessionContext.of_sql_mode(database, int(session.get("sql_mode", 0)))
        return cls(sql, database, session, read_statement(sql, context, server))

    def limited_to(self, scope: Scope) -> Definition:
        """Of a DROP TABLE what it drops of the ``scope``, as far as it is there; all else as it is.

        MariaDB and MySQL before 8.0 also log one that failed, as it found only some of its tables, and servers log the
        names of tables that are not captured beside those that are.
        """
        change = self.read.change
        names = tuple(name for name in change.names if scope.takes(*name)) if isinstance(change, DropTables) else ()
        if not isinstance(change, DropTables) or not names:
            return self
        listed = ", ".join(f"{quoted(name.database)}.{quoted(name.table)}" for name in names)
        sql = f"DROP {'SEQUENCE' if change.sequences else 'TABLE'} IF EXISTS {listed}"
        read = replace(self.read, sql=sql, tables=names, change=replace(change, names=names))
        return replace(self, sql=sql, read=read)

    @property
    def databases(self) -> frozenset[str]:
        """Those whose tables it touches, or that it is about."""
        change = self.read.change
        if isinstance(change, CreateDatabase | AlterDatabase | DropDatabase):
            return frozenset({change.name})
        return frozenset(name.database for name in self.read.tables)

    @property
    def removes(self) -> bool:
        """Whether all that it does is to remove tables or a database: it may run again, and finds nothing then."""
        return isinstance(self.read.change, DropTables | DropDatabase)

    def run(self, session: FollowerSession, *, again: bool = False) -> None:
        """Run it in its session; ``again`` where it may have removed its database already.

        Raises FollowerError for what the follower refuses.
        """
        try:
            enter(session, self.session, self.database, self.read.session)
            session.write(_STARTS_TRANSACTION.sub("", self.sql))
        except FollowerError as error:
            if not (again and self.removes and error.code == _NO_DATABASE):
                raise FollowerError(
                    f"{error}. It was to run {self.sql[:500]!r}, as the source did.", error.code
                ) from error
        session.settle()


def tables_of(session: FollowerSession, database: str) -> list[str]:
    """What the follower has in ``database``: tables and views."""
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    return [str(name) for (name,) in session.rows(sql, database)]


def state_of(session: FollowerSession, definition: Definition) -> str:
    """A digest of what the tables and databases that ``definition`` names are on the follower now."""
    parts = [_database(session, name) for name in sorted(definition.databases)]
    parts += [_table(session, name) for name in definition.read.tables]
    parts.append(str(sorted(_numbers(session, definition.read.tables))))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _database(session: FollowerSession, name: str) -> str:
    if not session.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", name):
        return "none"
    return str(session.row(f"SHOW CREATE DATABASE {quoted(name)}")[1])


def _table(session: FollowerSession, name: TableName) -> str:
    """Without the counter of AUTO_INCREMENT, which a server that was killed may have otherwise."""
    try:
        created = session.row(f"SHOW CREATE TABLE {quoted(name.database)}.{quoted(name.table)}")[1]
    except Exception as error:
        if not session.rows(_EXISTS, *name):
            return "none"
        raise error
    return _COUNTER.sub("", str(created))


_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


def _numbers(session: FollowerSession, names: Sequence[TableName]) -> Iterable[tuple[str, int]]:
    """InnoDB's number of each table, and of each of its partitions."""
    view = "innodb_sys_tables" if session.is_mariadb else "innodb_tables"
    for name in names:
        at = f"{in_file_name(name.database)}/{in_file_name(name.table)}"
        pattern = at.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%") + "#p#%"
        sql = f"SELECT name, table_id FROM information_schema.{view} WHERE name = %s OR LOWER(name) LIKE LOWER(%s)"
        yield from ((str(row[0]), int(row[1])) for row in session.rows(sql, at, pattern))


def in_file_name(name: str) -> str:
    """``name`` as InnoDB has it: what is no letter, digit or underscore is @ and its code."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"@{ord(c):04x}" for c in name)
