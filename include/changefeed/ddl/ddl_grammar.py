"""The grammar of DDL, which reads the first words of CREATE, ALTER, DROP, RENAME and TRUNCATE.

Why not sqlglot: this grammar reads all 542 MySQL statements in `tests/integration/ddl_corpus` in their sessions'
sql_mode, and sqlglot 30.30 reads 418. For a clause that it does not know (CHANGE, FIRST in a list, SRID, partitions),
sqlglot returns the complete statement as text. These statements need a grammar anyway, and two grammars would have to
agree on the others.

Source: https://dev.mysql.com/doc/refman/9.7/en/sql-data-definition-statements.html
"""

from __future__ import annotations

from changefeed.ddl.alter_table import read_alter_table
from changefeed.ddl.changes import (
    AddKey,
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateSequence,
    CreateView,
    DropDatabase,
    DropIndex,
    DropPrimaryKey,
    DropTables,
    DropViews,
    RenameTables,
    SchemaChange,
    TruncateTable,
    UnreadChange,
)
from changefeed.ddl.create_table import read_create_table
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import TokenKind, UnreadableStatement
from changefeed.ddl.table_elements import KeyDefinition, KeyKind, read_key_parts
from changefeed.ddl.table_options import CharsetOptions, read_charset_option

FIRST_WORDS = frozenset({"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"})


def read_ddl(cursor: Cursor) -> SchemaChange | None:
    """The change of a statement that begins with one of FIRST_WORDS. Raises nothing.

    None for a statement that changes no table, no view and no database, such as DDL of users, routines and temporary
    tables. For a statement on tables that the grammar cannot read: an UnreadChange with the tables that it names.
    """
    address = cursor.address()
    try:
        change = _read(cursor)
        if cursor.problem and change is not None and not isinstance(change, CreateView):
            raise UnreadableStatement(cursor.problem)
    except (UnreadableStatement, RecursionError, ValueError) as error:
        cursor.go_back(address)
        return UnreadChange(named_tables(cursor), str(error) or type(error).__name__)
    return change


def _read(cursor: Cursor) -> SchemaChange | None:
    match cursor.advance().keyword:
        case "CREATE":
            return _create(cursor)
        case "ALTER":
            return _alter(cursor)
        case "DROP":
            return _drop(cursor)
        case "RENAME":
            return _rename(cursor)
        case _:
            cursor.one_of("TABLE")
            return TruncateTable(cursor.table())


def _create(cursor: Cursor) -> SchemaChange | None:
    replace = cursor.word("OR", "REPLACE")
    if cursor.word("TEMPORARY"):
        return None
    if cursor.one_of("TABLE"):
        return read_create_table(cursor, replace=replace)
    if cursor.one_of("DATABASE", "SCHEMA"):
        if_not_exists = cursor.if_not_exists()
        name = cursor.server.table_name(cursor.identifier())
        return CreateDatabase(name, _database_charset(cursor), if_not_exists, replace)
    if cursor.server.is_mariadb and cursor.one_of("SEQUENCE"):
        if_not_exists = cursor.if_not_exists()
        return CreateSequence(cursor.table(), if_not_exists, replace)
    if cursor.is_one_of("VIEW", "ALGORITHM", "DEFINER", "SQL"):
        return _create_view(cursor)
    cursor.one_of("ONLINE", "OFFLINE")
    kind = KeyKind.UNIQUE if cursor.one_of("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE" else KeyKind.OTHER
    if cursor.one_of("INDEX"):
        if_not_exists = cursor.if_not_exists()
        index = cursor.identifier()
        table = _indexed_table(cursor)
        parts, lengths = read_key_parts(cursor)
        return AlterTable(table, (AddKey(KeyDefinition(kind, parts, index, if_not_exists, lengths), replace),))
    return None


def _create_view(cursor: Cursor) -> CreateView | None:
    """The view of `[ALGORITHM = x] [DEFINER = account] [SQL SECURITY x] VIEW [IF NOT EXISTS] name`.

    None if the statement creates a routine, a trigger or an event.
    """
    while not cursor.is_one_of("VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "AGGREGATE", "EVENT", "PACKAGE", "AS"):
        if cursor.at_end:
            return None
        cursor.advance()
    if not cursor.one_of("VIEW"):
        return None
    cursor.if_not_exists()
    return CreateView(cursor.table()) if cursor.is_kind(TokenKind.WORD, TokenKind.QUOTED) else None


def _alter(cursor: Cursor) -> SchemaChange | None:
    cursor.one_of("ONLINE", "OFFLINE")
    cursor.one_of("IGNORE")
    if cursor.one_of("TABLE"):
        return read_alter_table(cursor)
    if cursor.one_of("DATABASE", "SCHEMA"):
        named = not (cursor.is_one_of("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "CHAR"))
        name = cursor.identifier() if named else cursor.session.database
        return AlterDatabase(cursor.server.table_name(name), _database_charset(cursor))
    return None


def _drop(cursor: Cursor) -> SchemaChange | None:
    if cursor.word("TEMPORARY"):
        return None
    if sequences := (cursor.server.is_mariadb and bool(cursor.one_of("SEQUENCE"))) or cursor.one_of("TABLE", "TABLES"):
        cursor.if_exists()
        names = [cursor.table()]
        while cursor.symbol(","):
            names.append(cursor.table())
        return DropTables(tuple(names), sequences=sequences is True)
    if cursor.one_of("VIEW"):
        cursor.if_exists()
        views = [cursor.table()]
        while cursor.symbol(","):
            views.append(cursor.table())
        return DropViews(tuple(views))
    if cursor.one_of("DATABASE", "SCHEMA"):
        cursor.if_exists()
        return DropDatabase(cursor.server.table_name(cursor.identifier()))
    cursor.one_of("ONLINE", "OFFLINE")
    if cursor.one_of("INDEX"):
        cursor.if_exists()
        index = cursor.identifier()
        return AlterTable(
            _indexed_table(cursor), (DropPrimaryKey() if index.upper() == "PRIMARY" else DropIndex(index),)
        )
    return None


def _indexed_table(cursor: Cursor) -> TableName:
    """The table in `[USING type] ON table`."""
    while not cursor.one_of("ON"):
        cursor.advance()
    return cursor.table()


def _rename(cursor: Cursor) -> SchemaChange | None:
    if not cursor.one_of("TABLE", "TABLES"):
        return None
    cursor.if_exists()
    names = []
    while True:
        old = cursor.table()
        if cursor.one_of("WAIT"):
            cursor.integer()
        cursor.one_of("NOWAIT")
        cursor.expect("TO")
        names.append((old, cursor.table()))
        if not cursor.symbol(","):
            return RenameTables(tuple(names))


def _database_charset(cursor: Cursor) -> CharsetOptions:
    charset = CharsetOptions()
    while not cursor.at_end:
        following = read_charset_option(cursor, charset)
        if following is None:
            cursor.advance()
        else:
            charset = following
    return charset


_BEFORE_NAME = frozenset({"IF", "NOT", "EXISTS"})


def named_tables(cursor: Cursor) -> tuple[TableName, ...]:
    """The tables that a DDL statement names, found without its grammar; () for a statement without tables.

    A name follows TABLE, TABLES or ON. In DROP and RENAME a name also follows each comma and TO, in ALTER TABLE also
    RENAME.
    """
    first = cursor.advance().keyword
    names: list[TableName] = []
    try:
        while not cursor.is_one_of("TABLE", "TABLES", "ON"):
            cursor.advance()
        cursor.advance()
        while cursor.token.keyword in _BEFORE_NAME:
            cursor.advance()
        names.append(cursor.table())
        while not cursor.at_end:
            if first in ("DROP", "RENAME") and (cursor.symbol(",") or cursor.one_of("TO")):
                names.append(cursor.table())
            elif first == "ALTER" and cursor.one_of("RENAME"):
                if not cursor.is_one_of("COLUMN", "INDEX", "KEY"):
                    cursor.one_of("TO", "AS")
                    names.append(cursor.table())
            else:
                cursor.advance()
    except UnreadableStatement:
        pass
    return tuple(dict.fromkeys(names))
