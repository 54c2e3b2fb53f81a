"""A table whose columns are known, and what each clause of ALTER TABLE makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from changefeed.ddl.changes import (
    Action,
    AddColumn,
    AddPrimaryKey,
    ChangeColumn,
    ConvertCharset,
    CreateTable,
    DefaultCharset,
    DropColumn,
    DropPrimaryKey,
    Position,
    RenameColumn,
    SetVisibility,
)
from changefeed.ddl.charsets import binary_collation, charset_of, max_bytes
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.column_type import blob_of, is_textual, textual_column
from changefeed.ddl.names import TableName
from changefeed.ddl.session import Server, SessionContext
from changefeed.ddl.table_options import CharsetOptions
from changefeed.table_schema import Column, TableSchema

_BLOB_BYTES = {"tinytext": (1 << 8) - 1, "text": (1 << 16) - 1, "mediumtext": (1 << 24) - 1}


_WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})


class ContradictionError(Exception):
    """A change that this table cannot have had: a column it names is not there. Never leaves this room."""


@dataclass(frozen=True)
class Table:
    """A table's schema, and what later definitions need of it besides.

    ``collation`` is the default of columns to come. ``generated_key`` is MySQL's generated invisible primary key,
    before which no column can be placed.
    """

    schema: TableSchema
    collation: str
    generated_key: bool = False

    def named(self, name: TableName) -> Table:
        return replace(self, schema=replace(self.schema, database=name.database, table=name.table))


@dataclass(frozen=True)
class UnknownTable:
    """A table that is there, and whose columns are not known; ``problem`` says since what."""

    name: TableName
    problem: str

    def named(self, name: TableName) -> UnknownTable:
        return replace(self, name=name)


@dataclass(frozen=True)
class Surroundings:
    """What a table inherits: its database's collation, and the one that CHARACTER SET DEFAULT stands for."""

    collation: str
    default: str
    server: Server
    session: SessionContext

    def collation_of(self, options: CharsetOptions, inherited: str) -> str:
        return options.collation_over(inherited, self.default, self.server, self.session)


def created_table(change: CreateTable, around: Surroundings) -> Table:
    """The table of a CREATE TABLE. Raises ContradictionError when its key names a column that it does not have."""
    server, session = around.server, around.session
    collation = around.collation_of(change.charset, around.collation)
    columns = [column.type.column(column.name, collation, server, session) for column in change.columns]
    schema = TableSchema(change.name.database, change.name.table, tuple(columns))
    schema = replace(schema, primary_key=_places(columns, change.primary_key))
    invisible = bool(change.columns) and change.columns[0].invisible
    return Table(schema, collation, invisible and is_generated_key(schema, server))


def is_generated_key(schema: TableSchema, server: Server) -> bool:
    """Whether the first column, when it is invisible, is MySQL's generated invisible primary key.

    Source: https://dev.mysql.com/doc/refman/9.7/en/create-table-gipks.html
    """
    first = schema.columns[0] if schema.columns else None
    return (
        first is not None
        and not server.is_mariadb
        and (first.name.lower(), first.data_type, schema.primary_key) == ("my_row_id", "bigint", (0,))
    )


def altered_table(table: Table, actions: Sequence[Action], around: Surroundings) -> Table:
    """``table`` after the clauses of one ALTER TABLE, in the order in which the server does them.

    The server goes through the old columns first, dropping, changing and renaming them where they stand, then adds and
    moves columns in the order of the clauses; each clause but AFTER names columns as they were before the statement.
    Raises ContradictionError where a column that must be there is not, or the server's result is not to be foretold.

    Source: `mysql_prepare_alter_table` in sql/sql_table.cc of both servers.
    """
    collation, converted = _charset_of(table, actions, around)
    work = _Alteration(table, _Types(collation, converted, around.server, around.session))
    for action in actions:
        work.take(action)
    columns, key = work.result()
    generated_key = table.generated_key
    for action in actions:
        if isinstance(action, SetVisibility) and action.column.lower() == "my_row_id":
            generated_key = not action.visible
    schema = replace(table.schema, columns=tuple(columns), primary_key=key)
    generated_key = generated_key and is_generated_key(schema, around.server)
    return Table(schema, collation, generated_key)


def _charset_of(table: Table, actions: Sequence[Action], around: Surroundings) -> tuple[str, str]:
    """The table's new default collation, and the one that its columns are converted to, or ''."""
    collation, converted = table.collation, ""
    named = set()
    for action in actions:
        if isinstance(action, ConvertCharset):
            collation = converted = around.collation_of(action.charset, around.collation)
            named.add(collation)
        elif isinstance(action, DefaultCharset):
            collation = around.collation_of(action.charset, collation)
            named.add(collation)
    if converted and len(named) > 1:  # MySQL refuses it; what MariaDB makes of it depends on the columns
        raise ContradictionError("it is given two charsets at once")
    return collation, converted


@dataclass(frozen=True)
class _Types:
    """Makes columns of definitions, and converts them where the statement says so."""

    collation: str
    converted: str
    server: Server
    session: SessionContext

    def column(self, definition: ColumnDefinition) -> Column:
        column = definition.type.column(definition.name, self.collation, self.server, self.session)
        if self.converted and column.data_type.replace("blob", "text") in _BLOB_BYTES:
            # Seen on MySQL 9.7: beside CONVERT TO, MODIFY x TEXT made MEDIUMTEXT and MODIFY x BLOB made TINYBLOB; by
            # which rule is not known.
            raise ContradictionError(f"`{column.name}` is made a TEXT or BLOB and converted at once")
        if self.converted and definition.type.binary and column.collation is not None:
            return textual_column(replace(column, collation=binary_collation(charset_of(self.converted))), self.server)
        return self.convert(column)

    def convert(self, column: Column) -> Column:
        """The column after CONVERT TO CHARACTER SET. A TEXT becomes a larger one if its bytes may no longer suffice."""
        if not self.converted or column.collation in (None, "binary") or not is_textual(column.data_type):
            return column
        data_type, charset, converted = column.data_type, charset_of(column.collation), charset_of(self.converted)
        if column.labels and charset != converted and _WIDE & {charset, converted}:
            # Seen on MySQL 9.7 and MariaDB 11.4: ENUM('z') becomes ENUM(''), its bytes taken for the new charset's.
            raise ContradictionError(f"servers spoil the labels of `{column.name}` from {charset} to {converted}")
        if data_type in _BLOB_BYTES:
            characters = _BLOB_BYTES[data_type] // max_bytes(charset)
            data_type = blob_of(characters * max_bytes(converted), "text")
        return textual_column(replace(column, data_type=data_type, collation=self.converted), self.server)


class _Alteration:
    """The clauses of one ALTER TABLE, gathered, and then done in the server's order."""

    def __init__(self, table: Table, types: _Types) -> None:
        self._table = table
        self._types = types
        self._names = [column.name.lower() for column in table.schema.columns]
        self._dropped: set[str] = set()
        self._changed: dict[str, tuple[Column, Position | None]] = {}
        self._placed: list[tuple[Column, Position | None]] = []
        """Columns to add or to move, in the order of their clauses."""
        self._key: tuple[str, ...] | None = None
        self._key_dropped = False

    def take(self, action: Action) -> None:
        match action:
            case AddColumn(column=definition, position=position, if_not_exists=if_not_exists):
                if if_not_exists and definition.name.lower() in self._names:
                    return
                self._placed.append((self._types.column(definition), position))
                self._take_key(definition)
            case ChangeColumn(old=old, column=definition, position=position, if_exists=if_exists):
                if self._is_added_here(old, definition):
                    self._placed.append((self._types.column(definition), position))
                elif self._is_there(old, if_exists):
                    self._changed[old.lower()] = (self._types.column(definition), position)
                    if position is not None:
                        self._placed.append((self._types.column(definition), position))
                    self._take_key(definition)
            case RenameColumn(old=old, new=new, if_exists=if_exists):
                if self._is_there(old, if_exists):
                    before = self._table.schema.columns[self._names.index(old.lower())]
                    self._changed[old.lower()] = (replace(self._types.convert(before), name=new), None)
            case DropColumn(name=name, if_exists=if_exists):
                if self._is_there(name, if_exists):
                    self._dropped.add(name.lower())
            case AddPrimaryKey(columns=columns):
                self._key = columns
            case DropPrimaryKey():
                self._key_dropped = True
            case _:
                pass

    def result(self) -> tuple[list[Column], tuple[int, ...]]:
        """Columns, and places of the primary key's."""
        columns: list[Column] = []
        for column in self._table.schema.columns:
            name = column.name.lower()
            if name in self._changed:
                changed, position = self._changed[name]
                if position is None:
                    columns.append(changed)
            elif name not in self._dropped:
                columns.append(self._types.convert(column))
        for column, position in self._placed:
            _put(columns, column, position, 1 if self._has_generated_key(columns) else 0)
        return columns, _places(columns, self._key_names())

    def _has_generated_key(self, columns: list[Column]) -> bool:
        return self._table.generated_key and columns[:1] == [self._table.schema.columns[0]]

    def _key_names(self) -> tuple[str, ...]:
        if self._key is not None:
            return self._key
        if self._key_dropped:
            return ()
        names = []
        for place in self._table.schema.primary_key:
            name = self._names[place]
            if name in self._changed:
                names.append(self._changed[name][0].name)
            elif name not in self._dropped:
                names.append(self._table.schema.columns[place].name)
        return tuple(names)

    def _take_key(self, definition: ColumnDefinition) -> None:
        if definition.primary_key:
            self._key = (definition.name,)

    def _is_added_here(self, old: str, definition: ColumnDefinition) -> bool:
        """MariaDB changes a column that an earlier clause adds, found by its new name; that clause counts no more."""
        names = [column.name.lower() for column, _ in self._placed]
        name = definition.name.lower()
        if not self._types.server.is_mariadb or old.lower() in self._names or name not in names:
            return False
        del self._placed[names.index(name)]
        return True

    def _is_there(self, name: str, if_exists: bool) -> bool:
        if name.lower() in self._names:
            return True
        if if_exists:
            return False
        raise ContradictionError(f"it has no column `{name}`")


def _put(columns: list[Column], column: Column, position: Position | None, first: int) -> None:
    if any(column.name.lower() == other.name.lower() for other in columns):
        raise ContradictionError(f"it has a column `{column.name}` already")
    if position is None:
        columns.append(column)
    elif position.after is None:
        columns.insert(first, column)
    else:
        columns.insert(_place(columns, position.after) + 1, column)


def _places(columns: Sequence[Column], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(_place(columns, name) for name in names)


def _place(columns: Sequence[Column], name: str) -> int:
    for place, column in enumerate(columns):
        if column.name.lower() == name.lower():
            return place
    raise ContradictionError(f"it has no column `{name}`")
