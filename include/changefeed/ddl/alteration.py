"""The effect of the clauses of an ALTER TABLE on a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.ddl.changes import (
    Action,
    AddColumn,
    AddKey,
    AddPeriod,
    ChangeColumn,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    DropIndex,
    DropPeriod,
    DropPrimaryKey,
    Position,
    RenameColumn,
    RenameIndex,
    SetDefault,
    SetVisibility,
)
from changefeed.ddl.charsets import binary_collation, charset_of
from changefeed.ddl.column_default import WrittenDefault, listed_default
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.column_type import blob_of, is_textual, textual_column
from changefeed.ddl.contradiction import ContradictionError
from changefeed.ddl.keys import (
    NamedIndex,
    has_longer_text,
    indexes_at,
    kept_prefix,
    named_parts,
    over_columns,
    position_of,
    positions_of,
    with_keys,
    without_null,
)
from changefeed.ddl.session import Server, SessionContext
from changefeed.ddl.table import Surroundings, Table, is_generated_key
from changefeed.ddl.table_elements import KeyDefinition, KeyKind, Period, own_keys
from changefeed.model.charset_codes import max_bytes
from changefeed.model.table_schema import NO_DEFAULT, Column, TableSchema

_BLOB_BYTES = {"tinytext": (1 << 8) - 1, "text": (1 << 16) - 1, "mediumtext": (1 << 24) - 1}


_WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})


def altered_table(table: Table, actions: Sequence[Action], around: Surroundings) -> Table:
    """``table`` after the clauses of one ALTER TABLE, applied in the server's order.

    1. The server drops, changes and renames existing columns in place.
    2. It adds and moves columns in the order of the clauses.

    Column names in a clause, except after AFTER, are names before the statement. Raises ContradictionError if a
    required column is missing, or if the server's result cannot be predicted.

    Source: `mysql_prepare_alter_table` in sql/sql_table.cc of both servers.
    """
    collation, converted = _charset_of(table, actions, around)
    work = _Alteration(table, _Types(collation, converted, around.server, around.session))
    for action in actions:
        work.take(action)
    generated_key = table.generated_key
    for action in actions:
        if isinstance(action, SetVisibility) and action.column.lower() == "my_row_id":
            generated_key = not action.visible
        elif isinstance(action, AddColumn | ChangeColumn) and action.column.name.lower() == "my_row_id":
            generated_key = action.column.invisible
    schema = work.result()
    generated_key = generated_key and is_generated_key(schema, around.server)
    return Table(schema, collation, generated_key, work.periods(schema.columns))


def _charset_of(table: Table, actions: Sequence[Action], around: Surroundings) -> tuple[str, str]:
    """The table's new default collation, and the collation to which its columns are converted or ''."""
    collation, converted = table.collation, ""
    named = set()
    for action in actions:
        if isinstance(action, ConvertCharset):
            collation = converted = around.collation_of(action.charset, around.collation)
            named.add(collation)
        elif isinstance(action, DefaultCharset):
            collation = around.collation_of(action.charset, collation)
            named.add(collation)
    if converted and len(named) > 1:  # an error on MySQL; on MariaDB the result depends on the columns
        raise ContradictionError("it converts to two charsets at once")
    return collation, converted


@dataclass(frozen=True)
class _Types:
    """Creates columns from their definitions, and converts columns if the statement has CONVERT TO."""

    collation: str
    converted: str
    server: Server
    session: SessionContext

    def column(self, definition: ColumnDefinition, *, is_first: bool = False) -> Column:
        column = definition.column(self.collation, self.server, self.session, is_first=is_first)
        if self.converted and column.data_type.replace("blob", "text") in _BLOB_BYTES:
            # Observed on MySQL 9.7: with CONVERT TO in the statement, MODIFY x TEXT created MEDIUMTEXT, and MODIFY x
            # BLOB created TINYBLOB. The rule is not known.
            raise ContradictionError(f"`{column.name}` becomes a TEXT or BLOB and is converted in one statement")
        if self.converted and definition.type.binary and column.collation is not None:
            return textual_column(replace(column, collation=binary_collation(charset_of(self.converted))), self.server)
        return self.convert(column)

    def convert(self, column: Column) -> Column:
        """The column after CONVERT TO CHARACTER SET. A TEXT becomes a larger type if its size may be too small."""
        if not self.converted or column.collation in (None, "binary") or not is_textual(column.data_type):
            return column
        data_type, charset, converted = column.data_type, charset_of(column.collation), charset_of(self.converted)
        if column.labels and charset != converted and _WIDE & {charset, converted}:
            # Observed on MySQL 9.7 and MariaDB 11.4: ENUM('z') becomes ENUM(''), as its bytes are read in the charset.
            raise ContradictionError(f"servers corrupt the labels of `{column.name}` from {charset} to {converted}")
        if data_type in _BLOB_BYTES:
            characters = _BLOB_BYTES[data_type] // max_bytes(charset)
            data_type = blob_of(characters * max_bytes(converted), "text")
        return textual_column(replace(column, data_type=data_type, collation=self.converted), self.server)


@dataclass(frozen=True)
class _Placed:
    """A column that the statement adds or moves."""

    column: Column
    position: Position | None
    exists: bool = False


class _Alteration:
    """Collects the clauses of one ALTER TABLE, then applies them in the server's order."""

    def __init__(self, table: Table, types: _Types) -> None:
        self._table = table
        self._types = types
        self._names = [column.name.lower() for column in table.schema.columns]
        self._dropped: set[str] = set()
        self._changed: dict[str, Column] = {}
        self._placed: list[_Placed] = []
        """Columns to add or to move, in the order of their clauses."""
        self._definitions: dict[str, ColumnDefinition] = {}
        """The clauses of added and changed columns, by new name."""
        self._defaults: dict[str, WrittenDefault | None] = {}
        """The default clauses by old name; by new name for added columns, which MariaDB also accepts."""
        self._replaced: set[str] = set()
        """The columns that MariaDB adds by one clause and changes by another. ALTER COLUMN sets the first's default."""
        self._key_dropped = False
        self._keys: list[KeyDefinition] = []
        self._periods: list[Period] = []
        self._dropped_periods: set[str] = set()
        self._dropped_indexes: set[str] = set()
        self._renamed_indexes: dict[str, str] = {}

    def take(self, action: Action) -> None:
        match action:
            case AddColumn(column=definition, position=position, if_not_exists=if_not_exists):
                added = [placed.column.name.lower() for placed in self._placed]
                if if_not_exists and definition.name.lower() in (*self._names, *added):
                    return
                self._placed.append(_Placed(self._types.column(definition), position))
                self._take(definition)
            case ChangeColumn(old=old, column=definition, position=position, if_exists=if_exists):
                if self._is_added_here(old, definition):
                    self._placed.append(_Placed(self._types.column(definition), position))
                    self._take(definition)
                elif self._exists(old, if_exists):
                    self._changed[old.lower()] = column = self._types.column(definition)
                    if position is not None:
                        self._placed.append(_Placed(column, position, exists=True))
                    self._take(definition)
            case RenameColumn(old=old, new=new, if_exists=if_exists):
                if self._exists(old, if_exists):
                    before = self._table.schema.columns[self._names.index(old.lower())]
                    self._changed[old.lower()] = replace(self._types.convert(before), name=new)
            case DropColumn(name=name, if_exists=if_exists):
                if self._exists(name, if_exists):
                    self._dropped.add(name.lower())
            case SetDefault(column=name, default=default):
                self._defaults[name.lower()] = default
            case AddKey(key=key, replaces=replaces):
                self._keys.append(key)
                if replaces:
                    self._dropped_indexes.add(key.name.lower())
            case AddPeriod(period=period):
                self._periods.append(period)
            case DropPeriod(name=name):
                self._dropped_periods.add(name.lower())
            case DropPrimaryKey():
                self._key_dropped = True
            case DropIndex(name=name):
                self._dropped_indexes.add(name.lower())
            case RenameIndex(old=old, new=new):
                self._renamed_indexes[old.lower()] = new
            case _:
                pass

    def _take(self, definition: ColumnDefinition) -> None:
        self._definitions[definition.name.lower()] = definition
        self._keys += own_keys(definition)

    def result(self) -> TableSchema:
        columns: list[Column] = []
        for column in self._table.schema.columns:
            name = column.name.lower()
            if name in self._changed:
                columns.append(self._changed[name])
            elif name not in self._dropped:
                columns.append(self._with_default(self._types.convert(column)))
        for placed in self._placed:
            if placed.exists:
                del columns[position_of(columns, placed.column.name)]
            column = self._with_default(placed.column)
            _insert_column(columns, column, placed.position, 1 if self._has_generated_key(columns) else 0)
        self._set_first_timestamp(columns)
        names = self._names_now(columns)
        keys = [over_columns(key, self.periods(columns)) for key in self._keys]
        added = [named_parts(key) for key in keys if key.kind is KeyKind.PRIMARY]
        primary_key = added[-1] if added else self._primary_key(names)
        of_periods = {name for period in self._periods for name in (period.start, period.end)}
        before_key = [without_null(column, of_periods) for column in columns]
        columns = [without_null(column, primary_key) for column in before_key]
        indexes = self._indexes(names, self._kept_prefixes(columns))
        if indexes is not None:
            indexes = with_keys(indexes, keys, columns, primary_key)
        return replace(
            self._table.schema,
            columns=tuple(columns),
            primary_key=positions_of(columns, primary_key),
            indexes=None if indexes is None else indexes_at(indexes, columns, before_key),
        ).keys_of_current_rows

    def periods(self, columns: Sequence[Column]) -> tuple[Period, ...]:
        """The periods of the table, whose columns are now ``columns``."""
        names = self._names_now(columns)
        kept = [period for period in self._table.periods if period.name.lower() not in self._dropped_periods]
        renamed = [
            replace(
                period,
                start=names.get(period.start.lower(), period.start),
                end=names.get(period.end.lower(), period.end),
            )
            for period in kept
        ]
        added = [period for period in self._periods if all(period.name.lower() != own.name.lower() for own in kept)]
        return (*renamed, *added)

    def _set_first_timestamp(self, columns: list[Column]) -> None:
        """Set the default of the table's first TIMESTAMP column, if the statement defines that column."""
        number = next((number for number, column in enumerate(columns) if column.data_type == "timestamp"), None)
        definition = self._definitions.get(columns[number].name.lower()) if number is not None else None
        if number is not None and definition is not None:
            columns[number] = self._with_default(self._types.column(definition, is_first=True))

    def _with_default(self, column: Column) -> Column:
        """The column with its new default, if ALTER COLUMN sets one."""
        if column.name.lower() not in self._defaults.keys() - self._replaced:
            return column
        written = self._defaults[column.name.lower()]
        is_mariadb = self._types.server.is_mariadb
        default = NO_DEFAULT if written is None else listed_default(written, column, is_mariadb=is_mariadb)
        return replace(column, default=default)

    def _has_generated_key(self, columns: list[Column]) -> bool:
        return self._table.generated_key and columns[:1] == [self._table.schema.columns[0]]

    def _primary_key(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """The columns of the old primary key, by their new names."""
        if self._key_dropped:
            return ()
        key = (self._names[column] for column in self._table.schema.primary_key)
        return tuple(names[name] for name in key if name in names)

    def _kept_prefixes(self, columns: Sequence[Column]) -> dict[str, int]:
        """The lengths of `kept_prefix` by the old names of columns, in lower case."""
        now = {column.name.lower(): column for column in columns}
        lengths = {}
        for column in self._table.schema.columns:
            name = column.name.lower()
            is_cut = column.labels and not self._types.server.is_mariadb and has_longer_text(column)
            after = now.get(name) if name in self._dropped else self._changed.get(name) if is_cut else None
            if after is not None and (length := kept_prefix(column, after)) is not None:
                lengths[name] = length
        return lengths

    def _indexes(self, names: Mapping[str, str], prefixes: Mapping[str, int]) -> list[NamedIndex] | None:
        """The remaining old indexes without dropped columns. An index that lost all columns is dropped."""
        if self._table.schema.indexes is None:
            return None
        indexes = []
        for index in self._table.schema.indexes:
            left = NamedIndex.of(index, self._names).with_parts(names, prefixes)
            if left.columns and index.name.lower() not in self._dropped_indexes:
                name = self._renamed_indexes.get(index.name.lower(), index.name)
                indexes.append(replace(left, name=name))
        return indexes

    def _names_now(self, columns: Sequence[Column]) -> dict[str, str]:
        """The new names of columns by old name. A column that is dropped and added again keeps its keys.

        If several columns follow from one old name, the first column in the new order counts.
        """
        before = {changed.name.lower(): old for old, changed in self._changed.items()}
        names: dict[str, str] = {}
        for column in columns:
            names.setdefault(before.get(column.name.lower(), column.name.lower()), column.name)
        return names

    def _is_added_here(self, old: str, definition: ColumnDefinition) -> bool:
        """Whether MariaDB changes a column that an earlier clause adds. If so, the earlier clause is removed."""
        names = [placed.column.name.lower() for placed in self._placed]
        name = definition.name.lower()
        if not self._types.server.is_mariadb or old.lower() in self._names or name not in names:
            return False
        del self._placed[names.index(name)]
        self._replaced.add(name)
        return True

    def _exists(self, name: str, if_exists: bool) -> bool:
        if name.lower() in self._names:
            return True
        if if_exists:
            return False
        raise ContradictionError(f"it has no column `{name}`")


def _insert_column(columns: list[Column], column: Column, position: Position | None, first: int) -> None:
    if any(column.name.lower() == other.name.lower() for other in columns):
        raise ContradictionError(f"it has a column `{column.name}` already")
    if position is None:
        columns.append(column)
    elif position.after is None:
        columns.insert(first, column)
    else:
        columns.insert(position_of(columns, position.after) + 1, column)
