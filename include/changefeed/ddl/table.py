"""Tables with known and with unknown columns, and the table that CREATE TABLE creates."""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.ddl.changes import CreateTable
from changefeed.ddl.column_definition import first_timestamp
from changefeed.ddl.keys import indexes_at, named_parts, over_columns, positions_of, with_keys, without_null
from changefeed.ddl.names import TableName
from changefeed.ddl.session import Server, SessionContext
from changefeed.ddl.table_elements import KeyKind, Period
from changefeed.ddl.table_options import CharsetOptions
from changefeed.model.column_types import MapColumn
from changefeed.model.table_schema import Column, TableSchema


@dataclass(frozen=True)
class Table:
    """A table's schema, and the other properties that later DDL needs.

    - ``collation``: the default collation of new columns
    - ``generated_key``: whether it has MySQL's generated invisible primary key. No column can be placed before it.
    - ``periods``: MariaDB's periods, which keys may use like columns
    """

    schema: TableSchema
    collation: str
    generated_key: bool = False
    periods: tuple[Period, ...] = ()

    def with_name(self, name: TableName) -> Table:
        """The same table under another name."""
        return replace(self, schema=replace(self.schema, database=name.database, table=name.table))


@dataclass(frozen=True)
class UnknownTable:
    """A table with unknown columns. ``problem`` says why they are unknown.

    - ``rows``: the number of its rows in the scanned range of the binlog
    - ``first``, ``last``: the coordinates of the first and the last TABLE_MAP of these rows
    - ``columns``: the columns of these rows
    - ``known``: the known properties of each column; may be empty
    """

    name: TableName
    problem: str
    rows: int = 0
    first: str = ""
    last: str = ""
    columns: tuple[MapColumn, ...] = ()
    known: tuple[Column | None, ...] = ()
    answer: str = ""
    """The user's answer for its rows, a value of `unknown_schema`; '' without an answer."""

    def with_name(self, name: TableName) -> UnknownTable:
        """The same table under another name."""
        return replace(self, name=name)


@dataclass(frozen=True)
class Surroundings:
    """The defaults that a table inherits: its database's collation, and the collation of CHARACTER SET DEFAULT."""

    collation: str
    default: str
    server: Server
    session: SessionContext

    def collation_of(self, options: CharsetOptions, inherited: str) -> str:
        """The collation that ``options`` set. ``inherited`` applies without options."""
        return options.collation_over(inherited, self.default, self.server, self.session)


def created_table(change: CreateTable, around: Surroundings) -> Table:
    """The table of a CREATE TABLE. Raises ContradictionError if a key names a missing column."""
    server, session = around.server, around.session
    collation = around.collation_of(change.charset, around.collation)
    first = first_timestamp(change.columns)
    columns = [column.column(collation, server, session, is_first=column is first) for column in change.columns]
    keys = [over_columns(key, change.periods) for key in change.keys]
    primary_key = next((named_parts(key) for key in keys if key.kind is KeyKind.PRIMARY), ())
    of_periods = {name for period in change.periods for name in (period.start, period.end)}
    before_key = [without_null(column, of_periods) for column in columns]
    columns = [without_null(column, primary_key) for column in before_key]
    schema = TableSchema(
        change.name.database,
        change.name.table,
        tuple(columns),
        positions_of(columns, primary_key),
        indexes_at(with_keys([], keys, columns, primary_key), columns, before_key),
    ).keys_of_current_rows
    invisible = bool(change.columns) and change.columns[0].invisible
    return Table(schema, collation, invisible and is_generated_key(schema, server), change.periods)


def is_generated_key(schema: TableSchema, server: Server) -> bool:
    """Whether the first column is MySQL's generated invisible primary key, if it is invisible.

    Source: https://dev.mysql.com/doc/refman/9.7/en/create-table-gipks.html
    """
    first = schema.columns[0] if schema.columns else None
    return (
        first is not None
        and not server.is_mariadb
        and (first.name.lower(), first.data_type, schema.primary_key) == ("my_row_id", "bigint", (0,))
    )
