"""Runs each statement of a DDL record once on the follower, with the session settings that it had on the source.

DDL has an implicit commit, so it cannot share a transaction with the follower's position. A run

1. stores the begun statement, with a digest of the current definitions of its tables,
2. runs the statement,
3. moves the position, which removes the begun statement.

A run that finds a begun statement computes the digest again. If the digest changed, the statement took effect. If it
is equal, the run executes the statement. So a statement that does not change definitions may run twice: TRUNCATE,
CREATE TABLE IF NOT EXISTS. The digest includes InnoDB's table ids, so it changes if a statement exchanges tables or
partitions with equal definitions.

The lock of a run (`FollowerSession.lock`) ensures that no statement of an earlier run is still running.
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
from changefeed.model.identifier import quote_name
from changefeed.replicate.scope import Scope
from changefeed.replicate.source_session import check_session, enter
from changefeed.source.mysql.follower_session import FollowerSession
from changefeed.source.mysql.shown_create import shown_create

_NO_DATABASE = 1008
_STARTS_TRANSACTION = re.compile(r"(?<!\s)\s++START\s++TRANSACTION\s*+;?\s*+\Z", re.IGNORECASE)
"""The words that MySQL adds to the logged CREATE TABLE of a CREATE TABLE … SELECT. Row events follow it."""
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass(frozen=True)
class DdlRecord:
    """A record of the schema-changes topic: the text ``sql``, its default ``database``, its ``session``, and the parsed
    ``statement``."""

    sql: str
    database: str
    session: Mapping[str, Any]
    statement: DdlStatement

    @classmethod
    def of(cls, value: bytes, server: Server) -> DdlRecord:
        """The record with this ``value``. Raises BadRecordError if it is not a schema change."""
        try:
            fields = orjson.loads(value)
            sql, database = str(fields["ddl"]), fields["databaseName"] or ""
            session = dict(fields["session"])
            check_session(session)
        except (ValueError, KeyError, TypeError) as error:
            raise BadRecordError(f"{value[:200]!r} is not a record of a schema change ({error!r})") from error
        context = SessionContext.of_sql_mode(database, int(session.get("sql_mode", 0)))
        return cls(sql, database, session, read_statement(sql, context, server))

    def limited_to(self, scope: Scope) -> DdlRecord:
        """The record. If it is a DROP TABLE, it drops only tables of ``scope``, with IF EXISTS.

        A DROP TABLE may name tables that are not captured. MariaDB and MySQL before 8.0 also log a DROP TABLE that
        failed because some of its tables were missing.
        """
        change = self.statement.change
        names = tuple(name for name in change.names if scope.takes(*name)) if isinstance(change, DropTables) else ()
        if not isinstance(change, DropTables) or not names:
            return self
        listed = ", ".join(f"{quote_name(name.database)}.{quote_name(name.table)}" for name in names)
        sql = f"DROP {'SEQUENCE' if change.sequences else 'TABLE'} IF EXISTS {listed}"
        statement = replace(self.statement, sql=sql, tables=names, change=replace(change, names=names))
        return replace(self, sql=sql, statement=statement)

    @property
    def databases(self) -> frozenset[str]:
        """The databases of the statement, or of its tables."""
        change = self.statement.change
        if isinstance(change, CreateDatabase | AlterDatabase | DropDatabase):
            return frozenset({change.name})
        return frozenset(name.database for name in self.statement.tables)

    @property
    def only_drops(self) -> bool:
        """Whether the statement only drops tables or a database, so that a second execution has no effect."""
        return isinstance(self.statement.change, DropTables | DropDatabase)

    def run(self, session: FollowerSession, *, again: bool = False) -> None:
        """Run the statement with the session settings of the source.

        With ``again``, an earlier run may have dropped the database already.

        Raises FollowerError if the follower refuses it.
        """
        try:
            enter(session, self.session, self.database, self.statement.session)
            session.write(_STARTS_TRANSACTION.sub("", self.sql))
        except FollowerError as error:
            if not (again and self.only_drops and error.code == _NO_DATABASE):
                raise FollowerError(
                    f"{error}. The statement of the source is {self.sql[:500]!r}.", error.code
                ) from error
        session.apply_settings()


def list_tables(session: FollowerSession, database: str) -> list[str]:
    """The tables and views of the follower's ``database``."""
    sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = %s"
    return [str(name) for (name,) in session.rows(sql, database)]


def digest_tables(session: FollowerSession, ddl: DdlRecord) -> str:
    """A digest of the current definitions of the tables and databases that ``ddl`` names on the follower."""
    parts = [_database(session, name) for name in sorted(ddl.databases)]
    parts += [_table(session, name) for name in ddl.statement.tables]
    parts.append(str(sorted(_table_ids(session, ddl.statement.tables))))
    return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _database(session: FollowerSession, name: str) -> str:
    if not session.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", name):
        return "none"
    return str(session.row(f"SHOW CREATE DATABASE {quote_name(name)}")[1])


def _table(session: FollowerSession, name: TableName) -> str:
    """The output of SHOW CREATE without the AUTO_INCREMENT counter, which may change when a server is killed."""
    try:
        created = shown_create(session, name.database, name.table)
    except Exception as error:
        if not session.rows(_EXISTS, *name):
            return "none"
        raise error
    return _COUNTER.sub("", created)


_EXISTS = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


def _table_ids(session: FollowerSession, names: Sequence[TableName]) -> Iterable[tuple[str, int]]:
    """Yield InnoDB's name and id of each table and of each of its partitions."""
    view = "innodb_sys_tables" if session.is_mariadb else "innodb_tables"
    for name in names:
        at = f"{encode_file_name(name.database)}/{encode_file_name(name.table)}"
        pattern = at.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%") + "#p#%"
        sql = f"SELECT name, table_id FROM information_schema.{view} WHERE name = %s OR LOWER(name) LIKE LOWER(%s)"
        yield from ((str(row[0]), int(row[1])) for row in session.rows(sql, at, pattern))


def encode_file_name(name: str) -> str:
    """``name`` as in InnoDB's file names: each character except ASCII letters, digits and _ becomes @ and its code."""
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"@{ord(c):04x}" for c in name)
