"""CREATE TABLE.

Sources: https://dev.mysql.com/doc/refman/9.7/en/create-table.html, https://mariadb.com/kb/en/create-table/
"""

from __future__ import annotations

from changefeed.ddl.changes import Change, CreateTable, CreateTableLike
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.table_elements import KeyDefinition, Period, own_keys, read_element
from changefeed.ddl.table_options import CharsetOptions, read_charset_option


def read_create_table(cursor: Cursor, *, replace: bool) -> Change:
    """Read what follows CREATE [OR REPLACE] TABLE; raises UnreadableStatement."""
    if_not_exists = cursor.if_not_exists()
    name = cursor.table()
    parenthesized = cursor.is_symbol("(") and cursor.ahead(1).keyword == "LIKE"
    if parenthesized:
        cursor.advance()
    if cursor.word("LIKE"):
        return CreateTableLike(name, cursor.table(), if_not_exists, replace)
    columns: list[ColumnDefinition] = []
    keys: list[KeyDefinition] = []
    periods: list[Period] = []
    if cursor.is_symbol("(") and cursor.ahead(1).keyword not in ("SELECT", "WITH", "VALUES", "TABLE"):
        columns, keys, periods = _elements(cursor)
    charset, select = _options(cursor)
    return CreateTable(name, tuple(columns), tuple(keys), tuple(periods), charset, select, if_not_exists, replace)


def _elements(cursor: Cursor) -> tuple[list[ColumnDefinition], list[KeyDefinition], list[Period]]:
    columns: list[ColumnDefinition] = []
    keys: list[KeyDefinition] = []
    periods: list[Period] = []
    cursor.expect_symbol("(")
    while True:
        match read_element(cursor):
            case ColumnDefinition() as column:
                columns.append(column)
                keys += own_keys(column)
            case Period() as period:
                periods.append(period)
            case KeyDefinition() as key:
                keys.append(key)
        if cursor.symbol(")"):
            return columns, keys, periods
        cursor.expect_symbol(",")


def _options(cursor: Cursor) -> tuple[CharsetOptions, bool]:
    """Read options and partitions to the end: the charset, and whether rows are selected."""
    charset = CharsetOptions()
    while not cursor.at_end:
        following = read_charset_option(cursor, charset)
        if following is not None:
            charset = following
        elif cursor.word("WITH", "SYSTEM", "VERSIONING"):
            pass  # MariaDB adds columns that it lists nowhere: see `binlog.row_shape`
        elif cursor.word("START", "TRANSACTION"):
            pass  # of a CREATE TABLE ... SELECT whose rows follow in row events
        elif _is_select(cursor):
            return charset, True
        elif cursor.is_symbol("("):
            cursor.parentheses()
        else:
            cursor.advance()
            if cursor.symbol("=") and cursor.is_one_of("IGNORE", "REPLACE", "TABLE"):
                cursor.advance()  # a value, not a SELECT
    return charset, False


def _is_select(cursor: Cursor) -> bool:
    if cursor.is_symbol("("):
        return cursor.ahead(1).keyword in ("SELECT", "WITH", "VALUES", "TABLE")
    return cursor.is_one_of("SELECT", "WITH", "VALUES", "TABLE", "AS", "IGNORE", "REPLACE")
