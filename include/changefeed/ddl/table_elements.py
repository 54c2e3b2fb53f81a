"""Elements in the parentheses of CREATE TABLE and after ADD of ALTER TABLE: columns, keys, constraints.

Source: https://dev.mysql.com/doc/refman/9.7/en/create-table.html (create_definition)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from changefeed.ddl.column_definition import ColumnDefinition, read_column, read_reference
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.scanner import TokenKind


class KeyKind(Enum):
    """The kind of a key."""

    PRIMARY = "primary"
    UNIQUE = "unique"
    OTHER = "other"
    """INDEX, FULLTEXT, SPATIAL, VECTOR"""
    FOREIGN = "foreign"
    """FOREIGN KEY. The server adds an index for it, unless another index begins with its columns."""


@dataclass(frozen=True)
class KeyDefinition:
    """A key in the form of the statement: the names of its columns in order, and None for an expression.

    ``name`` is '' if the server chooses the name.
    """

    kind: KeyKind
    columns: tuple[str | None, ...]
    name: str = ""
    if_not_exists: bool = False
    lengths: tuple[int | None, ...] = ()
    """The lengths of prefix parts, None for other parts; empty for a key without prefix parts."""


class Check(Enum):
    """CHECK, which changes neither columns nor keys."""

    CHECK = "check"


@dataclass(frozen=True)
class Period:
    """MariaDB's `PERIOD FOR name (start, end)`."""

    name: str
    start: str
    end: str


def read_element(cursor: Cursor) -> ColumnDefinition | KeyDefinition | Period | Check:
    """Read one element: a column, a key, a period, or a check."""
    if is_period(cursor):
        return read_period(cursor)
    return read_key(cursor) or read_column(cursor)


def own_keys(column: ColumnDefinition) -> list[KeyDefinition]:
    """The keys that the attributes of a column definition create."""
    keys = [KeyDefinition(KeyKind.PRIMARY, (column.name,))] if column.primary_key else []
    keys += [KeyDefinition(KeyKind.UNIQUE, (column.name,))] if column.unique else []
    return keys + ([KeyDefinition(KeyKind.FOREIGN, (column.name,))] if column.references else [])


def is_period(cursor: Cursor) -> bool:
    """Whether MariaDB's `PERIOD FOR name (start, end)` follows. Otherwise `period` is the name of a column."""
    return cursor.is_word("PERIOD", "FOR") or cursor.is_word("PERIOD", "IF", "NOT", "EXISTS", "FOR")


def read_period(cursor: Cursor) -> Period:
    """The period that `is_period` found. Raises UnreadableStatement."""
    cursor.expect("PERIOD")
    cursor.if_not_exists()
    cursor.expect("FOR")
    name = cursor.identifier()
    cursor.expect_symbol("(")
    start = cursor.identifier()
    cursor.expect_symbol(",")
    end = cursor.identifier()
    cursor.expect_symbol(")")
    return Period(name, start, end)


def read_key(cursor: Cursor) -> KeyDefinition | Check | None:
    """The key or constraint at ``cursor``; None if a column follows."""
    if cursor.is_word("VECTOR") and not (cursor.ahead(1).keyword in ("INDEX", "KEY") or cursor.is_symbol("(", 1)):
        return None  # a word that may also name a column
    constraint = None
    if cursor.one_of("CONSTRAINT"):
        cursor.if_not_exists()
        constraint = "" if cursor.is_one_of("PRIMARY", "UNIQUE", "FOREIGN", "CHECK") else cursor.identifier()
    if cursor.word("PRIMARY", "KEY"):
        return _key(cursor, KeyKind.PRIMARY)
    if cursor.one_of("UNIQUE"):
        cursor.one_of("INDEX", "KEY")
        return _key(cursor, KeyKind.UNIQUE, constraint or "")
    if cursor.one_of("FULLTEXT", "SPATIAL", "VECTOR"):
        cursor.one_of("INDEX", "KEY")
        return _key(cursor, KeyKind.OTHER)
    if cursor.one_of("INDEX", "KEY"):
        return _key(cursor, KeyKind.OTHER)
    if cursor.word("FOREIGN", "KEY"):
        key = _key(cursor, KeyKind.FOREIGN, constraint or "")
        cursor.expect("REFERENCES")
        read_reference(cursor)
        return key
    if cursor.one_of("CHECK"):
        cursor.parentheses()
        cursor.word("NOT", "ENFORCED")
        cursor.one_of("ENFORCED")
        return Check.CHECK
    if constraint is not None:
        raise cursor.unreadable_error("a constraint")
    return None


def _key(cursor: Cursor, kind: KeyKind, constraint: str = "") -> KeyDefinition:
    """The key of `[IF NOT EXISTS] [name] [USING type] (part, …) options`; ``constraint`` if it has no name."""
    if_not_exists = cursor.if_not_exists()
    name = ""
    if not cursor.is_symbol("(") and not (cursor.is_one_of("USING", "TYPE") and _is_index_type(cursor)):
        name = cursor.identifier()
    if kind is KeyKind.FOREIGN:
        name = constraint or name  # the index of a foreign key is called after its constraint
    while not cursor.is_symbol("("):
        if not cursor.is_kind(TokenKind.WORD, TokenKind.QUOTED):
            raise cursor.unreadable_error("the columns of a key")
        cursor.advance()
    parts, lengths = read_key_parts(cursor)
    if kind is not KeyKind.FOREIGN:
        cursor.until(",", ")")
    return KeyDefinition(kind, parts, name or constraint, if_not_exists, lengths)


def _is_index_type(cursor: Cursor) -> bool:
    return cursor.ahead(1).keyword in ("BTREE", "HASH", "RTREE")


def read_key_parts(cursor: Cursor) -> tuple[tuple[str | None, ...], tuple[int | None, ...]]:
    """The names and prefix lengths of `(column [(length)] [ASC|DESC] | (expression), …)`.

    The name of an expression is None. The lengths are () if no part has one.
    """
    cursor.expect_symbol("(")
    names: list[str | None] = []
    lengths: list[int | None] = []
    while True:
        if cursor.is_symbol("("):
            cursor.parentheses()
            names.append(None)
            lengths.append(None)
        else:
            names.append(cursor.column())
            lengths.append(cursor.length())
        cursor.word("WITHOUT", "OVERLAPS")  # MariaDB: the name is the name of a period
        cursor.until(",", ")")
        if cursor.symbol(")"):
            return tuple(names), tuple(lengths) if any(lengths) else ()
        cursor.expect_symbol(",")
