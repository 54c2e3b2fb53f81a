"""What stands between the parentheses of CREATE TABLE, and after ADD in ALTER TABLE: columns, keys, constraints.

Source: https://dev.mysql.com/doc/refman/9.7/en/create-table.html (create_definition)
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.ddl.column_definition import ColumnDefinition, read_column, read_reference
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.scanner import TokenKind

PrimaryKey = tuple[str, ...]
"""Names of a key's columns, in its order."""


@dataclass(frozen=True)
class Period:
    """MariaDB's `PERIOD FOR name (start, end)`."""

    name: str
    start: str
    end: str


def read_element(cursor: Cursor) -> ColumnDefinition | PrimaryKey | Period | None:
    """Read one element: a column, the primary key, a period, or None for what does not matter to rows."""
    if is_period(cursor):
        return read_period(cursor)
    key = read_key(cursor)
    return read_column(cursor) if isinstance(key, bool) else key


def is_period(cursor: Cursor) -> bool:
    """MariaDB's `PERIOD FOR name (start, end)`; `period` is a column's name otherwise."""
    return cursor.is_word("PERIOD", "FOR")


def read_period(cursor: Cursor) -> Period:
    cursor.expect("PERIOD", "FOR")
    name = cursor.identifier()
    cursor.expect_symbol("(")
    start = cursor.identifier()
    cursor.expect_symbol(",")
    end = cursor.identifier()
    cursor.expect_symbol(")")
    return Period(name, start, end)


def read_key(cursor: Cursor) -> PrimaryKey | bool | None:
    """Read a key or constraint: the primary key's columns, None for any other, False where none stands here."""
    if cursor.is_word("VECTOR"):  # a word that may also name a column
        if not (cursor.ahead(1).keyword in ("INDEX", "KEY") or cursor.is_symbol("(", 1)):
            return False
        cursor.advance()
        _pass_over_key(cursor)
        return None
    named = False
    if cursor.one_of("CONSTRAINT"):
        named = True
        if not cursor.is_one_of("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            cursor.identifier()
    if cursor.word("PRIMARY", "KEY"):
        return _primary_key(cursor)
    if cursor.one_of("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL"):
        _pass_over_key(cursor)
        return None
    if cursor.word("FOREIGN", "KEY"):
        cursor.if_not_exists()
        if not cursor.is_symbol("("):
            cursor.identifier()
        cursor.parentheses()
        cursor.expect("REFERENCES")
        read_reference(cursor)
        return None
    if cursor.one_of("CHECK"):
        cursor.parentheses()
        cursor.word("NOT", "ENFORCED")
        cursor.one_of("ENFORCED")
        return None
    if named:
        raise cursor.unreadable("a constraint")
    return False


def _pass_over_key(cursor: Cursor) -> None:
    """`[INDEX|KEY] [IF NOT EXISTS] [name] [USING type] (parts) options`."""
    cursor.until(",", ")")


def _primary_key(cursor: Cursor) -> PrimaryKey:
    """`[IF NOT EXISTS] [name] [USING type] (column [(length)] [ASC|DESC], …) options`."""
    cursor.if_not_exists()
    while not cursor.is_symbol("("):
        if not cursor.is_kind(TokenKind.WORD, TokenKind.QUOTED):
            raise cursor.unreadable("the columns of the primary key")
        cursor.advance()
    cursor.advance()
    names = []
    while True:
        names.append(cursor.column())
        cursor.word("WITHOUT", "OVERLAPS")  # MariaDB: the name is that of a period
        cursor.until(",", ")")
        if cursor.symbol(")"):
            break
        cursor.expect_symbol(",")
    cursor.until(",", ")")
    return tuple(names)
