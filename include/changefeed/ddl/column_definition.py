"""A column in CREATE TABLE and ALTER TABLE: its name, type and the attributes that matter to rows.

Sources: https://dev.mysql.com/doc/refman/9.7/en/create-table.html (column_definition),
https://mariadb.com/kb/en/create-table/#column-definitions
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.ddl.column_type import ColumnType, read_type
from changefeed.ddl.cursor import Cursor


@dataclass(frozen=True)
class ColumnDefinition:
    """``primary_key`` is the attribute PRIMARY KEY, or KEY, at the column itself."""

    name: str
    type: ColumnType
    primary_key: bool = False
    invisible: bool = False


def read_column(cursor: Cursor) -> ColumnDefinition:
    """Read `name type attributes`; raises UnreadableStatement for an attribute that neither server has."""
    name = cursor.column()
    return read_unnamed_column(cursor, name)


def read_unnamed_column(cursor: Cursor, name: str) -> ColumnDefinition:
    """Read `type attributes` of the column ``name``, as after CHANGE."""
    definition = ColumnDefinition(name, read_type(cursor))
    while (following := _attribute(cursor, definition)) is not None:
        definition = following
    return definition


_ALONE = ("NULL", "AUTO_INCREMENT", "VISIBLE", "VIRTUAL", "STORED", "PERSISTENT", "ENFORCED")


def _attribute(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition | None:
    """Read one attribute; None where none follows."""
    if cursor.one_of("PRIMARY"):
        cursor.word("KEY")
        return replace(column, primary_key=True)
    if cursor.one_of("KEY"):
        return replace(column, primary_key=True)
    if cursor.one_of("INVISIBLE"):
        return replace(column, invisible=True)
    if cursor.one_of("UNIQUE"):
        cursor.word("KEY")
    elif cursor.word("COLLATE"):
        return replace(column, type=replace(column.type, collation=cursor.name_or_string()))
    elif cursor.word("SRID"):
        return replace(column, type=replace(column.type, srid=cursor.integer()))
    elif (
        cursor.word("SERIAL", "DEFAULT", "VALUE")
        or cursor.one_of(*_ALONE)
        or any(cursor.word("NOT", word) for word in ("NULL", "ENFORCED", "SECONDARY"))
    ):
        pass
    elif cursor.one_of("DEFAULT") or cursor.word("ON", "UPDATE"):
        cursor.expression()
    elif cursor.one_of("COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.symbol("=")
        cursor.advance()
    elif cursor.one_of("COLUMN_FORMAT", "STORAGE"):
        cursor.advance()
    elif cursor.word("GENERATED", "ALWAYS", "AS", "ROW") or cursor.word("AS", "ROW"):
        cursor.advance()  # START or END
    elif cursor.word("GENERATED", "ALWAYS", "AS") or cursor.one_of("AS") or cursor.one_of("CHECK"):
        cursor.parentheses()
    elif cursor.one_of("CONSTRAINT"):
        if not cursor.is_one_of("CHECK", "REFERENCES", "PRIMARY", "UNIQUE"):
            cursor.identifier()
    elif cursor.one_of("REFERENCES"):
        read_reference(cursor)
    elif cursor.one_of("WITH", "WITHOUT"):
        cursor.expect("SYSTEM", "VERSIONING")
    elif _is_engine_option(cursor):
        cursor.advance()
        cursor.expect_symbol("=")
        cursor.advance()
    else:
        return None
    return column


def _is_engine_option(cursor: Cursor) -> bool:
    """MariaDB: an attribute that the engine knows, `name=value`."""
    return cursor.server.is_mariadb and cursor.is_symbol("=", 1)


def read_reference(cursor: Cursor) -> None:
    """Pass over what follows REFERENCES."""
    cursor.table()
    if cursor.is_symbol("("):
        cursor.parentheses()
    while True:
        if cursor.one_of("MATCH"):
            cursor.advance()
        elif cursor.word("ON", "DELETE") or cursor.word("ON", "UPDATE"):
            if cursor.one_of("SET", "NO"):
                cursor.advance()
            else:
                cursor.one_of("RESTRICT", "CASCADE")
        else:
            return
