"""The changes of DDL statements: a class for each kind of statement, and for each clause of ALTER TABLE."""

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
    """CHANGE; or MODIFY, in which the name stays the same."""

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
    """ALTER COLUMN … SET DEFAULT; or DROP DEFAULT if ``default`` is None."""

    column: str
    default: WrittenDefault | None


@dataclass(frozen=True)
class AddKey:
    """ADD of an index or key; CREATE INDEX. ``replaces`` is set for MariaDB's CREATE OR REPLACE INDEX."""

    key: KeyDefinition
    replaces: bool = False


@dataclass(frozen=True)
class AddPeriod:
    """MariaDB's ADD PERIOD FOR, whose columns become NOT NULL."""

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
    """DROP INDEX; or DROP CONSTRAINT, whose name may be the name of a unique key."""

    name: str


@dataclass(frozen=True)
class RenameIndex:
    """RENAME INDEX, RENAME KEY."""

    old: str
    new: str


@dataclass(frozen=True)
class ConvertCharset:
    """CONVERT TO CHARACTER SET, of the table's default and of every text column."""

    charset: CharsetOptions


@dataclass(frozen=True)
class DefaultCharset:
    """CHARACTER SET, the default of columns that later statements add."""

    charset: CharsetOptions


@dataclass(frozen=True)
class RenameTo:
    """RENAME TO another name, perhaps in another database."""

    name: TableName


@dataclass(frozen=True)
class PartitionToTable:
    """MariaDB's CONVERT PARTITION … TO TABLE, which creates a table with the columns of this table."""

    name: TableName


@dataclass(frozen=True)
class TableToPartition:
    """MariaDB's CONVERT TABLE … TO PARTITION, after which the table ``name`` does not exist."""

    name: TableName


@dataclass(frozen=True)
class ExchangePartition:
    """EXCHANGE PARTITION … WITH TABLE, which swaps the rows of the table and of a partition."""

    name: TableName


@dataclass(frozen=True)
class OtherRows:
    """IMPORT and DISCARD TABLESPACE, UNION=, CONNECTION=. The table gets other rows, which the binlog does not have."""


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
    """CREATE TABLE.

    ``keys`` has all keys in the order of the statement, including keys from column attributes. ``select`` says that
    columns of a SELECT follow, which the statement alone does not show.
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
    """CREATE TABLE … LIKE, with the columns and indexes of another table."""

    name: TableName
    like: TableName
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class CreateSequence:
    """MariaDB's CREATE SEQUENCE. A sequence is a table with one row, and its changes are rows in the binlog."""

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
    """DROP TABLE; or DROP SEQUENCE, which does not drop a table with the same name."""

    names: tuple[TableName, ...]
    sequences: bool = False


@dataclass(frozen=True)
class RenameTables:
    """RENAME TABLE: pairs of an old and a new name, in the order in which they are applied."""

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
    """CREATE VIEW, after which no table has the name."""

    name: TableName


@dataclass(frozen=True)
class DropViews:
    """DROP VIEW."""

    names: tuple[TableName, ...]


@dataclass(frozen=True)
class UnreadChange:
    """A DDL statement whose effect on ``names`` is unknown; ``problem`` says why."""

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
