"""What a format says of a message: literal bytes with slots in them, and which messages a row change becomes.

Both are data, so that two engines obey the same: the kernel, which turns templates into ops and literals of a row
program, and `formats.render`, which fills them in plain Python for the reference reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from changefeed.records.block import Step

Op = Literal["c", "u", "d", "r"]
"""A row was created, updated, deleted; or it was read as it is, by a SELECT."""
OPS: tuple[Op, ...] = ("c", "u", "d", "r")
"""All of them, in the order in which the kernel numbers them."""

NO_SNAPSHOT = "false"
"""What `Slot.SNAPSHOT` says of a change that a binlog holds."""


class Slot(StrEnum):
    """What a template leaves open, because it differs from row to row.

    Numbers are decimal digits, and texts as said below; in a binary notation they are as `notation.Binary` says. Where
    there is nothing, the format's `Notation.absent` says what is written.
    """

    BEFORE = "before"
    """The before image as a row in the format's notation; absent for c and r."""
    AFTER = "after"
    """The after image as a row in the format's notation; absent for d."""
    KEY = "key"
    """The primary key's columns, in the key's order, as a row in the format's notation."""
    KEY_BEFORE = "key_before"
    """As KEY, of the before image, whichever image the message's key is of."""
    KEY_AFTER = "key_after"
    CHANGED = "changed"
    """The before image of an update as a row, with those columns only that the after image has otherwise; absent where
    none of the shown columns changed, and for other ops. The others count as columns that the image does not hold."""
    SEPARATOR = "separator"
    """Behind a row whose notation closes it with nothing: the notation's separator, unless the row has no column."""
    FILE = "file"
    """Binlog file name, unquoted."""
    POSITION = "position"
    """Start of the event in the file."""
    ROW = "row"
    """Row number within the event, from 0."""
    STATEMENT_ROW = "statement_row"
    """Row number within the statement, from 0, among the rows of captured tables: the same on each server that has the
    transaction, however it divides the statement into events. 0 for rows that were read."""
    EVENT_FIRST_ROW = "event_first_row"
    """Row number of the first row of the row's event: 0, unless several events are at one position, as those of a
    compressed transaction. Of rows that functions have changed it is the row's own number."""
    GTID = "gtid"
    """GTID as a JSON string; absent where the transaction has none."""
    GTID_TEXT = "gtid_text"
    """GTID without quotes; empty where the transaction has none."""
    SERVER_ID = "server_id"
    """server_id of the event's origin."""
    EVENT_ID = "event_id"
    """The message's event id, unquoted: what its header `changefeed.id` says."""
    SEQUENCE = "sequence"
    """A number that rises along the binlog, made of coordinates and row: see `coordinates.sequence_number`."""
    TIME = "time"
    """Timestamp of the event, unquoted and in UTC, as RFC 3339 has it: `2026-01-31T12:00:00Z`."""
    TS_SECONDS = "ts_seconds"
    """Timestamp of the event in seconds since 1970: follow it by a literal `000` for milliseconds."""
    TS_MILLIS = "ts_millis"
    """When the change was committed on the server where it was made, in milliseconds since 1970; where the source does
    not say that (without GTIDs, MariaDB), as TS_SECONDS."""
    TS_MICROS = "ts_micros"
    TS_NANOS = "ts_nanos"
    THREAD = "thread"
    """Number of the connection that made the transaction, as its BEGIN says; absent where none does: MariaDB, XA. In
    notations of text only."""
    EVENT_TYPE = "event_type"
    """The number of the event's type, as the source wrote it: of rows it could not read plainly too."""
    EVENT_SIZE = "event_size"
    """The event's size in bytes, with header and checksum; inside of a compressed transaction, before compression."""
    EVENT_END = "event_end"
    """Behind the event in the file; inside of a compressed transaction, behind that."""
    EVENT_FLAGS = "event_flags"
    """The flags of the event's header."""
    QUERY = "query"
    """Text of the statement (ROWS_QUERY) as a JSON string; absent where the binlog does not hold it, and where column
    rules hide values that it may have."""
    XID = "xid"
    """The xid of an XA transaction as a JSON string, as binlogs spell it (`X'gtrid',X'bqual',format`, in lower case);
    absent in others."""
    XID_TEXT = "xid_text"
    """That xid without quotes; empty in others."""
    COMMIT_INFO = "commit_info"
    """What only the end of the transaction says, as members of a JSON object behind a comma: `,"xid":23396` for the
    number that the source's XID event has, where it ends with one, and `,"commit":true` in its last row. Nothing where
    it is not said: rows that were read, those of XA transactions, of transactions of which a part was rolled back or is
    in another slice, and of those that take more than 64 MB or 262,144 messages. In values of text only, once."""
    COMMIT_INFO_OFFSET = "commit_info_offset"
    """As COMMIT_INFO, and `,"xoffset":0` in all rows but the last: their number in the transaction, of those that have
    this slot."""
    TRANSACTION = "transaction"
    """Where in its transaction the message stands, as a JSON object: `id`, `total_order` among all messages of it but
    tombstones, and `data_collection_order` among those of its table; absent outside of a transaction. In notations of
    text only, and in formats that have `format.TransactionRecords`."""
    TRANSACTION_ID = "transaction_id"
    """The transaction's id without quotes: its GTID, or `file=…,pos=…` of its BEGIN where it has none. This and the
    next two: in `TransactionRecords` only."""
    EVENT_COUNT = "event_count"
    """How many messages the transaction has, without tombstones."""
    EVENT_COUNTS = "event_counts"
    """How many of each table, as the items of a JSON array: `{"data_collection":"db.table","event_count":1}`."""
    SNAPSHOT = "snapshot"
    """The snapshot that the row was read for, unquoted: `false` for a change out of a binlog, else what its reader
    calls it (Debezium's words: `true`, `first`, `last`, `incremental`). The same for all rows of one reader."""


Template = tuple[bytes | Slot, ...]
"""Literal bytes and slots, in order."""

JOINED = b"\x1e\x1d"
"""Separates the parts of a value that holds all rows of an event: JSON text never has these bytes."""


def joined_rows(op: Op, head: Template, row: Template, tail: bytes) -> Template:
    """The value of a format whose messages have all rows of a binlog event: the ``head`` that they share, then each
    ``row`` behind a comma, then the ``tail``. `binlog.joined_rows` makes one message of those of an event; a row that
    was read (``op`` r) is in none, and alone."""
    if op == "r":
        return (*head, *row, tail)
    return (JOINED, Slot.EVENT_FIRST_ROW, JOINED, *head, JOINED, *row, JOINED + tail)


def joined(values: Sequence[bytes]) -> bytes:
    """The value of a message with the rows of all ``values``, which are as `joined_rows` makes them and share their
    head; one that is not as it makes them is returned as it is."""
    if not values[0].startswith(JOINED):
        return values[0]
    parts = [value.split(JOINED, 4)[2:] for value in values]
    return b"".join((parts[0][0], b",".join(row for _, row, _ in parts), parts[0][2]))


OF_SERVER = frozenset(
    {Slot.FILE, Slot.POSITION, Slot.ROW, Slot.EVENT_ID, Slot.SEQUENCE, Slot.EVENT_TYPE, Slot.EVENT_SIZE}
    | {Slot.EVENT_END, Slot.EVENT_FLAGS}
)
"""The slots that say where and how one server has a change in its binlog: of the same change another server says
something else."""

RowHeader = tuple[str, Template]
"""A record header of a row message: its name, and what its value is."""

ABSENT_IMAGE: Mapping[Op, Slot] = {"c": Slot.BEFORE, "r": Slot.BEFORE, "d": Slot.AFTER}
"""By op the image that its messages do not have."""


class ChangeKind(StrEnum):
    """What happened to a row. An update that changes the primary key is a change of its own kind."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    KEY_CHANGE = "key_change"


@dataclass(frozen=True)
class RowMessage:
    """One of the messages that a row change becomes.

    ``op`` chooses the template of its value; None makes a tombstone: a key without a value. ``key`` is the image that
    its key is of. ``step`` tells it apart from the change's other messages, in its event id and in what the commit log
    counts: a change's messages have different steps, in rising order. ``headers`` are its record headers besides event
    id and GTID; most messages have none.
    """

    step: Step
    op: Op | None
    key: Literal["before", "after"]
    headers: tuple[RowHeader, ...] = ()


Messages = Mapping[ChangeKind, tuple[RowMessage, ...]]
"""What each kind of change becomes."""

CREATED = RowMessage(Step.CHANGE, "c", "after")
UPDATED = RowMessage(Step.CHANGE, "u", "after")
DELETED = RowMessage(Step.CHANGE, "d", "before")
READ = RowMessage(Step.CHANGE, "r", "after")
TOMBSTONE = RowMessage(Step.TOMBSTONE, None, "before")
CREATED_ANEW = RowMessage(Step.CREATE, "c", "after")
"""Under its new key, after a message that deleted the old one."""

ONE_MESSAGE_EACH: Messages = {
    ChangeKind.CREATE: (CREATED,),
    ChangeKind.UPDATE: (UPDATED,),
    ChangeKind.DELETE: (DELETED,),
    ChangeKind.READ: (READ,),
    ChangeKind.KEY_CHANGE: (UPDATED,),
}
"""A change of key is an update with both images."""
DELETE_AND_CREATE: Messages = {**ONE_MESSAGE_EACH, ChangeKind.KEY_CHANGE: (DELETED, CREATED_ANEW)}
"""A change of key is a delete of the old one and a create of the new one."""
WITH_TOMBSTONES: Messages = {
    **ONE_MESSAGE_EACH,
    ChangeKind.DELETE: (DELETED, TOMBSTONE),
    ChangeKind.KEY_CHANGE: (DELETED, TOMBSTONE, CREATED_ANEW),
}
"""As before, and a tombstone follows each delete, for compacted topics."""
