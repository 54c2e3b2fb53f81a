"""The parser of CREATE TABLE.

Sources: https://dev.mysql.com/doc/refman/9.7/en/create-table.html, https://mariadb.com/kb/en/create-table/
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from changefeed.ddl.changes import CreateTable, CreateTableLike, SchemaChange
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.column_type import is_textual
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.scanner import UnreadableStatement
from changefeed.ddl.table_elements import KeyDefinition, Period, own_keys, read_element
from changefeed.ddl.table_options import CharsetOptions, read_charset_option
from changefeed.model.server_text import is_server_text


def read_create_table(cursor: Cursor, *, replace: bool) -> SchemaChange:
    """The table of CREATE [OR REPLACE] TABLE, whose text after these words is at ``cursor``. Raises
    UnreadableStatement."""
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
    if cursor.server.is_mariadb and not charset and _is_like_information_schema(cursor.sql, columns):
        charset = CharsetOptions("utf8mb3", "utf8mb3_general_ci")
    return CreateTable(name, tuple(columns), tuple(keys), tuple(periods), charset, select, if_not_exists, replace)


_WITH_ENGINE = re.compile(r"\n\) ENGINE=(MEMORY|Aria\b)?")


def _is_like_information_schema(sql: str, columns: Sequence[ColumnDefinition]) -> bool:
    """Whether MariaDB wrote the statement for CREATE TABLE … LIKE information_schema.…, without the charset.

    Such tables have names in capitals, and their nullable columns have no DEFAULT, whereas nullable columns of other
    tables have one. Raises UnreadableStatement for a table without nullable columns that may be one of them.
    """
    engine = _WITH_ENGINE.search(sql) if is_server_text(sql) else None
    if engine is None or not any(is_textual(column.type.name) for column in columns):
        return False
    for column in columns:
        if column.default is not None or column.generated or column.type.charset or column.name != column.name.upper():
            return False
    if any(column.nullable is not False for column in columns):
        return True
    if engine[1]:
        raise UnreadableStatement("the charset of the columns of an information_schema table is unknown")
    return False


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
    """Read options and partitions to the end. Returns the charset, and whether a SELECT follows."""
    charset = CharsetOptions()
    while not cursor.at_end:
        following = read_charset_option(cursor, charset)
        if following is not None:
            charset = following
        elif cursor.word("WITH", "SYSTEM", "VERSIONING"):
            pass  # MariaDB adds columns that it does not list: see `model.row_shape`
        elif cursor.word("START", "TRANSACTION"):
            pass  # CREATE TABLE ... SELECT, whose rows follow in row events
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
