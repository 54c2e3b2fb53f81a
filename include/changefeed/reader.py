"""What decoding a slice takes and gives: the contract of the kernel and of the reference reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from changefeed.block import Block
from changefeed.errors import SettingsError
from changefeed.message_key import PRIMARY_KEY, KeyRule, chosen_columns
from changefeed.row_predicate import RowFilter, columns_of
from changefeed.table_schema import Column, TableSchema
from changefeed.transaction_event import TransactionEvent
from changefeed.window import Slice


@dataclass(frozen=True)
class TableField:
    """A field of all rows of a table with its "database.table"; ``in_key`` says that the key has it, too."""

    name: str
    in_key: bool = True


@dataclass(frozen=True)
class Route:
    """Where a table's changes go, and what the decoder has to know of it.

    ``topic`` has ``partitions``. ``key`` says which of the table's columns are the messages' key. ``partition_by`` is
    what a message's partition follows from: its key, the table's name, or the values of these columns. ``setting`` is
    where a person can change it, for messages.
    """

    topic: str
    partitions: int
    key: KeyRule = PRIMARY_KEY
    partition_by: Literal["key", "table"] | tuple[str, ...] = "key"
    table_field: TableField | None = None
    setting: str = ""
    rows: RowFilter | None = None
    """Which rows are published; None for all."""
    skipped: frozenset[str] = frozenset()
    """Ops whose rows are left out."""
    with_history: bool = True
    """Whether rows of MariaDB's system-versioned tables count that are history; else a row that becomes history is
    deleted, and what happens to it then is nothing."""
    unchanged_skipped: bool = False
    """Whether updates are left out that change nothing of what is written of a row."""

    def seen(self, table: TableSchema, *, by_server: bool = False) -> TableSchema:
        """``table`` as formats see it: with the key that was chosen, and the field with its name behind its columns.

        ``by_server`` is that of `KeyRule.keyed`. Raises as that does, and SettingsError for a field that is named as
        a column is.
        """
        if self.with_history:
            table = replace(table, columns=tuple(replace(column, hidden=False) for column in table.columns))
        table = self.key.keyed(table, by_server=by_server)
        end = table.row_end
        if self.with_history and end is not None and table.primary_key and not self.key.columns:
            # Of the versions of a row several have the key that was defined.
            table = replace(table, primary_key=tuple(dict.fromkeys((*table.primary_key, end))))
        if self.table_field is None:
            return table
        if any(column.name.lower() == self.table_field.name.lower() for column in table.columns):
            raise SettingsError(
                f"{table.database}.{table.table} has a column {self.table_field.name!r} itself: give `table_field` in "
                "topics another name"
            )
        length = len(f"{table.database}.{table.table}")
        field = Column(self.table_field.name, "varchar", length=length, nullable=False)
        is_key = self.table_field.in_key and bool(table.primary_key)
        key = (len(table.columns), *table.primary_key) if is_key else table.primary_key
        return replace(table, columns=(*table.columns, field), primary_key=key)

    def partition_columns(self, table: TableSchema) -> tuple[int, ...]:
        """The positions of the columns that a message's partition follows from, () where it is from none.

        Raises SettingsError for one that ``table`` does not have.
        """
        if isinstance(self.partition_by, str):
            return ()
        return chosen_columns(table, self.partition_by, f"{self.setting}: partition_by in topics chooses", "")

    def lacking_in(self, table: TableSchema) -> tuple[str, ...]:
        """The columns that the pipeline's settings name and ``table`` does not have under these names."""
        partition_by = () if isinstance(self.partition_by, str) else self.partition_by
        compared = columns_of(self.rows.predicate) if self.rows is not None else ()
        there = {column.name.lower() for column in table.columns}
        return tuple(name for name in (*self.key.columns, *partition_by, *compared) if name.lower() not in there)

    @property
    def chooses_columns(self) -> bool:
        """Whether other columns count than those of the primary key, which each row image has."""
        return self.key != PRIMARY_KEY or not isinstance(self.partition_by, str)


Router = Callable[[str, str], Route | None]
"""(database, table) -> where its rows go, or None for a table that the pipeline leaves out."""

SchemaLookup = Callable[[str, str], TableSchema | None]
"""(database, table) -> its columns, for table maps that carry no names. None where they are not known."""


_THREAD_SPECIFIC_FLAG = 4
"""Of the header of a QUERY event."""


@dataclass(frozen=True)
class Statement:
    """A QUERY event that is not BEGIN, COMMIT or a savepoint: DDL, or a change in statement format.

    ``variables`` are the event's status variables in hexadecimal: sql_mode, charsets and the like of its session.
    ``size_bytes`` and ``flags`` are the event header's.
    """

    file: str
    position: int
    ts_seconds: int
    gtid: str
    database: str
    sql: str
    variables: str = ""
    server_id: int = 0
    size_bytes: int = 0
    flags: int = 0
    error_code: int = 0
    """What it failed with on the source, of which a part was done all the same; 0 where it did not."""
    commit_micros: int = 0
    """When it was committed, in microseconds since 1970; 0 where nothing says it."""
    inputs: str = ""
    """What it took from its session besides its text, for `statement_inputs`."""
    doubt: str = ""
    """Why it may have done something else, or elsewhere, than its text says; '' where it is known not to, or where
    nobody looked."""

    @property
    def is_thread_specific(self) -> bool:
        """Whether it uses what its session alone has, such as a temporary table."""
        return bool(self.flags & _THREAD_SPECIFIC_FLAG)

    @property
    def micros(self) -> int:
        """When it was committed; the event's second where nothing says it."""
        return self.commit_micros or self.ts_seconds * 1_000_000


@dataclass(frozen=True)
class SliceReport:
    """What a slice held: the accounts that `commit` adds up.

    ``size_bytes`` is the sum of the sizes of all events read; it must equal the slice's own size.
    ``rows`` counts published row changes by "database.table" and op (c, u, d, r), ``filtered`` those of captured tables
    that a filter left out, ``skipped_rows`` those of other tables.
    ``gtids`` is a GTID set of the transactions that ended in the slice.
    ``transaction_events`` are those on which depends whether rows before them are published, in binlog order, and
    ``open_since`` is where the transaction begins that the slice ends in, None where it ends between two: `settlement`
    makes of them what is left out. ``transformed_away`` counts row changes of which a function of the pipeline made
    nothing, by its name; they are among ``rows``. ``prepared`` are the xids of XA transactions that the slice prepared
    and did not end, ``ended`` those that it ended and had not prepared.
    """

    slice: int
    size_bytes: int
    events: int
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    skipped_rows: int = 0
    transactions: int = 0
    gtids: str = ""
    first_ts_seconds: int = 0
    last_ts_seconds: int = 0
    statements: tuple[Statement, ...] = ()
    transaction_events: tuple[TransactionEvent, ...] = ()
    open_since: int | None = None
    filtered: dict[str, dict[str, int]] = field(default_factory=dict)
    transformed_away: dict[str, int] = field(default_factory=dict)
    prepared: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class SliceReader(Protocol):
    """Decodes a slice into finished messages."""

    def read(self, piece: Slice) -> Iterator[Block | SliceReport]:
        """Yield the blocks of ``piece``, each topic-partition's in binlog order, and last one SliceReport.

        Obligations: reads exactly ``[start, end)`` by its own count of bytes; each event is decoded, or is of a
        type that is listed as carrying no change, or stops the slice.

        Raises BinlogFormatError (with coordinates) for bytes that cannot be decoded, SchemaError where a table's
        columns are not known, SourceUnavailableError for a lost connection, BinlogGoneError for a missing file.
        """
        ...
