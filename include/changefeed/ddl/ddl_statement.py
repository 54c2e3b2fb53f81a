"""Statements of the binlog: the kind of a statement, the tables that it touches, and its changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice

from changefeed.ddl.changes import (
    AddKey,
    AddPeriod,
    AlterTable,
    CreateSequence,
    CreateTable,
    CreateTableLike,
    CreateView,
    DefaultCharset,
    DropIndex,
    DropPeriod,
    DropTables,
    DropViews,
    ExchangePartition,
    PartitionToTable,
    RenameIndex,
    RenameTables,
    RenameTo,
    SchemaChange,
    SetDefault,
    SetVisibility,
    TableToPartition,
    TruncateTable,
    UnreadChange,
)
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.ddl_grammar import FIRST_WORDS, read_ddl
from changefeed.ddl.names import TableName
from changefeed.ddl.row_changes import written_tables
from changefeed.ddl.scanner import Token, UnreadableStatement, scan
from changefeed.ddl.session import Server, SessionContext
from changefeed.model.server_text import is_server_text


class Kind(StrEnum):
    """The kind of a statement, for readers of rows."""

    ROWS = "rows"
    """Changes rows in statement format, without row events."""
    DDL = "definition"
    """Changes tables or databases: the schema changes."""
    TRUNCATE = "truncate"
    """Empties a table and keeps its columns."""
    TRANSACTION = "transaction"
    """BEGIN, COMMIT, ROLLBACK, SAVEPOINT, XA."""
    HARMLESS = "harmless"
    """Changes neither rows nor columns: GRANT, ANALYZE, CREATE VIEW, DDL of temporary tables, a comment."""
    UNREADABLE = "unreadable"
    """Begins with an unknown word."""


@dataclass(frozen=True)
class DdlStatement:
    """A statement with its session, and its parsed content.

    - ``tables``: the tables that it touches. For ROWS the written tables, () if the text does not name them. For DDL
      all tables that it names, by old and new names.
    - ``change``: None if no schema can change; an UnreadChange if the effect is unknown. ``problem`` then says why.
    """

    sql: str
    session: SessionContext
    kind: Kind
    tables: tuple[TableName, ...] = ()
    change: SchemaChange | None = None

    @property
    def problem(self) -> str:
        """Why the effect is unknown; '' if it is known."""
        return self.change.problem if isinstance(self.change, UnreadChange) else ""

    @property
    def changes_rows(self) -> bool:
        """Whether the statement may change rows without row events: in statement format, or with unreadable text.

        True also for CREATE TABLE … SELECT. In row format the server logs it without the SELECT.
        """
        if isinstance(self.change, UnreadChange):
            return self.kind is Kind.DDL and _may_fill(self.sql)
        filled = isinstance(self.change, CreateTable) and self.change.select
        return filled or self.kind in (Kind.ROWS, Kind.UNREADABLE)

    @property
    def replaces_rows(self) -> bool:
        """Whether a DDL statement may replace rows of its tables without row events.

        False for CREATE TABLE, because another statement dropped or renamed an earlier table of the same name.
        """
        change = self.change
        if self.kind not in (Kind.DDL, Kind.TRUNCATE, Kind.UNREADABLE):
            return False
        if isinstance(change, CreateTable | CreateTableLike | CreateSequence):
            return change.replace
        if isinstance(change, AlterTable):
            return not all(isinstance(action, _KEEP_ROWS) for action in change.actions)
        return True


_KEEP_ROWS = (AddKey, DropIndex, RenameIndex, SetDefault, SetVisibility, DefaultCharset, AddPeriod, DropPeriod)
"""The changes of ALTER TABLE that keep the table's rows."""


def _session_of_text(sql: str, session: SessionContext) -> SessionContext:
    """The session in which the server's own text has its meaning.

    MySQL logs the table of CREATE TABLE … SELECT with START TRANSACTION, with every default of its columns in the text,
    and without `explicit_defaults_for_timestamp`. Observed on 9.7.
    """
    if "\n) START TRANSACTION" in sql:
        session = replace(session, explicit_defaults_for_timestamp=True)
    return replace(session, no_backslash_escapes=False)


def _may_fill(sql: str) -> bool:
    """Whether ``sql`` has the words CREATE, TABLE and SELECT in this order, with any text between them."""
    words = iter(word[0].upper() for word in _OF_FILLING.finditer(sql))
    return all(word in words for word in ("CREATE", "TABLE", "SELECT"))


_OF_FILLING = re.compile(r"\b(?:CREATE|TABLE|SELECT)\b", re.IGNORECASE)
_TRANSACTION = frozenset({"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "START", "XA"})
_ROWS = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO", "SELECT", "VALUES", "TABLE"})
_HARMLESS = frozenset(
    {
        *("GRANT", "REVOKE", "SET", "USE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "CACHE"),
        *("RESET", "PURGE", "CHANGE", "STOP", "INSTALL", "UNINSTALL", "HANDLER", "LOCK", "UNLOCK", "SHOW", "DESCRIBE"),
        *("DESC", "EXPLAIN", "HELP", "KILL", "SHUTDOWN", "RESTART", "CLONE", "BINLOG", "SIGNAL", "RESIGNAL", "GET"),
        *("PREPARE", "EXECUTE", "DEALLOCATE", "BACKUP", "IMPORT"),
    }
)


def read_statement(
    sql: str, session: SessionContext | None = None, server: Server | None = None, *, failed: bool = False
) -> DdlStatement:
    """The statement as ``server`` executed it in ``session``. Raises nothing: the result says if it cannot be read.

    ``failed`` says that the statement failed. The server logs a failed CREATE OR REPLACE TABLE because it dropped the
    table. Other failed statements apply completely.
    """
    session, server = session or SessionContext(), server or Server()
    if is_server_text(sql):
        session = _session_of_text(sql, session)
    first = _first_words(sql, session, server)
    keyword = first[0].keyword if first else ""
    if keyword == "SET" and len(first) > 1 and first[1].keyword == "STATEMENT":
        return _set_statement(sql, session, server, failed)
    if not keyword:
        return DdlStatement(sql, session, Kind.UNREADABLE if first and first[0].text else Kind.HARMLESS)
    if keyword in FIRST_WORDS:
        return _read_ddl(sql, session, Cursor(sql, session, server), failed)
    if keyword in _TRANSACTION:
        return DdlStatement(sql, session, Kind.TRANSACTION)
    if keyword in _ROWS:
        tables = _written_tables(sql, session, server)
        return DdlStatement(sql, session, Kind.ROWS, tables)
    return DdlStatement(sql, session, Kind.HARMLESS if keyword in _HARMLESS else Kind.UNREADABLE)


def _first_words(sql: str, session: SessionContext, server: Server) -> list[Token]:
    try:
        return list(islice(scan(sql, session, server), 2))
    except UnreadableStatement:
        return []


_HEAD = re.compile(r"\A.{0,4000}", re.DOTALL)


def _written_tables(sql: str, session: SessionContext, server: Server) -> tuple[TableName, ...]:
    """The tables that the statement writes. INSERT, REPLACE and LOAD name them in the first words; only these are
    scanned."""
    head = Cursor(_HEAD.match(sql)[0], session, server)  # type: ignore[index]  # matches any text
    if head.is_one_of("INSERT", "REPLACE", "LOAD") and (tables := written_tables(head)):
        return tables
    return written_tables(Cursor(sql, session, server))


def _set_statement(sql: str, session: SessionContext, server: Server, failed: bool) -> DdlStatement:
    """The result for the inner statement of MariaDB's `SET STATEMENT variable=value, … FOR statement`."""
    cursor = Cursor(sql, session, server)
    try:
        while not cursor.one_of("FOR"):
            if cursor.is_symbol("("):
                cursor.parentheses()
            else:
                cursor.advance()
    except UnreadableStatement:
        return DdlStatement(sql, session, Kind.UNREADABLE)
    if cursor.is_word("SET", "STATEMENT"):  # MariaDB allows no SET STATEMENT inside another
        return DdlStatement(sql, session, Kind.UNREADABLE)
    inner = read_statement(sql[cursor.token.start :], session, server, failed=failed)
    return DdlStatement(sql, session, inner.kind, inner.tables, inner.change)


def _read_ddl(sql: str, session: SessionContext, cursor: Cursor, failed: bool) -> DdlStatement:
    change = read_ddl(cursor)
    if failed and isinstance(change, CreateTable | CreateTableLike) and change.replace:
        change = DropTables((change.name,))
    if change is None or (isinstance(change, UnreadChange) and not change.names):
        return DdlStatement(sql, session, Kind.HARMLESS)
    if isinstance(change, CreateView | DropViews):
        return DdlStatement(sql, session, Kind.HARMLESS, (), change)
    if isinstance(change, TruncateTable):
        return DdlStatement(sql, session, Kind.TRUNCATE, (change.name,), change)
    return DdlStatement(sql, session, Kind.DDL, touched_tables(change), change)


def touched_tables(change: SchemaChange) -> tuple[TableName, ...]:
    """The tables that a change names: created, altered and dropped tables, and both tables of a rename or exchange."""
    match change:
        case CreateTable(name=name) | CreateTableLike(name=name) | CreateSequence(name=name) | TruncateTable(name=name):
            return (name,)
        case AlterTable(name=name, actions=actions):
            moves = RenameTo | PartitionToTable | TableToPartition | ExchangePartition
            others = [action.name for action in actions if isinstance(action, moves)]
            return tuple(dict.fromkeys((name, *others)))
        case DropTables(names=names) | UnreadChange(names=names):
            return names
        case RenameTables(names=pairs):
            return tuple(dict.fromkeys(name for pair in pairs for name in pair))
    return ()
