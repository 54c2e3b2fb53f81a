"""A binlog file's frame: the magic number, event headers, event types, the FORMAT_DESCRIPTION event.

An event: timestamp u32, type u8, server_id u32, size u32, next position u32, flags u16; then its body; then, if
the FORMAT_DESCRIPTION says so, a CRC-32 of all before it. All little-endian.

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_replication_binlog_event.html,
https://mariadb.com/kb/en/2-binlog-event-header/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from changefeed.model.coordinates import FIRST_POSITION

MAGIC = b"\xfebin"
ENCRYPTED_MAGIC = b"\xfdbin"
HEADER_SIZE = 19
CHECKSUM_SIZE = 4

LEAST_DESCRIPTION, MOST_DESCRIPTION = HEADER_SIZE + 57, 4096
"""Bytes of a FORMAT_DESCRIPTION event: it has a byte for each of at most 255 types of events."""

HEADER = struct.Struct("<IBIIIH")
"""timestamp, type, server_id, size, next position, flags."""

ARTIFICIAL_FLAG = 0x20
"""The flag of an artificial event: the server that sends it has created it, and no file contains it."""
IGNORABLE_FLAG = 0x80
"""The flag of an event that a reader can skip if it does not know the event's type."""


class EventType(IntEnum):
    """Types of events that changefeed knows. Types from 160 on are MariaDB's."""

    START_V3 = 1
    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    SLAVE = 7
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    PRE_GA_WRITE_ROWS = 20
    PRE_GA_UPDATE_ROWS = 21
    PRE_GA_DELETE_ROWS = 22
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    TRANSACTION_PAYLOAD = 40
    HEARTBEAT_V2 = 41
    GTID_TAGGED = 42
    MARIADB_ANNOTATE_ROWS = 160
    MARIADB_BINLOG_CHECKPOINT = 161
    MARIADB_GTID = 162
    MARIADB_GTID_LIST = 163
    MARIADB_START_ENCRYPTION = 164
    MARIADB_QUERY_COMPRESSED = 165
    MARIADB_WRITE_ROWS_COMPRESSED_V1 = 166
    MARIADB_UPDATE_ROWS_COMPRESSED_V1 = 167
    MARIADB_DELETE_ROWS_COMPRESSED_V1 = 168
    MARIADB_WRITE_ROWS_COMPRESSED = 169
    MARIADB_UPDATE_ROWS_COMPRESSED = 170
    MARIADB_DELETE_ROWS_COMPRESSED = 171


NO_CHANGE = frozenset(
    {
        EventType.STOP,
        EventType.ROTATE,
        EventType.INTVAR,  # of a statement, whose QUERY event is reported
        EventType.RAND,
        EventType.USER_VAR,
        EventType.APPEND_BLOCK,  # a part of LOAD DATA in statement format, which is reported
        EventType.DELETE_FILE,
        EventType.BEGIN_LOAD_QUERY,
        EventType.HEARTBEAT,
        EventType.HEARTBEAT_V2,
        EventType.IGNORABLE,
        EventType.PREVIOUS_GTIDS,
        EventType.TRANSACTION_CONTEXT,
        EventType.VIEW_CHANGE,
        EventType.MARIADB_BINLOG_CHECKPOINT,
        EventType.MARIADB_GTID_LIST,
    }
)
"""Types without a row change and without a statement. The decoder counts and skips such events."""
OPENING = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})
"""Types that a transaction begins with."""
ROWS = frozenset(
    {
        EventType.WRITE_ROWS_V1,
        EventType.UPDATE_ROWS_V1,
        EventType.DELETE_ROWS_V1,
        EventType.WRITE_ROWS,
        EventType.UPDATE_ROWS,
        EventType.DELETE_ROWS,
        EventType.PARTIAL_UPDATE_ROWS,
        *range(EventType.MARIADB_WRITE_ROWS_COMPRESSED_V1, EventType.MARIADB_DELETE_ROWS_COMPRESSED + 1),
    }
)
"""Types that carry rows."""
_BEFORE_5_1 = frozenset(
    {
        EventType.START_V3,
        EventType.LOAD,
        EventType.SLAVE,
        EventType.CREATE_FILE,
        EventType.EXEC_LOAD,
        EventType.NEW_LOAD,
        EventType.PRE_GA_WRITE_ROWS,
        EventType.PRE_GA_UPDATE_ROWS,
        EventType.PRE_GA_DELETE_ROWS,
    }
)
"""Types that no server writes since MySQL 5.1."""
HEARTBEATS = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
"""Types that a server sends to its reader only; no file has them."""


def is_in_file(kind: int, next_position: int, flags: int, position: int) -> bool:
    """Whether an event of a dump is also in the file, at ``position``; False for an artificial event.

    A server sends artificial ROTATE events and heartbeats, and a FORMAT_DESCRIPTION before a later range.
    """
    if flags & ARTIFICIAL_FLAG or kind in HEARTBEATS:
        return False
    return kind != EventType.FORMAT_DESCRIPTION or (next_position != 0 and position == FIRST_POSITION)


class DamagedEvent(Exception):
    """The bytes of an event cannot be read. The decoder turns it into a BinlogFormatError with coordinates."""


class Fields:
    """Reads an event's body from front to back; raises DamagedEvent instead of reading past its end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self.data) - self.at

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes."""
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise DamagedEvent(
                f"expected {count} bytes at {self.at} of the event's body, which has {len(self.data)} bytes"
            )
        part = self.data[self.at : end]
        self.at = end
        return part

    def number(self, width: int) -> int:
        """An unsigned little-endian number of ``width`` bytes."""
        return int.from_bytes(self.take(width), "little")

    def packed_number(self) -> int:
        """A length-encoded integer.

        Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_basic_dt_integers.html
        """
        first = self.number(1)
        if first < 251:
            return first
        if first == 252:
            return self.number(2)
        if first == 253:
            return self.number(3)
        if first == 254:
            return self.number(8)
        raise DamagedEvent(f"a packed integer begins with {first}")


@dataclass(frozen=True)
class FormatDescription:
    """The layout of the events that follow."""

    server_version: str
    checksum: bool
    post_header_sizes: bytes

    @property
    def is_mariadb(self) -> bool:
        """Whether MariaDB wrote the file."""
        return "mariadb" in self.server_version.lower()

    @classmethod
    def parse(cls, body: bytes) -> FormatDescription:
        """Read the event's bytes after its header, its own checksum included.

        Body: version u16 (4), server version char[50], created u32, header size u8 (19), post-header sizes u8[],
        checksum algorithm u8 (0 none, 1 CRC32), and four bytes of a checksum that are there even for "none".
        """
        if len(body) < 57:
            raise DamagedEvent(f"FORMAT_DESCRIPTION has {len(body)} bytes, less than 57")
        if int.from_bytes(body[:2], "little") != 4 or body[56] != HEADER_SIZE:
            raise DamagedEvent(f"FORMAT_DESCRIPTION is not of binlog version 4 with headers of {HEADER_SIZE} bytes")
        name = body[2:52].split(b"\0")[0].decode("latin-1")
        if len(body) < 62 or not _has_checksum_field(name):
            return cls(name, False, body[57:])
        algorithm = body[-5]
        if algorithm not in (0, 1):
            raise DamagedEvent("the checksum algorithm is neither 0 (none) nor 1 (CRC32)")
        return cls(name, algorithm == 1, body[57:-5])


_FLAGS_AT, _NEXT_POSITION_AT = 17, 13
_IN_USE = 0x01


def dumped_description(description: bytes, *, in_range: bool) -> bytes:
    """A file's FORMAT_DESCRIPTION event as its server would send it.

    The flag "in use" (the server still writes the file, or crashed while it did) is not part of the checksum. With
    ``in_range``, for a range later in the file, the event has next position 0.
    """
    event = bytearray(description)
    event[_FLAGS_AT] &= ~_IN_USE
    if not in_range:
        event[_NEXT_POSITION_AT : _NEXT_POSITION_AT + 4] = b"\0\0\0\0"
        if event[-CHECKSUM_SIZE - 1] == 1:
            event[-CHECKSUM_SIZE:] = zlib.crc32(event[:-CHECKSUM_SIZE]).to_bytes(CHECKSUM_SIZE, "little")
    return bytes(event)


def _has_checksum_field(server_version: str) -> bool:
    """Whether the event has a checksum algorithm and a checksum.

    Servers before MySQL 5.6.1 and MariaDB 5.3 write none.
    """
    numbers = []
    for part in server_version.split("-")[0].split(".")[:3]:
        numbers.append(int(part) if part.isdigit() else 0)
    if "mariadb" in server_version.lower():
        return numbers >= [5, 3, 0]
    return numbers >= [5, 6, 1]


def name_of(type_code: int) -> str:
    """An event type's name and number, for an error message."""
    try:
        return f"{EventType(type_code).name} ({type_code})"
    except ValueError:
        return f"unknown type {type_code}"


def unreadable_reason(type_code: int) -> str:
    """The error message, with a remedy, for an event of a type that changefeed does not read."""
    if type_code in _BEFORE_5_1:
        return (
            "no server since MySQL 5.1 writes this type of event, and changefeed does not read it: begin after the "
            "file (seek), or replay it on a newer server and read that one's binlog"
        )
    return "changefeed does not know how to read this type of event"


def incident_of(body: bytes) -> str:
    """The error message, with a remedy, for an INCIDENT event.

    Body: number u16, size of the text u8, text.
    """
    number = int.from_bytes(body[:2], "little")
    text = body[3 : 3 + body[2]].decode("utf-8", "replace") if len(body) > 2 else ""
    return (
        f"the server reports incident {number} ({text}): changes may be missing from its binlog. Compare the tables "
        "with what consumers have, or load them anew from a dump, then seek past this event"
    )


def complete_events(chunks: Iterable[bytes | bytearray | memoryview], most_bytes: int) -> Iterator[memoryview]:
    """Yield complete events from chunks of any size. No event may be larger than ``most_bytes``, the size of the range.

    Raises DamagedEvent for bytes that cannot be cut into events, and for an event that is larger than the limit as soon
    as its header has arrived.
    """
    most = max(most_bytes, MOST_DESCRIPTION)
    held, required = bytearray(), HEADER_SIZE
    for chunk in chunks:
        if held:
            held += chunk
            if len(held) < required:
                continue
        view = memoryview(bytes(held or chunk))
        at, filled, required = 0, len(view), HEADER_SIZE
        while filled - at >= HEADER_SIZE:
            size = int.from_bytes(view[at + 9 : at + 13], "little")
            if not HEADER_SIZE <= size <= most:
                raise DamagedEvent(
                    f"an event says that it has {size} bytes: its header alone has {HEADER_SIZE}, and all that is read "
                    f"{most_bytes}"
                )
            if filled - at < size:
                required = size
                break
            yield view[at : at + size]
            at += size
        held = bytearray(view[at:])
    if held:
        raise DamagedEvent(f"{len(held)} bytes of a broken event are left over")
