"""What a format says of a message: literal text with slots in it.

A template is data, so that two engines run the same one: the kernel turns it into ops and literals of a row
program, and `formats.render` fills it in plain Python for the reference reader.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Op = Literal["c", "u", "d", "r"]
"""A row was created, updated, deleted; or it was read as it is, by a SELECT."""
OPS: tuple[Op, ...] = ("c", "u", "d", "r")
"""All of them, in the order in which the kernel numbers them."""

NO_SNAPSHOT = "false"
"""What `Slot.SNAPSHOT` says of a change that a binlog holds."""


class Slot(StrEnum):
    """A place in a template that differs from row to row. JSON text, without quotes around it unless said."""

    BEFORE = "before"
    """The before image as a JSON object; `null` where the op has none."""
    AFTER = "after"
    """The after image as a JSON object; `null` where the op has none."""
    KEY = "key"
    """The primary key's columns as a JSON object."""
    FILE = "file"
    """Binlog file name, unquoted."""
    POSITION = "position"
    """Start of the event in the file."""
    ROW = "row"
    """Row number within the event, from 0."""
    GTID = "gtid"
    """GTID as a JSON string, or `null`."""
    SERVER_ID = "server_id"
    """server_id of the event's origin."""
    TS_SECONDS = "ts_seconds"
    """Timestamp of the event in seconds since 1970: follow it by a literal `000` for milliseconds."""
    QUERY = "query"
    """Text of the statement (ROWS_QUERY) as a JSON string, or `null`."""
    XID = "xid"
    """The xid of an XA transaction as a JSON string, as XA RECOVER's CONVERT XID form writes it; else `null`."""
    SNAPSHOT = "snapshot"
    """The snapshot that the row was read for, unquoted: `false` for a change out of a binlog, else what its reader
    calls it (Debezium's words: `true`, `first`, `last`, `incremental`). The same for all rows of one reader."""


Template = tuple[str | Slot, ...]
"""Literal JSON text (UTF-8) and slots, in order."""
