"""All databases and tables of a server at coordinates of its binlog, and the effect of each DDL statement on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from changefeed.ddl.alteration import altered_table
from changefeed.ddl.changes import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateSequence,
    CreateTable,
    CreateTableLike,
    CreateView,
    DropDatabase,
    DropTables,
    DropViews,
    PartitionToTable,
    RenameTables,
    RenameTo,
    SchemaChange,
    TableToPartition,
    UnreadChange,
)
from changefeed.ddl.contradiction import ContradictionError
from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.names import TableName
from changefeed.ddl.session import Server, SessionContext
from changefeed.ddl.table import Surroundings, Table, UnknownTable, created_table
from changefeed.errors import SchemaError
from changefeed.model.table_schema import NO_DEFAULT, Column, TableSchema

Entry = Table | UnknownTable

SEQUENCE = tuple(
    Column(
        name,
        data_type,
        unsigned,
        nullable=False,
        zerofill=False,
        auto_increment=False,
        generated=False,
        virtual=False,
        default=NO_DEFAULT,
        row_end=False,
    )
    for name, data_type, unsigned in (
        ("next_not_cached_value", "bigint", False),
        ("minimum_value", "bigint", False),
        ("maximum_value", "bigint", False),
        ("start_value", "bigint", False),
        ("increment", "bigint", False),
        ("cache_size", "bigint", True),
        ("cycle_option", "tinyint", True),
        ("cycle_count", "bigint", False),
    )
)
"""The columns of MariaDB's sequences. Their comments are not known."""


@dataclass(frozen=True)
class Schemas:
    """The databases of a server with their default collations, its tables, and names of views.

    A table that is not in ``tables`` does not exist, or is a view. A table with unknown columns is an UnknownTable, so
    that a run fails only for its rows. ``views`` has only some of the views. Methods return new schemas.
    """

    server: Server = field(default_factory=Server)
    databases: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[TableName, Entry] = field(default_factory=dict)
    views: frozenset[TableName] = frozenset()

    # --- asking

    def entry(self, database: str, table: str) -> Entry | None:
        """The entry of a table; None if there is none of this name."""
        return self.tables.get(self._name(database, table))

    def lookup(self, database: str, table: str) -> TableSchema | None:
        """The columns of the table's rows, as a `SchemaLookup` of `model.route`; None if the table does not exist.

        Raises SchemaError if the table exists and its columns are not known.
        """
        entry = self.entry(database, table)
        if isinstance(entry, UnknownTable):
            raise SchemaError(
                f"the columns of {entry.name} are required to read its rows (binlog_row_metadata is not FULL), and are "
                f"not known: {entry.problem}. Learn them again from the server with `changefeed schema PIPELINE "
                f"--relearn {database}.{table}`, or set binlog_row_metadata=FULL."
            )
        return entry.schema if entry else None

    # --- moving forward

    def apply(self, statement: DdlStatement) -> Schemas:
        """The schemas after ``statement``; the same object if it changes none. Raises nothing.

        A table whose DDL cannot be applied becomes an UnknownTable that says why.
        """
        return self if statement.change is None else self._apply_change(statement.change, statement)

    def with_tables_of(self, earlier: Schemas) -> Schemas:
        """These schemas with all tables of ``earlier``, in the state that they have there."""
        return replace(self, tables={**self.tables, **earlier.tables})

    def _apply_change(self, change: SchemaChange, statement: DdlStatement) -> Schemas:
        session = statement.session
        match change:
            case CreateTable():
                return self._create(change, statement)
            case CreateTableLike(name=name, like=like, if_not_exists=if_not_exists):
                if if_not_exists and self._has_name(name):
                    return self
                model = self.tables.get(like)
                return self._with(
                    {name: model.with_name(name) if model else _unknown(name, f"{like} is not known", statement)}
                )
            case CreateSequence(name=name, if_not_exists=if_not_exists):
                if if_not_exists and name in self.tables:
                    return self
                return self._with(
                    {name: Table(TableSchema(*name, SEQUENCE, (), ()), self._collation_of(name.database))}
                )
            case AlterTable():
                return self._alter(change, statement)
            case DropTables(names=names, sequences=sequences):
                return self._without(*(name for name in names if not sequences or self._is_sequence(name)))
            case RenameTables(names=pairs):
                schemas = self
                for number, (old, new) in enumerate(pairs):
                    if not is_temporary(old, pairs[number + 1 :]):
                        schemas = schemas._rename(old, new)
                return schemas
            case CreateDatabase(name=name, charset=charset, if_not_exists=if_not_exists, replace=replaced):
                if if_not_exists and name in self.databases:
                    return self
                inherited = self._server_collation(session)
                collation = charset.collation_over(inherited, inherited, self.server, session)
                schemas = self._without_database(name) if replaced else self
                return replace(schemas, databases={**schemas.databases, name: collation})
            case AlterDatabase(name=name, charset=charset):
                default = self._server_collation(session)
                collation = charset.collation_over(self._collation_of(name), default, self.server, session)
                return replace(self, databases={**self.databases, name: collation})
            case CreateView(name=name):
                return self if name in self.views else replace(self, views=self.views | {name})
            case DropViews(names=names):
                return replace(self, views=self.views.difference(names)) if self.views & {*names} else self
            case DropDatabase(name=name):
                return self._without_database(name)
            case UnreadChange(names=names, problem=problem):
                return self._with({name: _unknown(name, problem, statement) for name in names})
        return self

    def _create(self, change: CreateTable, statement: DdlStatement) -> Schemas:
        name = change.name
        if change.if_not_exists and self._has_name(name):
            return self
        entry: Entry
        if change.select:
            entry = _unknown(name, "its columns come from a SELECT", statement)
        else:
            try:
                entry = created_table(change, self._around(name.database, statement.session))
            except ContradictionError as error:
                entry = _unknown(name, str(error), statement)
        return self._with({name: entry})

    def _alter(self, change: AlterTable, statement: DdlStatement) -> Schemas:
        before = self.tables.get(change.name)
        if before is None:  # a view, a temporary table, or a table that was never known
            return self
        after: Entry = before
        if isinstance(before, Table):
            try:
                after = altered_table(before, change.actions, self._around(change.name.database, statement.session))
            except ContradictionError as error:
                after = _unknown(change.name, str(error), statement)
        schemas = self._with({change.name: after})
        final = change.name
        for action in change.actions:
            match action:
                case RenameTo(name=name):
                    final = name  # if there are several, the last one counts
                case PartitionToTable(name=name):
                    schemas = schemas._with({name: after.with_name(name)})
                case TableToPartition(name=name):
                    schemas = schemas._without(name)
        return schemas._rename(change.name, final)

    # --- parts

    def _name(self, database: str, table: str) -> TableName:
        return TableName(self.server.table_name(database), self.server.table_name(table))

    def _has_name(self, name: TableName) -> bool:
        """Whether the name is in use. Then CREATE TABLE IF NOT EXISTS has no effect; MySQL logs it also for a view."""
        return name in self.tables or name in self.views

    def _server_collation(self, session: SessionContext) -> str:
        return session.collation_server or self.server.collation

    def _collation_of(self, database: str) -> str:
        return self.databases.get(database, self.server.collation)

    def _around(self, database: str, session: SessionContext) -> Surroundings:
        own = self._collation_of(database)
        # DEFAULT means the table's database in MariaDB, the session's in MySQL.
        default = own if self.server.is_mariadb else self._collation_of(session.database)
        return Surroundings(own, default, self.server, session)

    def _with(self, entries: Mapping[TableName, Entry]) -> Schemas:
        return replace(self, tables={**self.tables, **entries})

    def _is_sequence(self, name: TableName) -> bool:
        entry = self.tables.get(name)
        return not isinstance(entry, Table) or entry.schema.columns == SEQUENCE

    def _without(self, *names: TableName) -> Schemas:
        left = dict(self.tables)
        for name in names:
            left.pop(name, None)
        return replace(self, tables=left)

    def _without_database(self, database: str) -> Schemas:
        databases = {name: collation for name, collation in self.databases.items() if name != database}
        tables = {name: entry for name, entry in self.tables.items() if name.database != database}
        views = frozenset(name for name in self.views if name.database != database)
        return replace(self, databases=databases, tables=tables, views=views)

    def _rename(self, old: TableName, new: TableName) -> Schemas:
        entry = self.tables.get(old)
        if old in self.views:
            return replace(self, views=self.views - {old} | {new})
        return self._without(old)._with({new: entry.with_name(new)}) if entry else self

    def differences(self, other: Schemas) -> Iterator[tuple[TableName, Entry | None]]:
        """Yield the tables that differ in ``other``, with their entries in ``other``; None for missing tables."""
        for name in {*self.tables, *other.tables}:
            if self.tables.get(name) is not other.tables.get(name) and self.tables.get(name) != other.tables.get(name):
                yield name, other.tables.get(name)


_SHOWN = 300


def _unknown(name: TableName, problem: str, statement: DdlStatement) -> UnknownTable:
    sql = statement.sql if len(statement.sql) <= _SHOWN else statement.sql[:_SHOWN] + " …"
    return UnknownTable(name, f"after {sql!r}, {problem}")


def is_temporary(name: TableName, later: Sequence[tuple[TableName, TableName]]) -> bool:
    """Whether ``name``, an old name in RENAME TABLE, must be a temporary table.

    It is one if ``later`` pairs use a table of that name again. MariaDB logs the statement for its other tables."""
    for old, new in later:
        if old == name:
            return True
        if new == name:
            return False
    return False
