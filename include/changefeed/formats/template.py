"""Templates of a format, which are literal bytes with slots, and the messages of each kind of row change.

Both are data, and two implementations use them: the kernel compiles templates into ops and literals of a row program,
and `formats.render` fills them in plain Python for the reference reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from changefeed.records.block import Step

Op = Literal["c", "u", "d", "r"]
"""The op of a row change: create, update, delete, or r for a row that a SELECT read."""
OPS: tuple[Op, ...] = ("c", "u", "d", "r")
"""All ops, in the order of the kernel's numbers."""

NO_SNAPSHOT = "false"
"""The value of `Slot.SNAPSHOT` for a change from a binlog."""


class Slot(StrEnum):
    """A part of a template that differs by row.

    Numbers are decimal digits. Texts have the form below. A binary notation writes both as `notation.Binary` says.
    `Notation.absent` writes absent values.
    """

    BEFORE = "before"
    """The before image as a row in the format's notation; absent for c and r."""
    AFTER = "after"
    """The after image as a row in the format's notation; absent for d."""
    KEY = "key"
    """The primary key's columns, in the key's order, as a row in the format's notation."""
    KEY_BEFORE = "key_before"
    """As KEY, but always from the before image."""
    KEY_AFTER = "key_after"
    CHANGED = "changed"
    """The before image of an update, as a row with only the columns that differ in the after image. Absent for other
    ops, and if no published column changed. Columns without a change count as missing in the image."""
    SEPARATOR = "separator"
    """After a row whose notation has no closing text: the separator of the notation; empty if the row has no column."""
    FILE = "file"
    """Binlog file name, unquoted."""
    POSITION = "position"
    """Start of the event in the file."""
    ROW = "row"
    """Row number within the event, from 0."""
    STATEMENT_ROW = "statement_row"
    """Row number within the statement, from 0, among the rows of captured tables; 0 for rows that a SELECT read.

    It is the same on each server with the transaction, even if servers divide the statement into different events."""
    EVENT_FIRST_ROW = "event_first_row"
    """Row number of the first row of the event. It is 0, unless several events have one position, as in a compressed
    transaction. For rows that functions changed, it is the row's own number."""
    GTID = "gtid"
    """GTID as a JSON string; absent if the transaction has none."""
    GTID_TEXT = "gtid_text"
    """GTID without quotes; empty if the transaction has none."""
    SERVER_ID = "server_id"
    """server_id of the server that first executed the transaction."""
    EVENT_ID = "event_id"
    """The event id of the message, unquoted, as in the header `changefeed.id`."""
    SEQUENCE = "sequence"
    """A number that rises along the binlog: `coordinates.sequence_number` of the row."""
    TIME = "time"
    """Timestamp of the event in UTC, unquoted, in the form of RFC 3339: `2026-01-31T12:00:00Z`."""
    TS_SECONDS = "ts_seconds"
    """Timestamp of the event in seconds since 1970. For milliseconds, put a literal `000` after it."""
    TS_MILLIS = "ts_millis"
    """Commit time on the original server, in milliseconds since 1970. If the source does not have it (without GTIDs, or
    MariaDB), the time of TS_SECONDS."""
    TS_MICROS = "ts_micros"
    TS_NANOS = "ts_nanos"
    THREAD = "thread"
    """Connection id of the transaction, from its BEGIN. Absent on MariaDB and in XA transactions. Only in notations of
    text."""
    EVENT_TYPE = "event_type"
    """The number of the event's type in the source's binlog, also for rows in a compressed event."""
    EVENT_SIZE = "event_size"
    """The event's size in bytes, with header and checksum. In a compressed transaction: the size before compression."""
    EVENT_END = "event_end"
    """The end of the event in the file. In a compressed transaction: the end of the transaction's event."""
    EVENT_FLAGS = "event_flags"
    """The flags of the event's header."""
    PARTITION_INFO = "partition_info"
    """The table's partition of the event's rows, as members of a JSON object after a comma: `,"partition_id":3`, for an
    update `,"partition_id":3,"source_partition_id":2`. Empty if the event does not have it (MySQL before 8.0.16,
    MariaDB, tables without partitions). Only in notations of text."""
    QUERY = "query"
    """Text of the statement (ROWS_QUERY) as a JSON string. Absent if the binlog does not have it, and if column rules
    hide values that it may have."""
    XID = "xid"
    """The xid of an XA transaction as a JSON string, in the form of binlogs in lower case
    (`X'gtrid',X'bqual',format`). Absent in other transactions."""
    XID_TEXT = "xid_text"
    """The xid of an XA transaction without quotes; empty in other transactions."""
    COMMIT_INFO = "commit_info"
    """Properties that only the end of the transaction has, as members of a JSON object after a comma: `,"xid":23396`
    with the number of the source's XID event, and `,"commit":true` in the last row.

    Empty for rows that a SELECT read, for XA transactions, for transactions that were partly rolled back, that are
    partly in another slice, or that have more than 64 MB or 262,144 messages. Without an XID event `xid` is missing.
    Only in values of text, once."""
    COMMIT_INFO_OFFSET = "commit_info_offset"
    """As COMMIT_INFO, and `,"xoffset":0` in all rows but the last: the number of the row in the transaction, among the
    rows with this slot."""
    TRANSACTION = "transaction"
    """The position of the message in its transaction, as a JSON object; absent outside of a transaction.

    `total_order` counts all messages of the transaction except tombstones, `data_collection_order` those of the same
    table. `id` is the transaction's id. Only in notations of text, and in formats with `format.TransactionRecords`."""
    TRANSACTION_ID = "transaction_id"
    """The transaction's id without quotes: its GTID, or `file=…,pos=…` of its BEGIN if it has none. This slot and the
    next two are only in `TransactionRecords`."""
    EVENT_COUNT = "event_count"
    """The number of messages of the transaction, without tombstones."""
    EVENT_COUNTS = "event_counts"
    """The number of messages by table, as items of a JSON array: `{"data_collection":"db.table","event_count":1}`."""
    SNAPSHOT = "snapshot"
    """The kind of snapshot that read the row, unquoted, in Debezium's words (`true`, `first`, `last`, `incremental`);
    `false` for a change from a binlog. All rows of one reader have the same value."""


Template = tuple[bytes | Slot, ...]
"""Literal bytes and slots, in order."""

JOINED = b"\x1e\x1d"
"""The separator of the parts of a value with all rows of an event. JSON text never has these bytes."""


def join_rows(op: Op, head: Template, row: Template, tail: bytes) -> Template:
    """The template of a value with all rows of a binlog event.

    The value is the ``head`` that the rows share, each ``row`` after a comma, and the ``tail``. `binlog.join_rows`
    joins the values of an event to one message. A row that a SELECT read (``op`` r) is a message of its own.
    """
    if op == "r":
        return (*head, *row, tail)
    return (JOINED, Slot.EVENT_FIRST_ROW, JOINED, *head, JOINED, *row, JOINED + tail)


def join_values(values: Sequence[bytes]) -> bytes:
    """The value of one message with the rows of all ``values``, whose form is that of `join_rows` with the same head.

    Values of another form are not joined: the first is returned.
    """
    if not values[0].startswith(JOINED):
        return values[0]
    parts = [value.split(JOINED, 4)[2:] for value in values]
    return b"".join((parts[0][0], b",".join(row for _, row, _ in parts), parts[0][2]))


OF_SERVER = frozenset(
    {Slot.FILE, Slot.POSITION, Slot.ROW, Slot.EVENT_ID, Slot.SEQUENCE, Slot.EVENT_TYPE, Slot.EVENT_SIZE}
    | {Slot.EVENT_END, Slot.EVENT_FLAGS, Slot.PARTITION_INFO}
)
"""The slots that depend on the server's binlog. On another server they have other values for the same change."""

RowHeader = tuple[str, Template]
"""A record header of a row message: its name, and the template of its value."""

ABSENT_IMAGE: Mapping[Op, Slot] = {"c": Slot.BEFORE, "r": Slot.BEFORE, "d": Slot.AFTER}
"""The image that an op does not have."""


class ChangeKind(StrEnum):
    """The kind of a row change. An update that changes the primary key has its own kind."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    KEY_CHANGE = "key_change"


@dataclass(frozen=True)
class RowMessage:
    """One of the messages of a row change.

    - ``op`` chooses the template of the value. None: a tombstone, which is a key without a value.
    - ``key`` is the image of the key.
    - ``step`` distinguishes the messages of a change, in their event ids and in the counts of the commit log. The
      messages of a change have different steps in ascending order.
    - ``headers`` are the record headers except event id and GTID. Most messages have none.
    """

    step: Step
    op: Op | None
    key: Literal["before", "after"]
    headers: tuple[RowHeader, ...] = ()


Messages = Mapping[ChangeKind, tuple[RowMessage, ...]]
"""The messages of each kind of change."""

CREATED = RowMessage(Step.CHANGE, "c", "after")
UPDATED = RowMessage(Step.CHANGE, "u", "after")
DELETED = RowMessage(Step.CHANGE, "d", "before")
READ = RowMessage(Step.CHANGE, "r", "after")
TOMBSTONE = RowMessage(Step.TOMBSTONE, None, "before")
CREATED_ANEW = RowMessage(Step.CREATE, "c", "after")
"""A create with the new key, after a delete with the old one."""

ONE_MESSAGE_EACH: Messages = {
    ChangeKind.CREATE: (CREATED,),
    ChangeKind.UPDATE: (UPDATED,),
    ChangeKind.DELETE: (DELETED,),
    ChangeKind.READ: (READ,),
    ChangeKind.KEY_CHANGE: (UPDATED,),
}
"""A change of key is one update with both images."""
DELETE_AND_CREATE: Messages = {**ONE_MESSAGE_EACH, ChangeKind.KEY_CHANGE: (DELETED, CREATED_ANEW)}
"""A change of key is a delete with the old key and a create with the new key."""
WITH_TOMBSTONES: Messages = {
    **ONE_MESSAGE_EACH,
    ChangeKind.DELETE: (DELETED, TOMBSTONE),
    ChangeKind.KEY_CHANGE: (DELETED, TOMBSTONE, CREATED_ANEW),
}
"""As DELETE_AND_CREATE, with a tombstone after each delete, for compacted topics."""
