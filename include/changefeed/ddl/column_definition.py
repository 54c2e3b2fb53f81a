"""Column definitions in CREATE TABLE and ALTER TABLE: name, type, and the attributes that affect rows.

Sources: https://dev.mysql.com/doc/refman/9.7/en/create-table.html (column_definition),
https://mariadb.com/kb/en/create-table/#column-definitions
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from changefeed.ddl.column_default import WrittenDefault, listed_default, read_default
from changefeed.ddl.column_type import ColumnType, read_type
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.session import Server, SessionContext
from changefeed.model.table_schema import NO_DEFAULT, Column, Default, current_time


@dataclass(frozen=True)
class ColumnDefinition:
    """A column definition of a statement.

    - ``primary_key``, ``unique``: whether the column itself has the attribute PRIMARY KEY or KEY, or UNIQUE
    - ``nullable``: None if neither NULL nor NOT NULL is written
    - ``default``: None without DEFAULT
    - ``references``: whether the server creates a foreign key from REFERENCES
    - ``expression``: the expression of a generated column as written, or ''
    - ``stored``: whether rows have the value of the generated column
    """

    name: str
    type: ColumnType
    primary_key: bool = False
    unique: bool = False
    invisible: bool = False
    nullable: bool | None = None
    default: WrittenDefault | None = None
    on_update: bool = False
    auto_increment: bool = False
    generated: bool = False
    references: bool = False
    comment: str = ""
    row_end: bool = False
    expression: str = ""
    stored: bool = False

    def column(self, inherited: str, server: Server, session: SessionContext, *, is_first: bool) -> Column:
        """The column that the server creates from the definition.

        ``inherited`` is the table's default collation. ``is_first`` says that the definition is the `first_timestamp`
        of its statement.
        """
        column = self.type.column(self.name, inherited, server, session)
        implicit = column.data_type == "timestamp" and not session.explicit_defaults_for_timestamp
        nullable = self.nullable if self.nullable is not None else not implicit
        if self.primary_key or self.auto_increment:
            nullable = False
        default = NO_DEFAULT
        if self.default is not None and not self.generated:
            default = listed_default(self.default, column, is_mariadb=server.is_mariadb)
        elif implicit and not nullable and not self.generated:
            is_now = is_first and not self.on_update
            default = current_time(column.datetime_precision or 0) if is_now else _zero_timestamp(column)
        return replace(
            column,
            nullable=nullable,
            auto_increment=self.auto_increment,
            generated=self.generated,
            virtual=bool(self.expression) and not self.stored,
            default=default,
            comment=self.comment,
            row_end=self.row_end,
        )


def _zero_timestamp(column: Column) -> Default:
    fraction = "." + "0" * column.datetime_precision if column.datetime_precision else ""
    return Default(f"0000-00-00 00:00:00{fraction}")


def first_timestamp(definitions: Iterable[ColumnDefinition]) -> ColumnDefinition | None:
    """The first TIMESTAMP column of a statement. It gets a default if `explicit_defaults_for_timestamp` is OFF.

    Source: https://dev.mysql.com/doc/refman/9.7/en/server-system-variables.html
    """
    return next((column for column in definitions if column.type.name == "timestamp"), None)


def read_column(cursor: Cursor) -> ColumnDefinition:
    """The column of `name type attributes`. Raises UnreadableStatement for an attribute that neither server has."""
    name = cursor.column()
    return read_unnamed_column(cursor, name)


def read_unnamed_column(cursor: Cursor, name: str) -> ColumnDefinition:
    """The column ``name`` with the definition `type attributes`, as after MODIFY."""
    if cursor.word("SERIAL"):
        definition = _serial(ColumnDefinition(name, ColumnType("bigint", unsigned=True)))
    else:
        definition = ColumnDefinition(name, read_type(cursor))
    while (following := _attribute(cursor, definition)) is not None:
        definition = following
    return definition


def _serial(column: ColumnDefinition) -> ColumnDefinition:
    return replace(column, nullable=False, auto_increment=True, unique=True)


_SKIPPED_ATTRIBUTES = ("VISIBLE", "VIRTUAL", "ENFORCED")


def _attribute(cursor: Cursor, column: ColumnDefinition) -> ColumnDefinition | None:
    """``column`` with the next attribute; None if no attribute follows."""
    if cursor.one_of("PRIMARY"):
        cursor.word("KEY")
        return replace(column, primary_key=True)
    if cursor.one_of("KEY"):
        return replace(column, primary_key=True)
    if cursor.one_of("INVISIBLE"):
        return replace(column, invisible=True)
    if cursor.one_of("UNIQUE"):
        cursor.word("KEY")
        return replace(column, unique=True)
    if cursor.word("NOT", "NULL"):
        return replace(column, nullable=False)
    if cursor.one_of("NULL"):
        return replace(column, nullable=True)
    if cursor.one_of("AUTO_INCREMENT"):
        return replace(column, auto_increment=True)
    if cursor.word("SERIAL", "DEFAULT", "VALUE"):
        return _serial(column)
    if cursor.one_of("DEFAULT"):
        return replace(column, default=read_default(cursor))
    if cursor.word("ON", "UPDATE"):
        cursor.expression()
        return replace(column, on_update=True)
    if cursor.one_of("COMMENT"):
        cursor.symbol("=")
        return replace(column, comment=cursor.as_stored(cursor.advance().text))
    if cursor.word("COLLATE"):
        return replace(column, type=replace(column.type, collation=cursor.name_or_string()))
    if cursor.word("SRID"):
        return replace(column, type=replace(column.type, srid=cursor.integer()))
    if cursor.word("GENERATED", "ALWAYS", "AS", "ROW") or cursor.word("AS", "ROW"):
        is_end = cursor.advance().keyword == "END"
        return replace(column, generated=True, nullable=False, row_end=is_end)
    if cursor.word("GENERATED", "ALWAYS", "AS") or cursor.one_of("AS"):
        start = cursor.token.start
        cursor.parentheses()
        return replace(column, generated=True, expression=cursor.sql[start : cursor.ahead(-1).end])
    if cursor.one_of("STORED", "PERSISTENT"):
        return replace(column, stored=True)
    if cursor.one_of("REFERENCES"):
        read_reference(cursor)
        since = (10, 5, 0) if cursor.server.is_mariadb else (9, 0, 0)
        return replace(column, references=cursor.server.version >= since)
    return column if _skip_attribute(cursor) else None


def _skip_attribute(cursor: Cursor) -> bool:
    """Skip an attribute that does not affect the column's values. False if no such attribute follows."""
    if cursor.one_of(*_SKIPPED_ATTRIBUTES) or cursor.word("NOT", "ENFORCED") or cursor.word("NOT", "SECONDARY"):
        pass
    elif cursor.one_of("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.symbol("=")
        cursor.advance()
    elif cursor.one_of("COLUMN_FORMAT", "STORAGE"):
        cursor.advance()
    elif cursor.one_of("CHECK"):
        cursor.parentheses()
    elif cursor.one_of("CONSTRAINT"):
        if not cursor.is_one_of("CHECK", "REFERENCES", "PRIMARY", "UNIQUE"):
            cursor.identifier()
    elif cursor.one_of("COMPRESSED"):  # MariaDB also allows it after other attributes
        cursor.symbol("=")
        cursor.one_of("ZLIB")
    elif cursor.word("MASKING", "POLICY"):  # MySQL 9.7: some accounts see this instead of the values
        cursor.identifier()
    elif cursor.one_of("WITH", "WITHOUT"):
        cursor.expect("SYSTEM", "VERSIONING")
    elif _is_engine_option(cursor):
        cursor.advance()
        cursor.expect_symbol("=")
        cursor.advance()
    else:
        return False
    return True


def _is_engine_option(cursor: Cursor) -> bool:
    """Whether an attribute `name=value` of a MariaDB engine follows."""
    return cursor.server.is_mariadb and cursor.is_symbol("=", 1)


def read_reference(cursor: Cursor) -> None:
    """Skip the text after REFERENCES."""
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
