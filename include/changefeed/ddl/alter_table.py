"""The parser of ALTER TABLE.

Sources: https://dev.mysql.com/doc/refman/9.7/en/alter-table.html, https://mariadb.com/kb/en/alter-table/
"""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.ddl.changes import (
    Action,
    AddColumn,
    AddKey,
    AddPeriod,
    AlterTable,
    ChangeColumn,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    DropIndex,
    DropPeriod,
    DropPrimaryKey,
    ExchangePartition,
    OtherRows,
    PartitionToTable,
    Position,
    RenameColumn,
    RenameIndex,
    RenameTo,
    SetDefault,
    SetVisibility,
    TableToPartition,
)
from changefeed.ddl.column_default import read_default
from changefeed.ddl.column_definition import ColumnDefinition, read_column, read_unnamed_column
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.table_elements import KeyDefinition, is_period, read_element, read_key, read_period
from changefeed.ddl.table_options import CharsetOptions, read_charset_option


def read_alter_table(cursor: Cursor) -> AlterTable:
    """The ALTER TABLE whose text after these words is at ``cursor``. Raises UnreadableStatement."""
    cursor.if_exists()
    name = cursor.table()
    if cursor.one_of("WAIT"):
        cursor.integer()
    cursor.one_of("NOWAIT")
    actions: list[Action] = []
    while not cursor.at_end:
        is_clause = cursor.is_one_of("ADD", "DROP", "CHANGE", "MODIFY", "RENAME", "CONVERT", "ALTER")
        actions += _actions(cursor)
        if cursor.symbol(",") or cursor.at_end or cursor.is_one_of("PARTITION", "REMOVE"):
            continue
        if is_clause or cursor.is_symbol(")"):  # only table options need no comma between them
            raise cursor.unreadable_error("a comma or the end")
    return AlterTable(name, tuple(actions))


def _actions(cursor: Cursor) -> Iterator[Action]:
    """Read a clause, and yield its changes of columns, keys or rows."""
    if cursor.is_one_of(*_OTHER_ROWS):
        yield OtherRows()
    if cursor.one_of("ADD"):
        yield from _add(cursor)
    elif cursor.one_of("DROP"):
        yield from _drop(cursor)
    elif cursor.one_of("CHANGE"):
        cursor.one_of("COLUMN")
        if_exists = cursor.if_exists()
        old = cursor.column()
        column = read_column(cursor)
        yield ChangeColumn(old, column, _position(cursor), if_exists)
    elif cursor.one_of("MODIFY"):
        cursor.one_of("COLUMN")
        if_exists = cursor.if_exists()
        name = cursor.column()
        column = read_unnamed_column(cursor, name)
        yield ChangeColumn(name, column, _position(cursor), if_exists)
    elif cursor.one_of("RENAME"):
        yield from _rename(cursor)
    elif cursor.one_of("CONVERT"):
        yield _convert(cursor)
    elif cursor.one_of("ALTER"):
        yield from _alter(cursor)
    elif cursor.word("ORDER", "BY"):
        cursor.until()  # a list of columns, which is the last clause
    elif cursor.word("EXCHANGE", "PARTITION"):
        yield _exchange(cursor)
    elif cursor.one_of("PARTITION") or (cursor.is_one_of(*_PARTITION_CLAUSES) and _is_partition_clause(cursor)):
        cursor.until()
    else:
        yield from _table_option(cursor)


_OTHER_ROWS = ("IMPORT", "DISCARD", "UNION", "CONNECTION")
_PARTITION_CLAUSES = (
    *("DISCARD", "IMPORT", "TRUNCATE", "COALESCE", "REORGANIZE", "ANALYZE", "CHECK", "OPTIMIZE", "REBUILD"),
    *("REPAIR", "REMOVE", "UPGRADE"),
)


def _is_partition_clause(cursor: Cursor) -> bool:
    return cursor.ahead(1).keyword in ("PARTITION", "PARTITIONING", "ALL")


def _add(cursor: Cursor) -> Iterator[Action]:
    if cursor.is_one_of("PARTITION") and not cursor.ahead(1).keyword.startswith("INT"):
        cursor.until()
        return
    if cursor.word("SYSTEM", "VERSIONING"):
        return
    if is_period(cursor):
        yield AddPeriod(read_period(cursor))
        return
    key = read_key(cursor)
    if key is not None:
        if isinstance(key, KeyDefinition):
            yield AddKey(key)
        return
    cursor.one_of("COLUMN")
    if_not_exists = cursor.if_not_exists()
    if not cursor.symbol("("):
        column = read_column(cursor)
        yield AddColumn(column, _position(cursor), if_not_exists)
        return
    while True:
        element = read_element(cursor)
        if isinstance(element, ColumnDefinition):
            yield AddColumn(element, None, if_not_exists)
        elif isinstance(element, KeyDefinition):
            yield AddKey(element)
        if cursor.symbol(")"):
            return
        cursor.expect_symbol(",")


def _drop(cursor: Cursor) -> Iterator[Action]:
    if cursor.word("PRIMARY", "KEY"):
        yield DropPrimaryKey()
    elif cursor.is_one_of("INDEX", "KEY", "CONSTRAINT"):
        cursor.advance()
        cursor.if_exists()
        name = cursor.identifier()
        if name.upper() == "PRIMARY":
            cursor.one_of("KEY")
        yield DropPrimaryKey() if name.upper() == "PRIMARY" else DropIndex(name)
    elif cursor.word("FOREIGN", "KEY") or cursor.one_of("CHECK"):
        cursor.if_exists()
        cursor.identifier()
    elif cursor.is_one_of("PARTITION"):
        cursor.until()
    elif cursor.word("SYSTEM", "VERSIONING"):
        return
    elif is_period(cursor) or cursor.is_word("PERIOD", "IF", "EXISTS", "FOR"):
        cursor.expect("PERIOD")
        cursor.if_exists()
        cursor.expect("FOR")
        yield DropPeriod(cursor.identifier())
    else:
        cursor.one_of("COLUMN")
        if_exists = cursor.if_exists()
        yield DropColumn(cursor.column(), if_exists)
        cursor.one_of("RESTRICT", "CASCADE")


def _rename(cursor: Cursor) -> Iterator[Action]:
    if cursor.one_of("COLUMN"):
        if_exists = cursor.if_exists()
        old = cursor.column()
        cursor.expect("TO")
        yield RenameColumn(old, cursor.column(), if_exists)
    elif cursor.is_one_of("INDEX", "KEY"):
        yield _renamed_index(cursor)
    else:
        if not cursor.one_of("TO", "AS"):
            cursor.symbol("=")
        yield RenameTo(cursor.table())


def _renamed_index(cursor: Cursor) -> RenameIndex:
    """`INDEX [IF EXISTS] old TO new`."""
    cursor.advance()
    cursor.if_exists()
    old = cursor.identifier()
    cursor.expect("TO")
    return RenameIndex(old, cursor.identifier())


def _alter(cursor: Cursor) -> Iterator[Action]:
    """Read ALTER COLUMN. Other ALTER clauses, of checks and indexes, change neither columns nor keys."""
    if cursor.is_one_of("INDEX", "KEY", "CHECK", "CONSTRAINT"):
        cursor.until(",")
        return
    cursor.one_of("COLUMN")
    name = cursor.column()
    if cursor.word("SET", "VISIBLE"):
        yield SetVisibility(name, True)
    elif cursor.word("SET", "INVISIBLE"):
        yield SetVisibility(name, False)
    elif cursor.word("SET", "DEFAULT"):
        yield SetDefault(name, read_default(cursor))
    elif cursor.word("DROP", "DEFAULT"):
        yield SetDefault(name, None)
    else:
        cursor.until(",")


def _convert(cursor: Cursor) -> Action:
    if cursor.one_of("PARTITION"):
        cursor.identifier()
        cursor.expect("TO", "TABLE")
        name = cursor.table()
        cursor.until(",")
        return PartitionToTable(name)
    if cursor.one_of("TABLE"):
        name = cursor.table()
        cursor.until()
        return TableToPartition(name)
    cursor.expect("TO")
    charset = read_charset_option(cursor, CharsetOptions())
    if charset is None:
        raise cursor.unreadable_error("a charset to convert to")
    return ConvertCharset(read_charset_option(cursor, charset) or charset)


def _exchange(cursor: Cursor) -> Action:
    cursor.identifier()
    cursor.expect("WITH", "TABLE")
    name = cursor.table()
    cursor.until()  # WITHOUT VALIDATION
    return ExchangePartition(name)


def _table_option(cursor: Cursor) -> Iterator[Action]:
    """Read `name [=] value`, and options of other forms such as FORCE, DISABLE KEYS or WITHOUT VALIDATION."""
    charset = read_charset_option(cursor, CharsetOptions())
    if charset is not None:
        yield DefaultCharset(read_charset_option(cursor, charset) or charset)
        return
    if cursor.is_symbol("("):
        cursor.parentheses()
        return
    cursor.advance()
    if cursor.symbol("="):
        if cursor.is_symbol("("):
            cursor.parentheses()
        else:
            cursor.advance()


def _position(cursor: Cursor) -> Position | None:
    if cursor.one_of("FIRST"):
        return Position()
    if cursor.one_of("AFTER"):
        return Position(cursor.column())
    return None
