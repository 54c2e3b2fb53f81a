"""What decoding a slice takes and gives: the contract of the kernel and of the reference reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from changefeed.block import Block
from changefeed.message_key import PRIMARY_KEY, KeyRule
from changefeed.table_schema import TableSchema
from changefeed.transaction_event import TransactionEvent
from changefeed.window import Slice


@dataclass(frozen=True)
class Route:
    """Where a table's changes go: its topic and that topic's number of partitions. ``key`` says which of the table's
    columns are their key."""

    topic: str
    partitions: int
    key: KeyRule = PRIMARY_KEY


Router = Callable[[str, str], Route | None]
"""(database, table) -> where its rows go, or None for a table that the pipeline leaves out."""

SchemaLookup = Callable[[str, str], TableSchema | None]
"""(database, table) -> its columns, for table maps that carry no names. None where they are not known."""


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


@dataclass(frozen=True)
class SliceReport:
    """What a slice held: the accounts that `commit` adds up.

    ``size_bytes`` is the sum of the sizes of all events read; it must equal the slice's own size.
    ``rows`` counts captured row changes by "database.table" and op (c, u, d, r), ``skipped_rows`` those left out.
    ``gtids`` is a GTID set of the transactions that ended in the slice.
    ``transaction_events`` are those on which depends whether rows before them are published, in binlog order, and
    ``open_since`` is where the transaction begins that the slice ends in, None where it ends between two: `settlement`
    makes of them what is left out.
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
