"""What a definition statement changes: a class for each kind of statement, and for each clause of ALTER TABLE."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.ddl.column_default import WrittenDefault
from changefeed.ddl.column_definition import ColumnDefinition
from changefeed.ddl.names import TableName
from changefeed.ddl.table_elements import KeyDefinition, Period
from changefeed.ddl.table_options import CharsetOptions

# --- clauses of ALTER TABLE


@dataclass(frozen=True)
class Position:
    """FIRST (``after`` is None) or AFTER a column."""

    after: str | None = None


@dataclass(frozen=True)
class AddColumn:
    """ADD COLUMN."""

    column: ColumnDefinition
    position: Position | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class ChangeColumn:
    """CHANGE, and MODIFY, where the name stays."""

    old: str
    column: ColumnDefinition
    position: Position | None = None
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    """RENAME COLUMN."""

    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True)
class DropColumn:
    """DROP COLUMN."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class SetVisibility:
    """ALTER COLUMN … SET VISIBLE or INVISIBLE."""

    column: str
    visible: bool


@dataclass(frozen=True)
class SetDefault:
    """ALTER COLUMN … SET DEFAULT, and DROP DEFAULT, where ``default`` is None."""

    column: str
    default: WrittenDefault | None


@dataclass(frozen=True)
class AddKey:
    """``replaces`` is MariaDB's CREATE OR REPLACE INDEX."""

    key: KeyDefinition
    replaces: bool = False


@dataclass(frozen=True)
class AddPeriod:
    """MariaDB's ADD PERIOD FOR: its columns become NOT NULL."""

    period: Period


@dataclass(frozen=True)
class DropPeriod:
    """MariaDB's DROP PERIOD FOR."""

    name: str


@dataclass(frozen=True)
class DropPrimaryKey:
    """DROP PRIMARY KEY."""


@dataclass(frozen=True)
class DropIndex:
    """Also DROP CONSTRAINT, whose name may be that of a unique key."""

    name: str


@dataclass(frozen=True)
class RenameIndex:
    """RENAME INDEX, RENAME KEY."""

    old: str
    new: str


@dataclass(frozen=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET: the table's default and every column that holds text."""

    charset: CharsetOptions


@dataclass(frozen=True)
class DefaultCharset:
    """The default of columns to come."""

    charset: CharsetOptions


@dataclass(frozen=True)
class RenameTo:
    """RENAME TO: the table gets another name, perhaps in another database."""

    name: TableName


@dataclass(frozen=True)
class PartitionToTable:
    """MariaDB's CONVERT PARTITION … TO TABLE: a new table like this one."""

    name: TableName


@dataclass(frozen=True)
class TableToPartition:
    """MariaDB's CONVERT TABLE … TO PARTITION: that table is gone."""

    name: TableName


@dataclass(frozen=True)
class ExchangePartition:
    """EXCHANGE PARTITION … WITH TABLE: that table's rows and a partition's change places."""

    name: TableName


@dataclass(frozen=True)
class OtherRows:
    """IMPORT and DISCARD TABLESPACE, UNION=, CONNECTION=: the table has other rows since, which are not logged."""


Action = (
    AddColumn
    | ChangeColumn
    | RenameColumn
    | DropColumn
    | SetVisibility
    | SetDefault
    | AddKey
    | AddPeriod
    | DropPeriod
    | DropPrimaryKey
    | DropIndex
    | RenameIndex
    | ConvertCharset
    | DefaultCharset
    | RenameTo
    | PartitionToTable
    | TableToPartition
    | ExchangePartition
    | OtherRows
)

# --- statements


@dataclass(frozen=True)
class CreateTable:
    """``select`` says that the columns go on with those of a SELECT, which the statement alone does not tell.

    ``keys`` are all of them in the order of the statement, those that stand at a column among them.
    """

    name: TableName
    columns: tuple[ColumnDefinition, ...]
    keys: tuple[KeyDefinition, ...]
    periods: tuple[Period, ...]
    charset: CharsetOptions
    select: bool = False
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class CreateTableLike:
    """CREATE TABLE … LIKE: the columns and indexes of another table."""

    name: TableName
    like: TableName
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class CreateSequence:
    """MariaDB's sequence is a table of one row, and its changes are rows in the binlog."""

    name: TableName
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class AlterTable:
    """ALTER TABLE; also CREATE INDEX and DROP INDEX."""

    name: TableName
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class DropTables:
    """DROP TABLE; or DROP SEQUENCE, which leaves tables of those names where they are."""

    names: tuple[TableName, ...]
    sequences: bool = False


@dataclass(frozen=True)
class RenameTables:
    """Pairs of old and new name, each done after the one before it."""

    names: tuple[tuple[TableName, TableName], ...]


@dataclass(frozen=True)
class TruncateTable:
    """TRUNCATE TABLE."""

    name: TableName


@dataclass(frozen=True)
class CreateDatabase:
    """CREATE DATABASE."""

    name: str
    charset: CharsetOptions
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class AlterDatabase:
    """ALTER DATABASE."""

    name: str
    charset: CharsetOptions


@dataclass(frozen=True)
class DropDatabase:
    """DROP DATABASE."""

    name: str


@dataclass(frozen=True)
class CreateView:
    """CREATE VIEW: no table can have its name then."""

    name: TableName


@dataclass(frozen=True)
class DropViews:
    """DROP VIEW."""

    names: tuple[TableName, ...]


@dataclass(frozen=True)
class UnreadChange:
    """A definition whose effect on ``names`` is not known; ``problem`` says why."""

    names: tuple[TableName, ...]
    problem: str


SchemaChange = (
    CreateTable
    | CreateTableLike
    | CreateSequence
    | AlterTable
    | DropTables
    | RenameTables
    | TruncateTable
    | CreateDatabase
    | AlterDatabase
    | DropDatabase
    | CreateView
    | DropViews
    | UnreadChange
)
